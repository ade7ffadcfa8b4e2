// Implementation of AgentSession.
#include "server/flows/agent_session.h"

#include <algorithm>
#include <utility>

#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr size_t kInventoryMax = 65'536;
constexpr size_t kIdentityBytesMax = 256;
// A third of the limit a frame: several are under way, and each is a turn for other calls.
constexpr size_t kFramesUnderWay = 3;
constexpr size_t kTellTakenEvery = 64 << 10;
constexpr absl::Duration kRefusalLinger = absl::Seconds(1);

}  // namespace

AgentSession::AgentSession(uint64_t id, core::EventLoop& loop, const ControlPlaneConfig& config,
                           uint64_t term, std::unique_ptr<AgentLink> link, PeerIdentity peer,
                           Host& host, AgentOutbox::Source& source)
    : id_(id),
      loop_(loop),
      config_(config),
      link_(std::move(link)),
      peer_(std::move(peer)),
      host_(host),
      outbox_(config.limits, term, source),
      unreceived_limit_(config.limits.link_unreceived_max, config.limits.link_unreceived_most),
      last_heard_(loop.Now()) {}

AgentSession::~AgentSession() { Shut(absl::CancelledError("the control plane ended")); }

void AgentSession::Start() {
  opening_timer_ = loop_.After(config_.budgets.welcome, [this] {
    if (state_ == State::kAwaitHello || state_ == State::kInventory) {
      BadOpening(
          fmt::format("no InventoryDone within {}", absl::FormatDuration(config_.budgets.welcome)));
    }
  });
  link_->Open(this);
}

const std::string& AgentSession::agent_id() const {
  return peer_.transport_agent.empty() ? hello_.agent_id() : peer_.transport_agent;
}

// ---- opening ------------------------------------------------------------------------------------

void AgentSession::OnOpeningItem(v1::AgentItem& item) {
  if (state_ == State::kAwaitHello) {
    if (item.has_hello()) return OnHello(std::move(*item.mutable_hello()));
    return BadOpening(fmt::format("the first item must be Hello, not number {} of AgentItem",
                                  static_cast<int>(item.item_case())));
  }
  if (item.has_seat_state()) {
    if (item.seat_state().seat_id().empty() || seats_.size() >= kInventoryMax) {
      return BadOpening("a SeatState without seat_id, or more than 65536 of them");
    }
    seats_.push_back(std::move(*item.mutable_seat_state()));
    return;
  }
  if (state_ == State::kDeciding) return Ignore("it came before Welcome");
  if (item.has_call_state()) {
    if (!CallId::From(item.call_state().call_id()) || calls_.size() >= kInventoryMax) {
      return BadOpening("a CallState whose call_id is not 16 bytes, or more than 65536 of them");
    }
    calls_.push_back(std::move(*item.mutable_call_state()));
  } else if (item.has_inventory_done()) {
    opening_timer_.Cancel();
    state_ = State::kDeciding;
    host_.OnInventory(*this);
  } else {
    BadOpening(
        fmt::format("only SeatState, CallState and InventoryDone may follow Hello, not "
                    "number {} of AgentItem",
                    static_cast<int>(item.item_case())));
  }
}

void AgentSession::OnHello(v1::Hello hello) {
  hello_ = std::move(hello);
  if (hello_.protocol_max() < kProtocolMin || hello_.protocol_min() > kProtocolMax) {
    const bool old = hello_.protocol_max() < kProtocolMin;
    return Refuse(old ? v1::Refused::PROTOCOL_TOO_OLD : v1::Refused::PROTOCOL_TOO_NEW,
                  fmt::format("this control plane speaks protocol {} to {}, the agent {} to {}: "
                              "update the {}",
                              kProtocolMin, kProtocolMax, hello_.protocol_min(),
                              hello_.protocol_max(), old ? "agent" : "control plane"),
                  true);
  }
  if (hello_.boot_id().empty() || hello_.agent_id().empty() ||
      hello_.agent_id().size() > kIdentityBytesMax || hello_.boot_id().size() > kIdentityBytesMax) {
    return BadOpening("Hello needs agent_id and boot_id of at most 256 bytes");
  }
  if (!peer_.transport_agent.empty() && peer_.transport_agent != hello_.agent_id()) {
    return Refuse(v1::Refused::UNAUTHENTICATED,
                  fmt::format("the certificate says agent '{}', Hello says '{}'",
                              peer_.transport_agent, hello_.agent_id()),
                  true);
  }
  for (const std::string& linked : hello_.linked_planes()) {
    if (linked != config_.control_plane_id) continue;
    return Refuse(v1::Refused::ALREADY_LINKED,
                  "this process is linked to this control plane by another address", false,
                  config_.budgets.link_read_idle);
  }
  if (hello_.limits().window() != 0) outbox_.SetWindow(hello_.limits().window());
  state_ = State::kInventory;
}

void AgentSession::BadOpening(std::string message) {
  Refuse(v1::Refused::BAD_OPENING, std::move(message), false, absl::Seconds(1));
}

void AgentSession::Accept(v1::Welcome welcome) {
  if (state_ != State::kDeciding) return;
  state_ = State::kOpen;
  welcome.set_protocol(std::min(kProtocolMax, hello_.protocol_max()));
  *outbox_.Control().mutable_welcome() = std::move(welcome);
  next_ping_ = loop_.Now() + config_.budgets.heartbeat;
  beat_timer_ = loop_.At(next_ping_, [this] { Beat(); });
  ScheduleFlush();
}

void AgentSession::Refuse(v1::Refused::Code code, std::string message, bool permanent,
                          absl::Duration retry_after) {
  if (state_ == State::kRefused || state_ == State::kEnded) return;
  state_ = State::kRefused;
  host_.OnRefused(code);
  v1::Refused& refused = *outbox_.Control().mutable_refused();
  refused.set_code(code);
  refused.set_message(std::move(message));
  refused.set_wanted_protocol_min(kProtocolMin);
  refused.set_wanted_protocol_max(kProtocolMax);
  refused.set_permanent(permanent);
  refused.set_control_plane_id(config_.control_plane_id);
  refused.set_retry_after_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(retry_after)));
  // Ends when the refusal is written, or when it cannot be.
  opening_timer_ =
      loop_.After(kRefusalLinger, [this] { End(absl::FailedPreconditionError("refused")); });
  ScheduleFlush();
}

// ---- the open link ------------------------------------------------------------------------------

void AgentSession::OnMessage(v1::AgentFrame frame) {
  if (state_ == State::kEnded) return;
  last_heard_ = loop_.Now();
  taken_ += frame.ByteSizeLong();
  peer_taken_ = std::clamp(frame.received(), peer_taken_, written_);
  unreceived_limit_.OnConfirmed(peer_taken_, last_heard_);
  host_.OnFrameBegin();
  for (v1::AgentItem& item : *frame.mutable_items()) {
    if (state_ == State::kOpen) {
      OnLinkItem(item);
    } else if (state_ != State::kRefused) {
      OnOpeningItem(item);
    }
    if (state_ == State::kEnded) break;
  }
  if (taken_ - taken_told_ >= kTellTakenEvery || outbox_.HasWork(Credit())) ScheduleFlush();
  host_.OnFrameEnd();
}

void AgentSession::OnLinkItem(v1::AgentItem& item) {
  switch (item.item_case()) {
    case v1::AgentItem::kPing:
      outbox_.Control().mutable_pong()->set_token(item.ping().token());
      ScheduleFlush();
      return;
    case v1::AgentItem::kPong:
      if (probe_answer_ != nullptr && item.pong().token() == probe_token_) {
        probe_timer_.Cancel();
        auto answer = std::move(probe_answer_);
        probe_answer_ = nullptr;
        answer(true);
      }
      return;
    case v1::AgentItem::kAck:
      for (const v1::AckEntry& entry : item.ack().entries()) outbox_.OnAck(entry);
      return;
    case v1::AgentItem::kHello:
    case v1::AgentItem::kInventoryDone:
    case v1::AgentItem::ITEM_NOT_SET:
      return Ignore("it is unknown, or of an opening");
    default:
      host_.OnItem(*this, item);
  }
}

void AgentSession::Ignore(std::string_view why) {
  if (ignored_++ > 0) return;
  core::LogWarn("link_item_ignored",
                {{"agent", agent_id()}, {"host", hello_.software().host()}, {"reason", why}});
}

void AgentSession::OnWritten() {
  writing_ = false;
  Flush();
}

void AgentSession::OnClosed(absl::Status status) {
  if (status.ok()) status = absl::UnavailableError("the agent ended the stream");
  End(status);
}

void AgentSession::End(const absl::Status& status) {
  if (state_ == State::kEnded) return;
  Shut(status);
  host_.OnGone(*this, status);
}

void AgentSession::Shut(absl::Status status) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  lifetime_.Renew();
  opening_timer_.Cancel();
  beat_timer_.Cancel();
  settle_timer_.Cancel();
  probe_timer_.Cancel();
  link_->Close(std::move(status));
  if (probe_answer_ != nullptr) {
    auto answer = std::move(probe_answer_);
    probe_answer_ = nullptr;
    answer(false);
  }
}

void AgentSession::Probe(absl::Duration limit, absl::AnyInvocable<void(bool)> answer) {
  probe_token_ = ++ping_token_;
  probe_answer_ = std::move(answer);
  outbox_.Control().mutable_ping()->set_token(probe_token_);
  probe_timer_ = loop_.After(limit, [this] {
    auto late = std::move(probe_answer_);
    probe_answer_ = nullptr;
    if (late != nullptr) late(false);
  });
  ScheduleFlush();
}

void AgentSession::Settle(const CallId& call) {
  outbox_.Settle(call);
  if (settle_timer_.pending()) return;
  settle_timer_ = loop_.After(config_.budgets.settle_delay, [this] {
    if (outbox_.settles() == 0) return;
    outbox_.SettlesDue();
    ScheduleFlush();
  });
}

void AgentSession::Beat() {
  const absl::Time now = loop_.Now();
  if (now >= last_heard_ + config_.budgets.link_read_idle) {
    silent_ = true;
    return End(core::MakeError(absl::StatusCode::kUnavailable,
                               fmt::format("nothing came from the agent for {}",
                                           absl::FormatDuration(config_.budgets.link_read_idle))));
  }
  if (now >= next_ping_) {
    next_ping_ = now + config_.budgets.heartbeat;
    outbox_.Control().mutable_ping()->set_token(++ping_token_);
    ScheduleFlush();
  }
  beat_timer_ = loop_.At(std::min(next_ping_, last_heard_ + config_.budgets.link_read_idle),
                         [this] { Beat(); });
}

size_t AgentSession::Credit() const {
  const uint64_t unreceived = written_ - peer_taken_;
  const auto limit = static_cast<size_t>(unreceived_limit_.limit());
  return unreceived >= limit ? 0 : static_cast<size_t>(limit - unreceived);
}

void AgentSession::ScheduleFlush() {
  if (flush_posted_ || state_ == State::kEnded || !CanWrite()) return;
  flush_posted_ = true;
  loop_.Post(lifetime_.Wrap([this] {
    flush_posted_ = false;
    Flush();
  }));
}

bool AgentSession::CanWrite() {
  if (writing_ && link_->TakeWritten()) writing_ = false;
  return !writing_;
}

void AgentSession::Flush() {
  if (state_ == State::kEnded || !CanWrite()) return;
  if (state_ == State::kRefused && !outbox_.HasWork(0)) {
    return End(absl::FailedPreconditionError("refused"));
  }
  const size_t credit = Credit();
  if (!outbox_.HasWork(credit) && taken_ - taken_told_ < kTellTakenEvery) return;
  v1::ServerFrame frame;
  outbox_.Fill(frame, credit, static_cast<size_t>(unreceived_limit_.limit()) / kFramesUnderWay);
  if (frame.items_size() == 0 && taken_ - taken_told_ < kTellTakenEvery) return;
  frame.set_received(taken_);
  taken_told_ = taken_;
  written_ += frame.ByteSizeLong();
  unreceived_limit_.OnWritten(written_, loop_.Now());
  writing_ = true;
  link_->Write(std::move(frame));
  // Asks to be told of the end of this write, or goes on at once.
  if (state_ == State::kRefused || outbox_.HasWork(Credit())) ScheduleFlush();
}

}  // namespace callboard::server
