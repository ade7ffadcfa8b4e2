// McpSeat, apart from its calls: the backend's life, notifications, health and the state it
// reports.
#include <algorithm>
#include <utility>

#include "backend_agent/mcp_seat.h"
#include "core/mcp/json.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

constexpr std::string_view kAllCapabilities =
    R"({"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},)"
    R"("elicitation":{"form":{},"url":{}}})";

}  // namespace

McpSeat::McpSeat(core::EventLoop& loop, core::Random& random, Spool& spool, CallObserver& calls,
                 SeatObserver& seats, std::unique_ptr<Backend> backend, SeatDescription description,
                 IncarnationProvider next_incarnation, SeatLimits limits)
    : loop_(loop),
      random_(random),
      spool_(spool),
      observer_(calls),
      seats_(seats),
      description_(std::move(description)),
      next_incarnation_(std::move(next_incarnation)),
      limits_(limits),
      queue_(limits.queue),
      client_sessions_(loop, random, *this, limits.session, limits.client_sessions),
      watcher_(loop, random, spool, limits.watcher, [this] { SeatChanged(); }),
      listen_(loop, random, [this] { OnListenedAgain(); }) {
  queue_.SetOpen(false);
  BeginSession(std::move(backend));
  ScheduleProbe();
}

// The timers and callbacks inside refer to members; the session goes first, with its exchanges.
McpSeat::~McpSeat() {
  lifetime_.Renew();
  calls_.clear();
}

void McpSeat::BeginSession(std::unique_ptr<Backend> backend) {
  if (backend == nullptr) return;
  // Where all clients share one session it must be able to ask on behalf of any of them; who cannot
  // be asked answers with an error.
  ClientDescription client;
  if (!backend->may_open_another()) client.capabilities = std::string(kAllCapabilities);
  session_ = std::make_unique<McpSession>(loop_, random_, std::move(backend),
                                          static_cast<McpSession::Events*>(this), limits_.session,
                                          std::move(client));
  session_->AskEra();
  session_->Start();
}

void McpSeat::ReplaceBackend(std::unique_ptr<Backend> backend, SeatDescription description) {
  auto alive = lifetime_.Watch();
  if (session_ != nullptr) {
    watcher_.Detach();
    listen_.Stop();
    const bool was_over = process_over_;
    auto old = std::move(session_);
    BackendExit exit;
    exit.process_ended = true;
    exit.detail = fmt::format("{} has ended{}", description_.name,
                              backend == nullptr ? "" : "; another process has taken its place");
    std::vector<std::string> running;
    for (const auto& [call_id, call] : calls_) {
      if (call.phase == Phase::kRunning || call.phase == Phase::kFailing) {
        running.push_back(call_id);
      }
    }
    for (const std::string& call_id : running) {
      auto at = calls_.find(call_id);
      if (at == calls_.end()) continue;
      EndForDeadProcess(at->second, exit);
      if (alive.expired()) return;
    }
    client_sessions_.Clear();
    old.reset();
    if (!was_over) OnBackendDown(std::move(exit));
    if (alive.expired()) return;
  }
  description_ = std::move(description);
  BeginSession(std::move(backend));
  SeatChanged();
}

void McpSeat::UpdateDescription(SeatDescription description) {
  description_ = std::move(description);
  SeatChanged();
}

void McpSeat::Stop(absl::AnyInvocable<void()> done) {
  if (session_ == nullptr) {
    done();
    return;
  }
  queue_.SetOpen(false);
  session_->backend().Stop(std::move(done));
}

// ---- the backend ------------------------------------------------------------------------------

void McpSeat::OnBackendUp() {
  const uint64_t former = incarnation_;
  incarnation_ = next_incarnation_ ? next_incarnation_(session_->backend().pid()) : former + 1;
  process_over_ = false;
  probe_misses_ = 0;
  if (incarnation_ != former) {
    session_->ForgetEra();
    RefuseWrongIncarnations();
    // Whatever an earlier run had left at work has ended with its process.
    if (main_busy_ && former != 0) FreeMainLane();
  }
  const absl::Time now = loop_.Now();
  health_.SetProcess(session_->backend().pid() != 0 ? v1::HEALTHY : v1::NOT_KNOWN, now);
  health_.SetEndpoint(v1::HEALTHY, now);
  ReportHealth();
  SeatChanged();
}

void McpSeat::OnSessionReady() {
  core::LogInfo("seat_up", {{"seat", description_.name},
                            {"instance", description_.seat_id},
                            {"incarnation", incarnation_},
                            {"pid", session_->backend().pid()},
                            {"backend", session_->backend().description()},
                            {"revision", session_->server().revision}});
  health_.SetReason("");
  queue_.SetOpen(true);
  watcher_.Attach(session_.get());
  level_set_.clear();
  subscribed_.clear();
  ApplyInterest();
  if (main_busy_ && busy_probe_ == 0) AssumeBusy();
  // What changed while there was no session, nobody has told; of tools the digest does.
  for (const char* list : {"prompts", "resources"}) {
    if (core::FindPath(session_->server().capabilities, {list, "listChanged"}) != "true") continue;
    TellLater([this, method = fmt::format("notifications/{}/list_changed", list)] {
      seats_.OnNotice(description_.seat_id, method, "");
    });
  }
  SchedulePump();
  ReportHealth();
  SeatChanged();
  if (std::exchange(was_ready_, true)) OnBackendRejoined();
}

void McpSeat::OnEraKnown() {
  SeatChanged();
  ListenModern();
}

void McpSeat::OnInitializeFailed(std::string why) {
  constexpr size_t kReasonMax = 512;
  if (why.size() > kReasonMax) why.resize(kReasonMax);
  if (health_.SetReason(std::move(why))) SeatChanged();
}

// Whoever follows a job there should ask what has become of it.
void McpSeat::OnBackendRejoined() {
  if (description_.local_mcp_url.empty()) return;
  Tell([this] {
    seats_.OnNotice(description_.seat_id, "notifications/$/dcc.gatewayReconnect",
                    core::JsonObject().String("backend_url", description_.local_mcp_url).Take());
  });
}

void McpSeat::OnBackendDown(BackendExit exit) {
  auto alive = lifetime_.Watch();
  queue_.SetOpen(false);
  watcher_.Detach();
  listen_.Stop();
  busy_probe_ = 0;
  if (exit.process_ended) process_over_ = true;
  std::vector<std::string> failing;
  for (const auto& [call_id, call] : calls_) {
    const bool runs_elsewhere =
        call.phase == Phase::kRunning && (!call.session.empty() || call.round.open > 0);
    if (call.phase == Phase::kFailing || runs_elsewhere) failing.push_back(call_id);
  }
  client_sessions_.Clear();
  for (const std::string& call_id : failing) {
    auto at = calls_.find(call_id);
    if (at == calls_.end()) continue;
    EndForDeadProcess(at->second, exit);
    if (alive.expired()) return;
  }
  const absl::Time now = loop_.Now();
  health_.SetReason(exit.detail);
  if (exit.process_ended) {
    if (main_busy_) FreeMainLane();
    RefuseWrongIncarnations();
    health_.SetProcess(v1::GONE, now);
  }
  if (health_.SetEndpoint(exit.process_ended ? v1::GONE : v1::UNRESPONSIVE, now)) {
    core::LogInfo("seat_down", {{"seat", description_.name},
                                {"instance", description_.seat_id},
                                {"incarnation", incarnation_},
                                {"reason", exit.detail}});
  }
  ReportHealth();
  SeatChanged();
}

// ---- the main lane after a restart of the agent -----------------------------------------------

void McpSeat::AssumeBusy() {
  main_busy_ = true;
  queue_.SetMainOpen(false);
  if (!busy_timer_.pending()) {
    busy_timer_ = loop_.After(limits_.busy_probe_timeout, [this] { FreeMainLane(); });
  }
  if (busy_probe_ == 0 && session_ != nullptr && session_->up()) {
    busy_probe_ = session_->Request("ping", Payload(), false, [this](McpReply reply) {
      busy_probe_ = 0;
      if (reply.kind != McpReply::Kind::kFailed) FreeMainLane();
    });
  }
  loop_.Post(lifetime_.Wrap([this] { ReportHealth(); }));
}

void McpSeat::FreeMainLane() {
  main_busy_ = false;
  busy_timer_.Cancel();
  queue_.SetMainOpen(true);
  SchedulePump();
}

// ---- state ------------------------------------------------------------------------------------

void McpSeat::SetCordon(bool cordoned) {
  cordoned_ = cordoned;
  SeatChanged();
}

void McpSeat::ScheduleProbe() {
  probe_timer_ = loop_.After(limits_.probe_every, [this] {
    ScheduleProbe();
    const bool idle = std::none_of(calls_.begin(), calls_.end(),
                                   [](const auto& entry) { return entry.second.slot; });
    if (session_ == nullptr || !session_->up() || !idle) return;
    session_->backend().Probe(lifetime_.Wrap([this](bool answers) {
      if (session_ == nullptr || !session_->up()) return;
      probe_misses_ = answers ? 0 : probe_misses_ + 1;
      const bool changed = answers ? health_.SetEndpoint(v1::HEALTHY, loop_.Now())
                                   : probe_misses_ >= limits_.probe_misses_max &&
                                         health_.SetEndpoint(v1::UNRESPONSIVE, loop_.Now());
      if (changed) SeatChanged();
    }));
  });
}

void McpSeat::ReportHealth() {
  const bool serves = session_ != nullptr && session_->ready();
  v1::HealthState state = process_over_ ? (incarnation_ == 0 ? v1::NOT_KNOWN : v1::GONE)
                          : !serves     ? v1::NOT_KNOWN
                          : main_busy_  ? v1::BUSY
                                        : v1::HEALTHY;
  if (!process_over_) {
    for (const auto& [call_id, call] : calls_) {
      if (!call.slot || call.lane.lane == v1::FREE) continue;
      if (call.overran) {
        state = v1::UNRESPONSIVE;
        break;
      }
      state = v1::BUSY;
    }
  }
  if (!health_.SetMainThread(state, loop_.Now())) return;
  if (state == v1::UNRESPONSIVE || state == v1::GONE) {
    SeatChanged();
  } else {
    ReportSoon();
  }
}

void McpSeat::ReportSoon() {
  if (busy_report_timer_.pending()) return;
  busy_report_timer_ = loop_.After(limits_.busy_report_delay, [this] {
    queue_told_ = queue_.waiting();
    SeatChanged();
  });
}

void McpSeat::SeatChanged() {
  TellLater([this] { seats_.OnSeatChanged(description_.seat_id); });
}

v1::SeatState McpSeat::State() const {
  v1::SeatState state;
  state.set_seat_id(description_.seat_id);
  state.set_incarnation(incarnation_);
  state.set_name(description_.name);
  state.set_app(description_.app);
  state.set_version(description_.version);
  state.set_scene(description_.scene);
  state.set_instance_id(description_.instance_id);
  state.set_local_mcp_url(description_.local_mcp_url);
  state.set_discovery_row(description_.discovery_row);
  for (const auto& [key, value] : description_.labels) (*state.mutable_labels())[key] = value;
  *state.mutable_health() = health_.Report(loop_.Now());
  if (state.health().reason().empty()) state.mutable_health()->set_reason(watcher_.trouble());
  for (const auto& [call_id, call] : calls_) {
    if (call.slot) state.add_running(call_id);
  }
  state.set_queue_depth(static_cast<uint32_t>(queue_.waiting()));
  state.set_catalogue_digest(watcher_.digest());
  if (session_ != nullptr) {
    if (!process_over_) state.set_pid(session_->backend().pid());
    state.set_capabilities(session_->server().capabilities);
    state.set_modern_capabilities(session_->modern_capabilities());
    state.set_server_info(session_->server().server_info);
    state.set_instructions(session_->server().instructions);
    state.set_description_rest(session_->server().rest);
  }
  return state;
}

}  // namespace callboard::agent
