// Implementation of Uplink.
#include "backend_agent/uplink.h"

#include <algorithm>
#include <utility>

#include "core/runtime/milliseconds.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

constexpr uint32_t kProtocol = 1;
constexpr size_t kControlItemsMax = 65'536;
constexpr absl::Duration kReadIdle = absl::Seconds(15);
constexpr absl::Duration kHeartbeat = absl::Seconds(5);
constexpr int kDialsBeforeWarning = 3;
constexpr size_t kFramesUnderWay = 3;
constexpr absl::Duration kSoon = absl::Milliseconds(2);

absl::Duration FromMillis(uint64_t milliseconds, absl::Duration otherwise) {
  return milliseconds == 0 ? otherwise : core::FromMillis(milliseconds);
}

}  // namespace

Uplink::Uplink(core::EventLoop& loop, core::Random& random, LinkDialer& dialer,
               const AgentConfig& config, Owner& owner, std::string address)
    : loop_(loop),
      dialer_(dialer),
      config_(config),
      owner_(owner),
      backoff_(config.backoff_first, config.backoff_max, random),
      addresses_{std::move(address)},
      unreceived_limit_(config.limits.link_unreceived_max, config.limits.link_unreceived_most),
      read_idle_(kReadIdle),
      heartbeat_(kHeartbeat) {}

Uplink::~Uplink() = default;

void Uplink::Start(absl::Duration wait) {
  state_since_ = loop_.Now();
  if (state_ != State::kIdle || stopped_) return;
  if (wait == absl::ZeroDuration()) return Dial();
  dial_timer_ = loop_.After(wait, [this] { Dial(); });
}

void Uplink::Stop(absl::Duration grace, absl::AnyInvocable<void()> done) {
  stopped_ = true;
  auto finish = [this, done = std::move(done)]() mutable {
    CloseLink(absl::CancelledError("the agent is stopping"));
    state_ = State::kIdle;
    dial_timer_.Cancel();
    loop_.Post(std::move(done));
  };
  if (state_ != State::kLinked) return finish();
  BeginDrain(grace, std::move(finish));
}

// ---- dialling and opening -----------------------------------------------------------------------

void Uplink::DialNow() {
  if (state_ == State::kLinked || stopped_) return;
  if (state_ == State::kOpening) {
    state_ = State::kWaiting;  // not a failure
    CloseLink(absl::CancelledError("dialled anew"));
  }
  Dial();
}

void Uplink::RemoveAddress(const std::string& address) {
  const std::string present = addresses_[address_];
  std::erase(addresses_, address);
  const auto at = std::find(addresses_.begin(), addresses_.end(), present);
  address_ = at == addresses_.end() ? 0 : static_cast<size_t>(at - addresses_.begin());
}

void Uplink::Dial() {
  state_ = State::kOpening;
  writing_ = false;
  sent_ = confirmed_ = received_ = received_reported_ = 0;
  unreceived_limit_.Reset();
  control_.clear();
  link_ = dialer_.Dial(addresses_[address_]);
  link_->Open(this);
  QueueOpening();
  dial_timer_ = loop_.After(config_.welcome_timeout, [this] {
    OnDialFailed(absl::DeadlineExceededError("no Welcome from the control plane"), backoff_.Next());
  });
  Wake();
}

void Uplink::QueueOpening() {
  opening_.clear();
  v1::Hello* hello = opening_.emplace_back().mutable_hello();
  hello->set_protocol_min(kProtocol);
  hello->set_protocol_max(kProtocol);
  hello->set_agent_id(config_.agent_id);
  *hello->mutable_software() = config_.software;
  for (const auto& [key, value] : config_.labels) (*hello->mutable_labels())[key] = value;
  hello->set_last_cluster_id(last_cluster_id_);
  owner_.FillHello(*hello);
  v1::LinkLimits* limits = hello->mutable_limits();
  limits->set_max_open_calls(config_.limits.open_calls_max);
  limits->set_max_queued_bytes(config_.limits.queued_bytes_max);
  limits->set_window(config_.limits.window);
  limits->set_window_max(config_.limits.window_max);
  limits->set_result_bytes_max(config_.limits.result_bytes_max);
  owner_.AppendInventory(opening_);
  opening_.emplace_back().mutable_inventory_done();
}

void Uplink::CloseLink(const absl::Status& status) {
  const bool was_linked = state_ == State::kLinked;
  LogLoss(status, was_linked);
  state_ = State::kWaiting;
  link_lifetime_.Renew();
  beat_timer_.Cancel();
  silence_timer_.Cancel();
  drain_timer_.Cancel();
  drained_ = nullptr;
  if (link_ != nullptr) {
    link_->Close(status);
    // We may be inside one of its callbacks.
    retired_.push_back(std::move(link_));
    loop_.Post(lifetime_.Wrap([this] { retired_.clear(); }));
  }
  if (was_linked) owner_.OnUnlinked();
}

void Uplink::LogLoss(const absl::Status& why, bool was_linked) {
  const absl::Time now = loop_.Now();
  if (was_linked) {
    core::LogInfo("link_down", {{"address", address()},
                                {"reason", core::Message(why)},
                                {"duration_ms", absl::ToInt64Milliseconds(now - state_since_)}});
    state_since_ = now;
  } else if (state_ == State::kOpening) {
    ++failed_dials_;
    // The first failures are most often a restart; one that persists is told once.
    core::Log(
        failed_dials_ == kDialsBeforeWarning ? core::LogLevel::kWarn : core::LogLevel::kDebug,
        "link_fails",
        {{"address", address()}, {"reason", core::Message(why)}, {"attempts", failed_dials_}});
  }
}

void Uplink::Redial(absl::Status why, absl::Duration wait) {
  // A Stop() that waited for the link to drain has nothing left to wait for.
  auto drained = stopped_ ? std::move(drained_) : nullptr;
  CloseLink(why);
  if (drained) return drained();
  if (stopped_) return;
  dial_timer_ = loop_.After(wait, [this] { Dial(); });
}

void Uplink::OnDialFailed(absl::Status why, absl::Duration wait, v1::Refused::Code code) {
  owner_.OnNotLinked(code);
  Redial(std::move(why), wait);
  if (!addresses_.empty()) address_ = (address_ + 1) % addresses_.size();
}

void Uplink::OnClosed(absl::Status status) {
  if (state_ == State::kOpening) return OnDialFailed(std::move(status), backoff_.Next());
  Redial(std::move(status), backoff_.Next());
}

void Uplink::OnMessage(v1::ServerFrame frame) {
  received_ += PacingBytes(frame);
  last_heard_ = loop_.Now();
  confirmed_ = std::max(confirmed_, std::min<uint64_t>(frame.received(), sent_));
  unreceived_limit_.OnConfirmed(confirmed_, last_heard_);
  if (confirmed_ == sent_) owner_.OnAllReceived();
  const auto alive = lifetime_.Watch();
  const auto same_link = link_lifetime_.Watch();
  for (v1::ServerItem& item : *frame.mutable_items()) {
    if (state_ == State::kLinked) {
      OnLinkedItem(std::move(item));
    } else {
      OnOpeningItem(item);
    }
    if (alive.expired() || same_link.expired()) return;
  }
  Wake();
}

void Uplink::OnOpeningItem(const v1::ServerItem& item) {
  // Nothing else may come before Welcome; what comes nevertheless cannot be understood.
  if (item.has_welcome()) OnWelcome(item.welcome());
  if (item.has_refused()) OnRefused(item.refused());
}

void Uplink::OnWelcome(const v1::Welcome& welcome) {
  if (welcome.protocol() != kProtocol) {
    return Redial(core::MakeError(absl::StatusCode::kFailedPrecondition,
                                  fmt::format("the control plane speaks protocol {}, this agent {}",
                                              welcome.protocol(), kProtocol)),
                  config_.permanent_refusal_wait);
  }
  backoff_.Reset();
  dial_timer_.Cancel();
  state_ = State::kLinked;
  control_plane_id_ = welcome.control_plane_id();
  core::LogInfo("link_up", {{"control_plane", welcome.control_plane_id()},
                            {"address", address()},
                            {"term", welcome.term()},
                            {"attempts", failed_dials_ + 1},
                            {"away_ms", absl::ToInt64Milliseconds(loop_.Now() - state_since_)}});
  failed_dials_ = 0;
  state_since_ = loop_.Now();
  last_cluster_id_ = welcome.cluster_id();
  heartbeat_ = FromMillis(welcome.heartbeat_ms(), kHeartbeat);
  read_idle_ = kReadIdle;
  ApplyBudgets(welcome.budgets());
  beat_timer_ = loop_.After(heartbeat_, [this] { Beat(); });
  WatchSilence();
  owner_.OnLinked(welcome);
}

void Uplink::OnRefused(const v1::Refused& refused) {
  if (refused.permanent()) {
    core::LogWarn("link_refused", {{"address", address()},
                                   {"code", v1::Refused::Code_Name(refused.code())},
                                   {"reason", refused.message()}});
  }
  const bool alias = refused.code() == v1::Refused::ALREADY_LINKED;
  const absl::Duration wait = refused.permanent()
                                  ? config_.permanent_refusal_wait
                                  : FromMillis(refused.retry_after_ms(), backoff_.Next());
  const absl::Status why =
      core::MakeError(absl::StatusCode::kFailedPrecondition,
                      fmt::format("refused by the control plane: {}", refused.message()));
  if (!alias && state_ != State::kLinked) return OnDialFailed(why, wait, refused.code());
  if (!alias) return Redial(why, wait);
  const std::string refused_address = address();
  Redial(why, wait);
  owner_.OnAlias(refused_address, refused.control_plane_id());
}

// ---- while linked -------------------------------------------------------------------------------

void Uplink::OnLinkedItem(v1::ServerItem item) {
  switch (item.item_case()) {
    case v1::ServerItem::kPing: {
      v1::AgentItem pong;
      pong.mutable_pong()->set_token(item.ping().token());
      return SendControl(std::move(pong));
    }
    case v1::ServerItem::kPong:
      return;
    case v1::ServerItem::kGoAway:
      owner_.OnGoAway(item.go_away());
      return BeginDrain(FromMillis(item.go_away().grace_ms(), absl::ZeroDuration()), [this] {
        Redial(absl::UnavailableError("the control plane asked the agent to go away"),
               backoff_.Next());
      });
    case v1::ServerItem::kRefused:
      return OnRefused(item.refused());
    case v1::ServerItem::kSettings:
      ApplyBudgets(item.settings().budgets());
      return owner_.OnItem(std::move(item));
    default:
      return owner_.OnItem(std::move(item));
  }
}

void Uplink::ApplyBudgets(const v1::Budgets& budgets) {
  read_idle_ = FromMillis(budgets.link_read_idle_ms(), read_idle_);
}

void Uplink::Beat() {
  beat_timer_ = loop_.After(heartbeat_, [this] { Beat(); });
  v1::AgentItem beat;
  owner_.MakeHeartbeat(*beat.mutable_heartbeat());
  SendControl(std::move(beat));
  if (loop_.Now() - last_heard_ >= heartbeat_) {
    v1::AgentItem ping;
    ping.mutable_ping()->set_token(++ping_token_);
    SendControl(std::move(ping));
  }
}

void Uplink::WatchSilence() {
  const absl::Time limit = last_heard_ + read_idle_;
  if (loop_.Now() >= limit) {
    return Redial(core::MakeError(absl::StatusCode::kUnavailable,
                                  fmt::format("nothing heard from the control plane for {} ms",
                                              absl::ToInt64Milliseconds(read_idle_))),
                  backoff_.Next());
  }
  silence_timer_ = loop_.At(limit, [this] { WatchSilence(); });
}

void Uplink::BeginDrain(absl::Duration grace, absl::AnyInvocable<void()> then) {
  if (drained_ && !stopped_) return;
  drained_ = std::move(then);
  drain_timer_ = loop_.After(grace, [this] { FinishDrain(); });
  Wake();
}

void Uplink::FinishDrain() {
  if (auto then = std::exchange(drained_, nullptr)) then();
}

// ---- writing ------------------------------------------------------------------------------------

void Uplink::SendControl(v1::AgentItem item) {
  if (state_ != State::kLinked) return;
  if (control_.size() >= kControlItemsMax) {
    // Later: the caller is in the middle of something.
    loop_.Post(link_lifetime_.Wrap([this] {
      Redial(absl::ResourceExhaustedError("the control plane does not take what is written"),
             backoff_.Next());
    }));
    return;
  }
  control_.push_back(std::move(item));
  Wake();
}

void Uplink::Wake() {
  if (flush_posted_ || link_ == nullptr || !CanWrite()) return;
  flush_posted_ = true;
  loop_.Post(lifetime_.Wrap([this] { Flush(); }));
}

void Uplink::WakeSoon() {
  if (flush_posted_ || link_ == nullptr || soon_timer_.pending() || !CanWrite()) return;
  soon_timer_ = loop_.After(kSoon, [this] { Flush(); });
}

void Uplink::OnWritten() {
  writing_ = false;
  Wake();
}

bool Uplink::CanWrite() {
  if (writing_ && link_->TakeWritten()) writing_ = false;
  return !writing_;
}

void Uplink::Flush() {
  flush_posted_ = false;
  soon_timer_.Cancel();
  if (link_ == nullptr || !CanWrite()) return;
  FrameBuilder builder(config_.limits.frame_bytes_max);
  const bool all = Fill(builder);
  const bool confirm = received_ - received_reported_ >= config_.limits.link_unreceived_max / 4;
  if (builder.empty() && !confirm) {
    if (drained_ && !owner_.HasData() && (stopped_ || !owner_.HasCalls())) FinishDrain();
    return;
  }
  builder.frame().set_received(received_);
  received_reported_ = received_;
  sent_ += PacingBytes(builder.frame());
  unreceived_limit_.OnWritten(sent_, loop_.Now());
  writing_ = true;
  link_->Write(std::move(builder.frame()));
  // Asks to be told of the end of this write, or goes on at once.
  if (!all || drained_) Wake();
}

bool Uplink::Fill(FrameBuilder& frame) {
  auto take = [&frame](std::deque<v1::AgentItem>& items) {
    while (!items.empty()) {
      if (!frame.empty() && frame.room() < items.front().ByteSizeLong() + kItemOverhead)
        return false;
      frame.Add()->Swap(&items.front());
      items.pop_front();
    }
    return true;
  };
  if (!take(opening_)) return false;
  if (state_ != State::kLinked) return true;
  // States first: an outcome that was reported after a change must not come before it.
  if (!owner_.FillControl(frame) || !take(control_)) return false;
  const uint64_t unreceived = sent_ - confirmed_;
  const auto limit = static_cast<size_t>(unreceived_limit_.limit());
  // What waits for credit goes on when the peer says that it has received.
  if (unreceived >= limit) return true;
  // Several frames under way instead of one as large as the limit: whenever the peer has taken one,
  // another call's small event gets its turn, and the path does not run dry meanwhile.
  frame.Narrow(std::min(limit / kFramesUnderWay, limit - static_cast<size_t>(unreceived)));
  const int control = frame.frame().items_size();
  owner_.FillData(frame);
  if (frame.frame().items_size() == control && unreceived == 0) {
    // With nothing under way even an item larger than that may go; behind pongs and heartbeats too,
    // as on a quiet link there is one whenever the peer confirms.
    frame.Widen();
    owner_.FillData(frame);
  }
  return !owner_.HasData();
}

}  // namespace callboard::agent
