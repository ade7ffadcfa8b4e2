// CallFlow, towards the agent: dispatch, retries, and what becomes of calls when a link comes back.
#include <algorithm>
#include <utility>

#include "core/runtime/digest.h"
#include "core/runtime/planted_bug.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/client_capabilities.h"
#include "server/flows/invoke_source.h"

namespace callboard::server {
namespace {

constexpr uint32_t kAttemptsMax = 3;

// Clients without a session share one at a backend if they would say the same in initialize.
std::string SessionOfLike(const v1::ClientContext& client) {
  constexpr size_t kChars = 32;
  const std::string said = fmt::format("{}\n{}", client.capabilities(), client.client_info());
  return fmt::format("like-{}", core::Sha256Hex(said).substr(0, kChars));
}

uint64_t ToMillis(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(1, absl::ToInt64Milliseconds(duration)));
}

}  // namespace

LiveCall* CallFlow::Find(const CallId& id) const {
  auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

CallFlow::CallFlow(Plane& plane, DurableLog& durable, KeptBodies& bodies, Receipts& receipts,
                   SeatAudience& audience, ToolSelections& selections, Hook ended_hook,
                   Hook asked_hook)
    : plane_(plane),
      durable_(durable),
      bodies_(bodies),
      receipts_(receipts),
      audience_(audience),
      selections_(selections),
      request_state_(plane.config.request_state_key, plane.random),
      ended_hook_(std::move(ended_hook)),
      asked_hook_(std::move(asked_hook)) {
  durable_.OnReadable([this](Stream& stream) { OnReadable(stream); });
  receipts_.OnDurable([this](Execution& record) { OnReceipt(record); });
  bodies_.OnWritten(
      [this](const CallId& id, const KeptBodies::Wanted& wanted) { OnBodyWritten(id, wanted); });
  bodies_.OnOver([this](const CallId& id, const std::string& why) { OnBodyOver(id, why); });
}

void CallFlow::LeaveWaiting(const LiveCall& call) {
  auto waiting = waiting_.find(call.seat_id);
  if (call.step != CallStep::kWaiting || waiting == waiting_.end()) return;
  std::erase(waiting->second, call.order);
  if (waiting->second.empty()) waiting_.erase(waiting);
}

void CallFlow::CountStarted(LiveCall& call) {
  Session* session = plane_.sessions.Find(call.request.session_id());
  if (session != nullptr && !std::exchange(call.counted, true)) ++session->started_calls;
}

void CallFlow::UncountStarted(LiveCall& call) {
  Session* session = plane_.sessions.Find(call.request.session_id());
  if (std::exchange(call.counted, false) && session != nullptr) --session->started_calls;
}

bool CallFlow::StoreFirst(LiveCall& call, const std::string& journal_id) {
  // Of a round it is what the client has answered.
  const bool keyed = !call.request.idempotency_key().empty() || call.round.number() > 0;
  const bool known = call.recorded && call.recorded_journal == journal_id;
  if (keyed ? known && call.may_be_sent : known || !call.recorded) return false;
  call.step = CallStep::kStoring;
  call.journal_id = journal_id;
  Record(call);
  durable_.OnceDurable(lifetime_.Wrap([this, order = call.order, attempt = call.attempt] {
    auto found = calls_.find(order);
    if (found == calls_.end() || found->second->ended || found->second->attempt != attempt ||
        found->second->step != CallStep::kStoring) {
      return;
    }
    found->second->may_be_sent = true;
    Send(*found->second);
  }));
  return true;
}

void CallFlow::Send(LiveCall& call) {
  call.retry_at = absl::InfiniteFuture();
  if (call.params_lost) {
    return EndOwn(call, v1::REJECTED, v1::CONTROL_PLANE_RESTARTED, v1::NOT_STARTED,
                  "the control plane was restarted before the call was sent, and its params were "
                  "too large to be stored; nothing ran, call again");
  }
  const SeatRecord* seat = plane_.seats.Find(call.seat_id);
  AgentSession* link = agents_->LinkOf(call.agent_id);
  if (link == nullptr || seat == nullptr || seat->presence != Presence::kLinked) {
    call.step = CallStep::kWaiting;
    waiting_[call.seat_id].push_back(call.order);
    SetPhase(call, v1::CALL_CONNECTING, "waiting for the seat's agent to connect");
    return NoteSoon(call);
  }
  if (StoreFirst(call, agents_->Find(call.agent_id)->journal_id)) return;
  call.step = CallStep::kInOutbox;
  link->outbox().Dispatch(call.id);
  link->ScheduleFlush();
  SetPhase(call, v1::CALL_SENDING);
}

bool CallFlow::FillDispatch(const CallId& id, v1::Dispatch& dispatch,
                            std::shared_ptr<const std::string>& body) {
  LiveCall* call = Find(id);
  if (call == nullptr || call->ended || call->step != CallStep::kInOutbox) return false;
  const v1::InvokeRequest& request = call->request;
  const bool first = call->sent_at == absl::InfiniteFuture();
  if (first) call->sent_at = Now();
  call->step = CallStep::kSent;
  if (const AgentInfo* agent = agents_->Find(call->agent_id)) {
    call->journal_id = agent->journal_id;
  }
  dispatch.set_call_id(id.str());
  dispatch.set_attempt(call->attempt);
  dispatch.set_owner_term(plane_.term);
  dispatch.set_seat_id(call->seat_id);
  // What was meant for one process of the DCC does not reach another because the agent was
  // restarted meanwhile; only another attempt goes into whichever is there.
  dispatch.set_expect_incarnation(call->attempt == 1 ? call->expect_incarnation : 0);
  dispatch.set_method(request.method());
  body = call->params;
  if (call->round.number() > 0) {
    body = std::make_shared<const std::string>(RoundParams(*call));
    if (body->size() <= kInlineMax) {
      dispatch.mutable_params()->set_inline_(*std::exchange(body, {}));
    }
  } else if (body == nullptr) {
    dispatch.mutable_params()->set_inline_(request.params());
  }
  if (body != nullptr) dispatch.mutable_params()->set_size(body->size());
  dispatch.set_kind(v1::Dispatch::REQUEST);
  dispatch.set_lane(call->lane);
  dispatch.set_session_id(request.session_id());
  const absl::Duration left = call->sent_at + call->run_budget - Now();
  // In a round the time that it had for its first turn is over, most likely.
  dispatch.set_queue_ms(ToMillis(call->round.number() > 0
                                     ? std::min(call->queue_budget, left)
                                     : call->created + call->queue_budget - Now()));
  dispatch.set_run_ms(ToMillis(first ? call->run_budget : left));
  dispatch.set_idempotent(call->idempotent || call->round.number() > 0);
  dispatch.set_read_only(call->read_only);
  dispatch.set_idempotency_key(request.idempotency_key());
  dispatch.set_traceparent(request.traceparent());
  dispatch.set_tracestate(request.tracestate());
  dispatch.set_baggage(request.baggage());
  dispatch.set_wants_progress(!request.progress_token().empty());
  *dispatch.mutable_param_headers() = request.param_headers();
  *dispatch.mutable_client() = request.client();
  dispatch.mutable_client()->set_log_level(request.log_level());
  if (MayBeAsked(request.client())) dispatch.set_backend_session(SessionOfLike(request.client()));
  std::string principal = request.principal();
  if (const Session* session = plane_.sessions.Find(request.session_id())) {
    if (principal.empty()) principal = session->principal;
    SetClient(*session, dispatch);
  }
  dispatch.set_fair_key(principal.empty() ? request.session_id() : principal);
  dispatch.set_principal_display(std::move(principal));
  Arm(*call);
  return true;
}

bool CallFlow::MayRetry(const LiveCall& call, absl::Duration delay) {
  if (!call.idempotent || call.ended || call.params_lost) return false;
  if (call.tries() >= kAttemptsMax) {
    plane_.executions.metrics().RetriesExhausted();
    return false;
  }
  return Now() + delay < call.sent_at + call.run_budget;
}

absl::Duration CallFlow::RetryDelay(uint32_t attempt) {
  const absl::Duration base = absl::Milliseconds(attempt <= 1 ? 500 : 2000);
  return base * (0.75 + 0.5 * plane_.random.Unit());
}

// What is known of the attempt before it is forgotten.
void CallFlow::NextAttempt(LiveCall& call) {
  ++call.attempt;
  call.progress_muted = call.progress_muted || call.progress_lost;
  UncountStarted(call);
  call.hold_to = 0;
  call.held_progress.reset();
  call.queued = call.started = false;
  call.started_at = call.exit_by = absl::InfiniteFuture();
  call.have_n = call.acked_n = call.acked_offset = 0;
  call.event_body = {};
  call.outcome_seen = false;
  call.body = {};
  call.asks.clear();
  call.parked.clear();
  call.unstored.clear();
  call.answers.clear();
  if (Execution* record = plane_.executions.Find(call.id)) record->attempt = call.attempt;
}

void CallFlow::Retry(LiveCall& call, absl::Duration delay, const std::string& why) {
  plane_.executions.metrics().Retried();
  NextAttempt(call);
  TellInput(call);
  if (call.recorded) Record(call);
  // Whoever takes over knows how far the former attempt was shown to be.
  if (call.stream != nullptr) durable_.PutAll(*call.stream);
  SetPhase(call, v1::CALL_RETRYING,
           fmt::format("retry {} of {}: {}", call.tries(), kAttemptsMax, why));
  if (delay > absl::ZeroDuration()) {
    call.step = CallStep::kRetryWait;
    call.retry_at = Now() + delay;
  } else {
    Send(call);
  }
  Arm(call);
}

void CallFlow::AwaitSeat(LiveCall& call) {
  call.sent_at = absl::InfiniteFuture();
  call.have_n = call.acked_n = 0;
  call.event_body = {};
  call.outcome_seen = false;
  call.step = CallStep::kWaiting;
  waiting_[call.seat_id].push_back(call.order);
  SetPhase(call, v1::CALL_CONNECTING, "the seat's agent is stopping; waiting for it to come back");
  NoteSoon(call);
}

// ---- links that come and go ---------------------------------------------------------------------

void CallFlow::OnLinkDown(const std::string& agent_id) {
  bodies_.OnLinkDown(agent_id);
  for (auto& [order, call] : calls_) {
    if (call->agent_id != agent_id) continue;
    call->ack_waiting = false;
    call->window = plane_.config.limits.window;
    call->window_used = 0;
    if (call->ended) continue;
    if (call->step == CallStep::kInOutbox) {
      Send(*call);
    } else if (call->step == CallStep::kSent) {
      SetPhase(*call, v1::CALL_CONNECTING, "the link to the seat's agent is cut; waiting for it");
      NoteSoon(*call);
    }
  }
}

void CallFlow::OnLinkUp(const std::string& agent_id, AgentSession& link) {
  absl::flat_hash_map<CallId, uint32_t> held;  // call -> attempt
  const std::vector<v1::CallState> inventory = std::move(link.calls());
  for (const v1::CallState& state : inventory) {
    held[*CallId::From(state.call_id())] = state.attempt();
  }
  std::vector<uint64_t> missing;
  for (const auto& [order, call] : calls_) {
    if (call->agent_id != agent_id || call->step != CallStep::kSent) continue;
    auto found = held.find(call->id);
    if (found == held.end() || found->second < call->attempt) missing.push_back(order);
  }
  EndLostOrphans(agent_id, held, v1::AGENT_RESTARTED, "the agent came back without the call");
  for (const v1::CallState& state : inventory) GiveVerdict(link, state);
  for (const uint64_t order : missing) {
    auto found = calls_.find(order);
    if (found == calls_.end()) continue;
    const CallId id = found->second->id;
    OnMissing(*found->second, link.hello().journal_id());
    // An earlier attempt, which the agent holds, of a call that is over now.
    const LiveCall* call = Find(id);
    if (held.contains(id) && (call == nullptr || call->ended)) SettleAtAgent(id, agent_id);
  }
  for (const CallId& id : bodies_.ComingOf(agent_id)) {
    if (!held.contains(id)) bodies_.Lose(id, "its agent came back without it");
  }
  link.ScheduleFlush();
}

// Calls of a former control plane that the agent no longer holds.
void CallFlow::EndLostOrphans(const std::string& agent_id,
                              const absl::flat_hash_map<CallId, uint32_t>& held, v1::Reason reason,
                              std::string_view message) {
  std::set<CallId>& orphans = orphans_[agent_id];
  for (auto at = orphans.begin(); at != orphans.end();) {
    const CallId id = *at;
    if (held.contains(id)) {
      ++at;
      continue;
    }
    at = orphans.erase(at);
    Execution* record = plane_.executions.Find(id);
    if (record == nullptr || record->over()) continue;
    record->settled = true;
    receipts_.Add(*record, false);
    Ending ending;
    ending.outcome = v1::LOST;
    ending.reason = reason;
    ending.certainty = v1::UNKNOWN;
    ending.message = std::string(message);
    plane_.executions.End(*record, ending, Now());
    ended_hook_(id);
    TellFollowers(id);
  }
  if (orphans.empty()) orphans_.erase(agent_id);
}

void CallFlow::AddVerdict(AgentSession& link, const CallId& id, uint32_t attempt,
                          v1::Verdict::Decision decision, uint64_t have_n, uint64_t have_offset) {
  v1::Verdict& verdict = *link.outbox().Control().mutable_verdict();
  verdict.set_call_id(id.str());
  verdict.set_attempt(attempt);
  verdict.set_owner_term(plane_.term);
  verdict.set_decision(decision);
  verdict.set_have_n(have_n);
  verdict.set_have_offset(have_offset);
}

void CallFlow::Continue(AgentSession& link, const LiveCall& call) {
  for (const auto& [ask_n, answer] : call.answers) SendAnswer(link, call, ask_n, answer);
  if (call.outcome_seen && bodies_.coming(call.id)) {
    bodies_.FoundAt(call.id, call.attempt, call.outcome_n);
    if (!IsRead(call)) return PullBody(call.id);
  }
  if (call.outcome_seen && !call.body.complete()) {
    return AddVerdict(link, call.id, call.attempt, v1::Verdict::CONTINUE, call.outcome_n - 1,
                      call.body.received);
  }
  AddVerdict(link, call.id, call.attempt, v1::Verdict::CONTINUE, call.have_n,
             call.event_body.active ? call.event_body.received : 0);
}

void CallFlow::OnCallState(AgentSession& link, const v1::CallState& state) {
  if (!CallId::From(state.call_id())) return;
  GiveVerdict(link, state);
  link.ScheduleFlush();
}

void CallFlow::GiveVerdict(AgentSession& link, const v1::CallState& state) {
  const CallId id = *CallId::From(state.call_id());
  LiveCall* call = Find(id);
  if (!MayTellOf(link, id, call)) return;
  Execution* record = plane_.executions.Find(id);
  if (record == nullptr && call == nullptr) {
    // Of a control plane that may come back and ask for it.
    const std::string& owner = state.owner_plane();
    if (!owner.empty() && owner != plane_.config.control_plane_id) return;
    if (!plane_.executions.full()) {
      record = &plane_.executions.Open(id, Now());
      record->orphan = true;
      orphans_[link.agent_id()].insert(id);
      record->seat_id = state.seat().seat_id();
      record->incarnation = state.seat().incarnation();
      record->agent_id = link.agent_id();
      record->attempt = state.attempt();
      plane_.executions.SetPhase(*record, v1::CALL_WAITING, Now());
      record->certainty = state.phase() == v1::CallState::QUEUED ? v1::NOT_STARTED : v1::RUNNING;
      record->message = "dispatched by a control plane that is gone";
    }
    return AddVerdict(link, id, state.attempt(), v1::Verdict::CONTINUE);
  }
  if (record != nullptr && record->settled) {
    return AddVerdict(link, id, state.attempt(), v1::Verdict::SETTLE);
  }
  const bool finished = state.phase() == v1::CallState::FINISHED;
  if (call == nullptr) {
    if (bodies_.coming(id)) {
      bodies_.FoundAt(id, state.attempt(), finished ? state.last_n() : 1);
      if (finished) SettleAtAgent(id, link.agent_id());  // once it is here
      if (bodies_.coming(id)) return PullBody(id);
    }
    if (record->agent_outcome && state.phase() != v1::CallState::JOB) {
      // Without a verdict the agent keeps it until it is told to forget.
      return SettleAtAgent(id, link.agent_id());
    }
    const bool unwanted = record->over() && !finished &&
                          (record->outcome == v1::CANCELLED || record->outcome == v1::EXPIRED);
    return AddVerdict(link, id, state.attempt(),
                      unwanted ? v1::Verdict::CANCEL : v1::Verdict::CONTINUE);
  }
  const bool earlier = state.attempt() < call->attempt;
  if (!earlier && std::exchange(call->former, false)) Return(*call, state);
  if (earlier) {
    // The newer attempt is sent again, unless it is over.
    if (!call->ended) return;
    if (record != nullptr && !record->receipt_durable) return SettleAtAgent(id, link.agent_id());
    return AddVerdict(link, id, state.attempt(), v1::Verdict::SETTLE);
  }
  if (core::Planted(core::PlantedBug::kRerunAfterCut) && call->started && !call->ended) {
    call->idempotent = true;
    return Retry(*call, absl::ZeroDuration(), "link lost");
  }
  LeaveWaiting(*call);
  call->step = CallStep::kSent;
  call->journal_id = link.hello().journal_id();
  // A former run of the agent began that event and cannot end it; the number is free again.
  if (state.last_n() <= call->have_n) call->event_body = {};
  if (call->ended && !call->outcome_seen && !finished) {
    return AddVerdict(link, id, call->attempt, v1::Verdict::CANCEL, call->have_n);
  }
  Continue(link, *call);
  if (!call->ended && call->cancel_by != absl::InfiniteFuture()) {
    SendCancel(*call, v1::Cancel::CLIENT);
  }
  if (!call->ended) SetPhase(*call, call->started ? v1::CALL_WAITING : v1::CALL_QUEUED);
}

void CallFlow::OnMissing(LiveCall& call, const std::string& journal_id) {
  if (std::exchange(call.former, false)) {
    UncountStarted(call);
    call.queued = true;  // if it never started it was there
  }
  if (call.ended) {
    if (Execution* record = plane_.executions.Find(call.id)) record->settled = true;
    if (call.outcome_seen && !call.body.complete()) {
      call.body.lost = true;
      WakeReader(call);
    }
    return;
  }
  const bool never_started = call.journal_id == journal_id && !call.started;
  if (never_started && call.cancel_by != absl::InfiniteFuture()) {
    return EndOwn(call, v1::CANCELLED, call.cancel_reason,
                  call.ever_started ? v1::UNKNOWN : v1::NOT_STARTED, "cancelled before it started");
  }
  if (never_started) {
    // It was in the queue, and what it waited there does not count against its run.
    if (std::exchange(call.queued, false) && call.round.number() == 0) {
      call.sent_at = absl::InfiniteFuture();
    }
    call.have_n = call.acked_n = 0;
    call.event_body = {};
    return Send(call);
  }
  if (MayRetry(call, absl::ZeroDuration())) {
    return Retry(call, absl::ZeroDuration(), "the agent's journal is lost");
  }
  EndOwn(call, v1::LOST, v1::JOURNAL_LOST, v1::UNKNOWN,
         "journal lost: the agent came back with a new journal and cannot say whether the tool "
         "ran; look at the scene before calling again");
}

void CallFlow::OnSeatUp(const std::string& seat_id) {
  auto found = waiting_.find(seat_id);
  if (found == waiting_.end()) return;
  const std::vector<uint64_t> orders = std::move(found->second);
  waiting_.erase(found);
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  for (const uint64_t order : orders) {
    auto waiting = calls_.find(order);
    if (waiting == calls_.end() || waiting->second->ended) continue;
    LiveCall& call = *waiting->second;
    if (seat != nullptr && seat->agent_id != call.agent_id) {
      call.agent_id = seat->agent_id;
      if (Execution* record = plane_.executions.Find(call.id)) record->agent_id = call.agent_id;
    }
    Send(call);
  }
}

void CallFlow::OnSeatDown(const std::string& seat_id, const std::string& why) {
  auto found = waiting_.find(seat_id);
  if (found == waiting_.end()) return;
  const std::vector<uint64_t> orders = std::move(found->second);
  waiting_.erase(found);
  for (const uint64_t order : orders) {
    auto waiting = calls_.find(order);
    if (waiting == calls_.end() || waiting->second->ended) continue;
    LiveCall& call = *waiting->second;
    if (CertaintyNow(call) == v1::NOT_STARTED) {
      EndOwn(call, v1::REJECTED, v1::SEAT_OFFLINE, v1::NOT_STARTED,
             fmt::format("the seat went away before the call was sent: {}", why));
    } else {
      EndOwn(call, v1::LOST, v1::LINK_LOST, v1::UNKNOWN,
             fmt::format("the seat went away and the call cannot be sent again: {}", why));
    }
  }
}

void CallFlow::OnNewIncarnation(const std::string& seat_id, uint64_t incarnation) {
  for (auto& [order, call] : calls_) {
    if (call->seat_id != seat_id || call->ended || !call->started || call->outcome_seen ||
        call->incarnation >= incarnation) {
      continue;
    }
    // The agent knows better how it ended; it has a moment to say so.
    call->exit_by = Now() + absl::Seconds(1);
    Arm(*call);
  }
}

// ---- acknowledgements ---------------------------------------------------------------------------

std::pair<uint64_t, uint64_t> CallFlow::AckPoint(const LiveCall& call) const {
  // What the store may still lose of what a task asks stays at the agent.
  const uint64_t from = call.unstored.empty() ? 0 : *call.unstored.begin();
  if (from != 0 && from <= call.have_n) return {from - 1, 0};
  if (const Stream* stream = call.stream.get(); stream != nullptr) {
    const auto readable = static_cast<uint64_t>(std::max<int64_t>(0, stream->readable));
    uint64_t done = stream->log.last();
    if (stream->reader != nullptr) {
      // What the reader has not done with stays at the agent.
      const StreamPosition consumed = stream->reader->consumed();
      done = consumed.term == plane_.term ? consumed.n : 0;
    }
    // And so does what the store may still lose, but for progress.
    if (readable < stream->barrier) {
      if (readable < stream->log.floor()) return {call.acked_n, call.acked_offset};
      done = std::min(done, readable);
    }
    const StreamItem* left = stream->log.Find(done + 1);
    while (left != nullptr && left->call_n == 0) left = stream->log.Find(++done + 1);
    if (left != nullptr && left->attempt == call.attempt) return {left->call_n - 1, 0};
  }
  if (call.outcome_seen && call.body.size > 0) return {call.outcome_n - 1, call.body.consumed};
  return {call.have_n, call.event_body.active ? call.event_body.received : 0};
}

void CallFlow::AckLater(LiveCall& call) {
  if (call.ack_waiting || call.step != CallStep::kSent) return;
  AgentSession* link = agents_->LinkOf(call.agent_id);
  if (link == nullptr) return;
  call.ack_waiting = true;
  link->outbox().AckCall(call.id);
  link->ScheduleFlush();
}

bool CallFlow::FillAck(const CallId& id, v1::AckEntry& entry) {
  LiveCall* call = Find(id);
  if (call == nullptr || !call->ack_waiting) return false;
  call->ack_waiting = false;
  const auto [n, offset] = AckPoint(*call);
  if (n == call->acked_n && offset == call->acked_offset && !call->window_changed) return false;
  if (core::Planted(core::PlantedBug::kLostAck) && offset > 0) return false;
  call->acked_n = n;
  call->acked_offset = offset;
  entry.set_call_id(id.str());
  entry.set_attempt(call->attempt);
  entry.set_n(n);
  entry.set_offset(offset);
  if (std::exchange(call->window_changed, false)) entry.set_window(call->window);
  return true;
}

}  // namespace callboard::server
