// CallFlow, from the agent: events of calls, their streams, the bodies of their outcomes.
#include <algorithm>
#include <utility>

#include "core/mcp/elicitation.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/planted_bug.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/client_capabilities.h"

namespace callboard::server {
namespace {

// The body of an event other than its outcome; nullptr if it has none.
v1::Body* BodyOf(v1::CallEvent& event) {
  switch (event.kind_case()) {
    case v1::CallEvent::kProgress:
      return event.mutable_progress();
    case v1::CallEvent::kLog:
      return event.mutable_log();
    case v1::CallEvent::kAsk:
      return event.mutable_ask()->mutable_params();
    case v1::CallEvent::kNotification:
      return event.mutable_notification()->mutable_params();
    case v1::CallEvent::kJobUpdate:
      return event.mutable_job_update()->mutable_body();
    case v1::CallEvent::kClosed:
      return event.mutable_closed()->mutable_body();
    default:
      return nullptr;
  }
}

std::string AskId(const LiveCall& call, uint64_t n) {
  return fmt::format("{}.{}.{}", call.id.hex(), call.attempt, n);
}

// The end of a call as its agent tells it.
Ending EndingOf(const v1::Outcome& outcome) {
  Ending ending;
  ending.outcome = outcome.class_();
  ending.reason = outcome.reason();
  ending.certainty = outcome.certainty();
  ending.message = outcome.facts().detail();
  ending.is_error = outcome.facts().is_error();
  ending.queue_ms = outcome.queue_ms();
  ending.run_ms = outcome.run_ms();
  ending.backend_job_id = outcome.facts().backend_job_id();
  ending.from_agent = true;
  return ending;
}

// Of a call that is known by its receipt only.
v1::CallOutcome LateOutcome(const Execution& record, const v1::Outcome& outcome) {
  v1::CallOutcome late;
  late.set_call_id(record.call_id.str());
  late.set_client_request_id(record.client_request_id);
  late.set_class_(outcome.class_());
  late.set_reason(outcome.reason());
  late.set_certainty(outcome.certainty());
  *late.mutable_body() = outcome.body();
  *late.mutable_facts() = outcome.facts();
  late.set_queue_ms(outcome.queue_ms());
  late.set_run_ms(outcome.run_ms());
  late.set_message(outcome.facts().detail());
  return late;
}

}  // namespace

void CallFlow::OnCallEvent(AgentSession& link, v1::CallEvent& event) {
  const auto id = CallId::From(event.call_id());
  if (!id) return;
  LiveCall* call = Find(*id);
  if (!MayTellOf(link, *id, call)) return;
  if (call == nullptr) return OnStray(link, *id, event);
  if (event.attempt() != call->attempt) return;  // an attempt that is over
  if (call->outcome_seen && event.n() == call->outcome_n && event.has_outcome()) {
    // The header again, because the body was asked for anew.
    bodies_.OnHeader(*id, event);
    call->body.restarting = false;
    if (event.outcome().body().size() != call->body.size) call->body.lost = true;
    return WakeReader(*call);
  }
  if (event.n() <= call->have_n || call->event_body.active) return;  // known already
  // What a former control plane had acknowledged but not stored, progress, is gone over there.
  if (std::exchange(call->may_jump, false)) call->have_n = event.n() - 1;
  if (event.n() != call->have_n + 1) {
    // A hole: a fault of the peer, mended by asking for what is missing.
    Continue(link, *call);
    return link.ScheduleFlush();
  }
  v1::Body* body = BodyOf(event);
  if (body == nullptr || !body->has_size()) return TakeEvent(*call, event);
  call->event_body = {};
  call->event_body.active = true;
  call->event_body.size = body->size();
  call->event_body.dropped = body->size() > plane_.config.limits.params_bytes_max;
  call->event_body.event = std::move(event);
}

bool CallFlow::MayTellOf(AgentSession& link, const CallId& id, const LiveCall* call) const {
  const Execution* record = call == nullptr ? plane_.executions.Find(id) : nullptr;
  if (call == nullptr && record == nullptr) return true;
  const std::string& agent_id = call != nullptr ? call->agent_id : record->agent_id;
  if (agent_id == link.agent_id()) return true;
  link.Ignore("it is about a call of another agent");
  return false;
}

void CallFlow::OnStray(AgentSession& link, const CallId& id, const v1::CallEvent& event) {
  if (event.has_outcome() && bodies_.OnHeader(id, event)) return;
  Execution* record = plane_.executions.Find(id);
  const bool over = (event.has_outcome() && !event.outcome().open()) || event.has_closed();
  if (record != nullptr && event.has_outcome()) {
    if (!plane_.executions.End(*record, EndingOf(event.outcome()), Now())) {
      receipts_.KeepLate(*record, LateOutcome(*record, event.outcome()), event.n());
    }
    receipts_.Add(*record, false);
    ended_hook_(id);
    TellFollowers(id);
  }
  if (over) {
    if (const auto mine = orphans_.find(link.agent_id()); mine != orphans_.end()) {
      mine->second.erase(id);
    }
    if (record == nullptr) return link.Settle(id);
    record->settled = false;  // it came although it was told to forget: once more, then
    return SettleAtAgent(id, link.agent_id());
  }
  if (event.has_ask()) {
    // Whoever could be asked has gone with the control plane or the session that knew the call.
    v1::Answer& answer = *link.outbox().Control().mutable_answer();
    answer.set_call_id(id.str());
    answer.set_attempt(event.attempt());
    answer.set_ask_n(event.n());
    answer.mutable_error()->set_inline_(
        core::MakeErrorObject(core::kServerError, "the client of this call is gone"));
  }
  AckUnread(link, id, event.attempt(), event.n(), 0);
}

void CallFlow::AckUnread(AgentSession& link, const CallId& id, uint32_t attempt, uint64_t n,
                         uint64_t offset) {
  v1::AckEntry entry;
  entry.set_call_id(id.str());
  entry.set_attempt(attempt);
  entry.set_n(n);
  entry.set_offset(offset);
  link.outbox().AckRaw(std::move(entry));
  link.ScheduleFlush();
}

void CallFlow::OnChunk(AgentSession& link, v1::Chunk& chunk) {
  const auto id = CallId::From(chunk.call_id());
  if (!id) return;
  LiveCall* call = Find(*id);
  if (!MayTellOf(link, *id, call)) return;
  const bool read = call != nullptr && IsRead(*call);
  const bool coming = bodies_.coming(*id);
  if (coming) bodies_.OnChunk(*id, chunk, /*alone=*/!read);
  if (call == nullptr) {
    if (coming) return;
    const Execution* record = plane_.executions.Find(*id);
    if (record != nullptr && record->settled) return;
    return AckUnread(link, *id, chunk.attempt(), chunk.n() - 1,
                     chunk.offset() + chunk.bytes().size());
  }
  if (chunk.attempt() != call->attempt) return;
  const bool of_outcome = call->outcome_seen && chunk.n() == call->outcome_n;
  const bool of_event = call->event_body.active && chunk.n() == call->have_n + 1;
  if (of_outcome && coming && !read) {
    call->body.elsewhere = true;
    return;
  }
  uint64_t& received = of_outcome ? call->body.received : call->event_body.received;
  const uint64_t size = of_outcome ? call->body.size : call->event_body.size;
  // After a cut or a restart what is known already may come again.
  if ((!of_outcome && !of_event) || chunk.offset() > received || received >= size) return;
  const uint64_t known = received - chunk.offset();
  if (known >= chunk.bytes().size()) return;
  if (known > 0) chunk.mutable_bytes()->erase(0, known);
  if (chunk.bytes().size() > size - received) chunk.mutable_bytes()->resize(size - received);
  received += chunk.bytes().size();
  if (of_outcome) {
    // Nobody will ever read the body of an outcome that came after the caller was told.
    if (call->source == nullptr && call->stream == nullptr) {
      call->body.consumed = received;
      return AckLater(*call);
    }
    call->body.pieces.push_back(std::move(*chunk.mutable_bytes()));
    return WakeReader(*call);
  }
  EventBody& body = call->event_body;
  if (!body.dropped) body.bytes += chunk.bytes();
  AckLater(*call);
  if (received < size) return;
  v1::CallEvent event = std::move(body.event);
  if (!body.dropped) *BodyOf(event)->mutable_inline_() = std::move(body.bytes);
  const bool dropped = body.dropped;
  call->event_body = {};
  if (!dropped) return TakeEvent(*call, event);
  call->have_n = event.n();
  if (event.has_ask()) {
    AnswerAsk(
        *call, event.n(), "",
        core::MakeErrorObject(core::kServerError, "the request is too large to be passed on"));
  }
}

bool CallFlow::HearsLog(const LiveCall& call, std::string_view raw_params) const {
  if (call.request.has_client()) return WantsLog(call.request.log_level(), raw_params);
  const Session* session = plane_.sessions.Find(call.request.session_id());
  return session == nullptr || WantsLog(*session, raw_params);
}

void CallFlow::TakeEvent(LiveCall& call, v1::CallEvent& event) {
  const uint64_t n = event.n();
  switch (event.kind_case()) {
    case v1::CallEvent::kQueued:
      call.have_n = n;
      call.queued = true;
      call.ahead = event.queued().ahead();
      SetPhase(call, v1::CALL_QUEUED,
               fmt::format("{} before this one in the seat's queue", call.ahead));
      return NoteSoon(call);
    case v1::CallEvent::kStarted:
      call.have_n = n;
      if (!call.started) {
        // The queue has a budget of its own: the run counts from here, over all attempts.
        if (!call.ever_started && call.queued) call.sent_at = Now();
        call.started = call.ever_started = true;
        call.started_at = Now();
        if (!call.ended) CountStarted(call);
      }
      call.incarnation = event.started().incarnation();
      call.note_at = absl::InfiniteFuture();
      if (Execution* record = plane_.executions.Find(call.id)) {
        record->started = call.started_at;
        record->incarnation = call.incarnation;
        if (!record->over()) record->certainty = v1::RUNNING;
      }
      if (!call.ended && call.cancel_by != absl::InfiniteFuture()) {
        return EndOwn(call, v1::CANCELLED, call.cancel_reason, v1::RUNNING,
                      "cancelled; the tool may still be at work");
      }
      SetPhase(call, v1::CALL_WAITING, "the tool is at work");
      return Arm(call);
    case v1::CallEvent::kProgress: {
      call.have_n = n;
      if (call.request.progress_token().empty()) return AckLater(call);
      std::string params = core::SetMember(event.progress().inline_(), "progressToken",
                                           call.request.progress_token());
      if (n <= call.hold_to) {
        // A newer one may have been shown before the restart: its value must not fall.
        call.held_progress = {n, std::move(params)};
        return n == call.hold_to ? ReleaseHeld(call) : AckLater(call);
      }
      return Publish(call, n, "notifications/progress", std::move(params));
    }
    case v1::CallEvent::kLog:
      ReleaseHeld(call);
      call.have_n = n;
      if (!HearsLog(call, event.log().inline_())) return AckLater(call);
      return Publish(call, n, "notifications/message",
                     std::move(*event.mutable_log()->mutable_inline_()));
    case v1::CallEvent::kNotification:
      ReleaseHeld(call);
      call.have_n = n;
      if (event.notification().ask_n() != 0) return TakeAskBack(call, n, event.notification());
      if (event.notification().method() == core::kElicitationComplete) {
        return TakeElicited(call, n, event.notification().params().inline_());
      }
      return Publish(call, n, event.notification().method(),
                     std::move(*event.mutable_notification()->mutable_params()->mutable_inline_()));
    case v1::CallEvent::kAsk:
      ReleaseHeld(call);
      call.have_n = n;
      return TakeAsk(call, n, *event.mutable_ask(),
                     std::move(*event.mutable_ask()->mutable_params()->mutable_inline_()));
    case v1::CallEvent::kOutcome:
      return TakeOutcome(call, event);
    case v1::CallEvent::kClosed: {
      call.have_n = n;
      call.job_open = false;
      const Execution* record = plane_.executions.Find(call.id);
      if (record != nullptr && call.ended && call.source == nullptr && call.stream == nullptr) {
        return OnDelivered(call.id);
      }
      return;
    }
    case v1::CallEvent::kJobUpdate:
    case v1::CallEvent::KIND_NOT_SET:
      call.have_n = n;
      return AckLater(call);
  }
}

void CallFlow::TakeOutcome(LiveCall& call, v1::CallEvent& event) {
  ReleaseHeld(call);
  v1::Outcome& outcome = *event.mutable_outcome();
  call.outcome_seen = true;
  call.outcome_n = event.n();
  call.job_open = outcome.open();
  call.body = {};
  if (outcome.body().has_size()) {
    call.body.size = outcome.body().size();
  } else {
    call.have_n = event.n();
  }
  if (outcome.reason() == v1::DRAINING && !call.ended && !call.ever_started &&
      call.cancel_by == absl::InfiniteFuture()) {
    return AwaitSeat(call);
  }
  const bool gone = outcome.class_() == v1::LOST && outcome.reason() >= v1::AGENT_RESTARTED &&
                    outcome.reason() <= v1::BACKEND_CONNECTION_LOST;
  const absl::Duration delay = RetryDelay(call.attempt);
  if (gone && call.cancel_by == absl::InfiniteFuture() && MayRetry(call, delay)) {
    return Retry(call, delay,
                 outcome.facts().detail().empty() ? "what it was running on is gone"
                                                  : outcome.facts().detail());
  }
  if (RequiresInput(call, outcome)) return AskForInput(call, outcome.body().inline_());
  if (outcome.reason() == v1::WRONG_INCARNATION) {
    if (Session* session = plane_.sessions.Find(call.request.session_id())) {
      session->pins.erase(call.seat_id);
      durable_.TouchSession(*session);
    }
  }
  NoteElicitations(call, outcome);
  const Ending ending = EndingOf(outcome);
  v1::CallOutcome told = MakeOutcome(call, ending);
  *told.mutable_facts() = std::move(*outcome.mutable_facts());
  if (outcome.has_body()) *told.mutable_body() = std::move(*outcome.mutable_body());
  End(call, ending, std::move(told));
}

// ---- asks ---------------------------------------------------------------------------------------

void CallFlow::TakeAsk(LiveCall& call, uint64_t n, v1::Ask& ask, std::string params) {
  if (call.request.has_client()) return TakeAskOfParked(call, n, ask, std::move(params));
  // A former control plane has told it on the session's own stream, which counts no agent's events.
  if (call.asks.contains(n) || call.answers.contains(n)) return AckLater(call);
  const Session* session = plane_.sessions.Find(call.request.session_id());
  const auto refuse = [&](const std::string& error) {
    AckLater(call);
    AnswerAsk(call, n, "", error);
  };
  const auto not_now = [&] {
    refuse(core::MakeErrorObject(core::kServerError,
                                 fmt::format("the client cannot be asked ({}) now", ask.method())));
  };
  if (session == nullptr) return not_now();
  if (const auto refusal = RefusalOf(*session, ask.method(), params)) return refuse(*refusal);
  OpenStream(call);
  Stream* const stream = AskedOn(call);
  const bool gone =
      stream == nullptr || (stream->reader == nullptr && Now() >= AwaitedUntil(*stream));
  if (call.ended || gone || call.asks.size() >= kAsksMax) return not_now();
  call.asks.insert(n);
  if (ask.method() == "elicitation/create") {
    NoteElicitation(call.seat_id, session->id, params, call.id);
  }
  v1::AskEvent event;
  event.set_ask_id(AskId(call, n));
  event.set_method(ask.method());
  event.set_params(std::move(params));
  const bool on_own = stream != call.stream.get();
  durable_.Append(*stream, {std::move(event), on_own ? 0 : n, call.attempt},
                  DurableLog::Wait::kDurable);
  // Whoever finds the ask in a stream finds its call.
  if (call.recorded || on_own) Record(call);
  if (on_own) AckLater(call);
  AwaitClient(call);
}

// The backend no longer wants an answer. Nothing is told of an ask that is answered already.
void CallFlow::TakeAskBack(LiveCall& call, uint64_t n, const v1::MethodEvent& cancelled) {
  if (call.asks.erase(cancelled.ask_n()) == 0) return AckLater(call);
  call.unstored.erase(cancelled.ask_n());
  if (call.parked.erase(cancelled.ask_n()) > 0) {
    Record(call);
    TellInput(call);
    return AckLater(call);
  }
  TellAsked(call, n, cancelled.method(),
            core::SetMember(cancelled.params().inline_(), "requestId",
                            core::QuoteJson(AskId(call, cancelled.ask_n()))));
}

bool CallFlow::Answer(const std::string& session_id, const v1::AskAnswer& answer) {
  const std::string& ask_id = answer.ask_id();
  const auto id = CallId::FromHex(std::string_view(ask_id).substr(0, 32));
  LiveCall* call = id ? Find(*id) : nullptr;
  if (call == nullptr) return false;
  const bool own = call->request.session_id() == session_id;
  if (!own && !core::Planted(core::PlantedBug::kAnswerOfOthers)) return false;
  const std::string prefix = fmt::format("{}.{}.", call->id.hex(), call->attempt);
  if (!ask_id.starts_with(prefix)) return false;
  for (const uint64_t n : call->asks) {
    if (ask_id != prefix + std::to_string(n)) continue;
    call->asks.erase(n);
    AnswerAsk(*call, n, answer.result(), answer.error());
    if (call->recorded) Record(*call);
    return true;
  }
  return false;
}

size_t CallFlow::open_asks() const {
  size_t open = 0;
  for (const auto& [order, call] : calls_) open += call->asks.size();
  return open;
}

void CallFlow::AnswerAsk(LiveCall& call, uint64_t ask_n, const std::string& result,
                         const std::string& error) {
  v1::AskAnswer& answer = call.answers[ask_n];
  if (error.empty()) {
    answer.set_result(result);
  } else {
    answer.set_error(error);
  }
  AgentSession* link = agents_->LinkOf(call.agent_id);
  if (link != nullptr && call.step == CallStep::kSent) SendAnswer(*link, call, ask_n, answer);
  if (call.answers.size() > kAsksMax) call.answers.erase(call.answers.begin());
}

void CallFlow::SendAnswer(AgentSession& link, const LiveCall& call, uint64_t ask_n,
                          const v1::AskAnswer& said) {
  v1::Answer& answer = *link.outbox().Control().mutable_answer();
  answer.set_call_id(call.id.str());
  answer.set_attempt(call.attempt);
  answer.set_ask_n(ask_n);
  const bool is_error = !said.error().empty();
  const std::string& text = is_error ? said.error() : said.result();
  v1::Body& body = is_error ? *answer.mutable_error() : *answer.mutable_result();
  if (text.size() <= kInlineMax) {
    body.set_inline_(text);
  } else {
    body.set_size(text.size());
    link.outbox().AddBody(call.id, call.attempt, ask_n, std::make_shared<const std::string>(text));
  }
  link.ScheduleFlush();
}

}  // namespace callboard::server
