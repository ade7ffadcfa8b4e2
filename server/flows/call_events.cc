// CallFlow, from the agent: events of calls, their streams, the bodies of their outcomes.
#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/planted_bug.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/client_capabilities.h"
#include "server/flows/invoke_source.h"

namespace callboard::server {
namespace {

constexpr size_t kAsksMax = 64;
constexpr size_t kInlineMax = 64 << 10;
constexpr absl::Duration kStatusEvery = absl::Seconds(1);
// A queued call's place is told when it changes, and at least this often: clients measure silence.
constexpr absl::Duration kNoteEvery = absl::Seconds(5);
constexpr absl::Duration kFirstNoteAfter = absl::Milliseconds(250);  // a short wait is no news

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
    call->body.restarting = false;
    if (event.outcome().body().size() != call->body.size) call->body.lost = true;
    return WakeReader(*call);
  }
  if (event.n() <= call->have_n || call->event_body.active) return;  // known already
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
  Execution* record = plane_.executions.Find(id);
  const bool over = (event.has_outcome() && !event.outcome().open()) || event.has_closed();
  if (record != nullptr && event.has_outcome()) {
    const Ending ending = EndingOf(event.outcome());
    plane_.executions.End(*record, ending, Now());
    ended_hook_(id);
  }
  if (over) {
    if (const auto mine = orphans_.find(link.agent_id()); mine != orphans_.end()) {
      mine->second.erase(id);
    }
    if (record != nullptr) record->settled = true;
    return link.Settle(id);
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
  v1::AckEntry entry;
  entry.set_call_id(id.str());
  entry.set_attempt(event.attempt());
  entry.set_n(event.n());
  link.outbox().AckRaw(std::move(entry));
  link.ScheduleFlush();
}

void CallFlow::OnChunk(AgentSession& link, v1::Chunk& chunk) {
  const auto id = CallId::From(chunk.call_id());
  if (!id) return;
  LiveCall* call = Find(*id);
  if (!MayTellOf(link, *id, call)) return;
  if (call == nullptr) {
    const Execution* record = plane_.executions.Find(*id);
    if (record != nullptr && record->settled) return;
    v1::AckEntry entry;
    entry.set_call_id(chunk.call_id());
    entry.set_attempt(chunk.attempt());
    entry.set_n(chunk.n() - 1);
    entry.set_offset(chunk.offset() + chunk.bytes().size());
    link.outbox().AckRaw(std::move(entry));
    return link.ScheduleFlush();
  }
  if (chunk.attempt() != call->attempt) return;
  const bool of_outcome = call->outcome_seen && chunk.n() == call->outcome_n;
  const bool of_event = call->event_body.active && chunk.n() == call->have_n + 1;
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
        if (Session* session = plane_.sessions.Find(call.request.session_id());
            session != nullptr && !call.ended) {
          ++session->started_calls;
        }
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
      return Publish(call, n, "notifications/progress", std::move(params));
    }
    case v1::CallEvent::kLog:
      call.have_n = n;
      if (const Session* session = plane_.sessions.Find(call.request.session_id());
          session != nullptr && !WantsLog(*session, event.log().inline_())) {
        return AckLater(call);
      }
      return Publish(call, n, "notifications/message",
                     std::move(*event.mutable_log()->mutable_inline_()));
    case v1::CallEvent::kNotification:
      call.have_n = n;
      if (event.notification().ask_n() != 0) return TakeAskBack(call, n, event.notification());
      return Publish(call, n, event.notification().method(),
                     std::move(*event.mutable_notification()->mutable_params()->mutable_inline_()));
    case v1::CallEvent::kAsk:
      call.have_n = n;
      return TakeAsk(call, n, *event.mutable_ask(),
                     std::move(*event.mutable_ask()->mutable_params()->mutable_inline_()));
    case v1::CallEvent::kOutcome:
      return TakeOutcome(call, event);
    case v1::CallEvent::kClosed: {
      call.have_n = n;
      call.job_open = false;
      Execution* record = plane_.executions.Find(call.id);
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
  const bool gone = outcome.class_() == v1::LOST && outcome.reason() >= v1::AGENT_RESTARTED &&
                    outcome.reason() <= v1::BACKEND_CONNECTION_LOST;
  const absl::Duration delay = RetryDelay(call.attempt);
  if (gone && MayRetry(call, delay) && call.cancel_by == absl::InfiniteFuture()) {
    return Retry(call, delay,
                 outcome.facts().detail().empty() ? "what it was running on is gone"
                                                  : outcome.facts().detail());
  }
  if (outcome.reason() == v1::WRONG_INCARNATION) {
    if (Session* session = plane_.sessions.Find(call.request.session_id())) {
      session->pins.erase(call.seat_id);
    }
  }
  const Ending ending = EndingOf(outcome);
  v1::CallOutcome told = MakeOutcome(call, ending);
  *told.mutable_facts() = std::move(*outcome.mutable_facts());
  if (outcome.has_body()) *told.mutable_body() = std::move(*outcome.mutable_body());
  End(call, ending, std::move(told));
}

// ---- asks ---------------------------------------------------------------------------------------

void CallFlow::TakeAsk(LiveCall& call, uint64_t n, v1::Ask& ask, std::string params) {
  const Session* session = plane_.sessions.Find(call.request.session_id());
  if (session != nullptr && !MayBeAsked(*session, ask.method())) {
    AckLater(call);
    return AnswerAsk(
        call, n, "",
        core::MakeErrorObject(core::kMethodNotFound,
                              fmt::format("the client does not offer '{}'", ask.method())));
  }
  if (call.ended || session == nullptr || call.asks.size() >= kAsksMax || !OpenStream(call) ||
      call.stream->reader == nullptr) {
    AckLater(call);
    return AnswerAsk(
        call, n, "",
        core::MakeErrorObject(core::kServerError,
                              fmt::format("the client cannot be asked ({}) now", ask.method())));
  }
  call.asks.insert(n);
  v1::AskEvent event;
  event.set_ask_id(AskId(call, n));
  event.set_method(ask.method());
  event.set_params(std::move(params));
  Append(call, {std::move(event), n});
}

// The backend no longer wants an answer. Nothing is told of an ask that is answered already.
void CallFlow::TakeAskBack(LiveCall& call, uint64_t n, const v1::MethodEvent& cancelled) {
  if (call.asks.erase(cancelled.ask_n()) == 0) return AckLater(call);
  Publish(call, n, cancelled.method(),
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

// ---- streams ------------------------------------------------------------------------------------

bool CallFlow::OpenStream(LiveCall& call) {
  if (call.stream != nullptr) return true;
  if (call.request.never_open_stream() || call.source == nullptr || call.ended) return false;
  call.accept_at = absl::InfiniteFuture();
  std::shared_ptr<Stream> stream;
  if (Session* session = plane_.sessions.Find(call.request.session_id())) {
    stream = plane_.sessions.AddStream(*session, call.id.str());
  } else {
    stream = plane_.sessions.MakeLooseStream();
    stream->call_id = call.id.str();
  }
  if (stream == nullptr) {  // too many: the call goes on with its outcome alone
    call.request.set_never_open_stream(true);
    return false;
  }
  call.stream = stream;
  ShowStatus(call);
  call.source->Accept(std::move(stream), plane_.term);
  return true;
}

void CallFlow::Publish(LiveCall& call, uint64_t n, const std::string& method, std::string params) {
  if (call.ended || !OpenStream(call)) return AckLater(call);
  v1::StreamEvent event;
  event.set_method(method);
  event.set_params(std::move(params));
  Append(call, {std::move(event), n});
  // Without a reader it is stored, which counts as consumed.
  if (call.stream->reader == nullptr) AckLater(call);
}

void CallFlow::Append(LiveCall& call, StreamItem item) {
  plane_.sessions.Append(*call.stream, std::move(item));
  WakeReader(call);
}

void CallFlow::WakeReader(LiveCall& call) {
  if (call.stream != nullptr) {
    if (call.stream->reader != nullptr) call.stream->reader->Wake();
  } else if (call.source != nullptr) {
    call.source->WakeBody();
  }
}

void CallFlow::SetPhase(LiveCall& call, v1::CallPhase phase, std::string message) {
  Execution* record = plane_.executions.Find(call.id);
  if (call.ended || record == nullptr) return;
  record->phase = phase;
  record->ahead = phase == v1::CALL_QUEUED ? call.ahead : 0;
  record->message = std::move(message);
  if (call.stream == nullptr || call.source == nullptr) return;
  if (Now() >= call.last_status + kStatusEvery) {
    ShowStatus(call);
  } else {
    held_statuses_.insert(call.order);
  }
}

void CallFlow::ShowStatus(LiveCall& call) {
  const Execution* record = plane_.executions.Find(call.id);
  if (call.ended || call.source == nullptr || record == nullptr) return;
  call.last_status = Now();
  v1::CallStatus status;
  status.set_phase(record->phase);
  status.set_ahead(record->ahead);
  status.set_attempt(call.attempt);
  status.set_attempts_max(call.idempotent ? 3 : 1);
  status.set_message(record->message);
  call.source->SetStatus(std::move(status));
}

void CallFlow::NoteSoon(LiveCall& call) {
  if (!call.request.progress_token().empty() && !call.ever_started) {
    call.note_at = std::max(Now() + kFirstNoteAfter, call.last_note + kStatusEvery);
  }
  Arm(call);
}

void CallFlow::NoteQueue(LiveCall& call) {
  const bool away = agents_->LinkOf(call.agent_id) == nullptr;
  const bool waits = call.queued || away;
  call.note_at = waits ? Now() + kNoteEvery : absl::InfiniteFuture();
  // On its way to the agent again, or its tool has told progress in another attempt.
  if (!waits || call.ever_started) return;
  call.last_note = Now();
  ++call.notes;
  std::string message = away              ? "waiting for the seat's agent to connect"
                        : call.ahead == 0 ? std::string("queued: next in line")
                                          : fmt::format("queued: {} before this call", call.ahead);
  const SeatRecord* seat = plane_.seats.Find(call.seat_id);
  if (!away && seat != nullptr && seat->state.running_size() > 0) {
    const auto running = CallId::From(seat->state.running(0));
    const Execution* other = running ? plane_.executions.Find(*running) : nullptr;
    if (other != nullptr && !other->over() && other->started <= Now()) {
      message += fmt::format("; {} is busy with '{}' for {:.0f} s", seat->display_name,
                             other->tool.empty() ? other->method : other->tool,
                             absl::ToDoubleSeconds(Now() - other->started));
    }
  }
  // Progress has to grow with every note, and the tool's own begins at 0: so from -1 towards 0.
  std::string params =
      fmt::format(R"({{"progressToken":{},"progress":{:.6g},"message":{}}})",
                  call.request.progress_token(), -1.0 / call.notes, core::QuoteJson(message));
  Publish(call, 0, "notifications/progress", std::move(params));
}

// ---- what the sources ask for -------------------------------------------------------------------

std::optional<CallFlow::Piece> CallFlow::TakePiece(const CallId& id) {
  LiveCall* call = Find(id);
  if (call == nullptr || call->body.pieces.empty() || call->body.restarting) return std::nullopt;
  Piece piece;
  piece.bytes = std::move(call->body.pieces.front());
  call->body.pieces.pop_front();
  call->body.taken += piece.bytes.size();
  piece.last = call->body.taken == call->body.size;
  return piece;
}

CallFlow::BodyState CallFlow::StateOfBody(const CallId& id) const {
  const LiveCall* call = Find(id);
  if (call == nullptr || call->body.lost || call->body.size == 0) return BodyState::kGone;
  return call->body.restarting ? BodyState::kComing : BodyState::kReady;
}

CallFlow::BodyState CallFlow::PrepareBody(const CallId& id) {
  LiveCall* call = Find(id);
  const BodyState state = StateOfBody(id);
  if (state != BodyState::kReady || call->body.taken == 0) return state;
  // A part has gone to a reader that is no more: from the start, then.
  call->body.pieces.clear();
  call->body.received = call->body.taken = call->body.consumed = 0;
  call->body.restarting = true;
  call->acked_offset = 0;
  if (AgentSession* link = agents_->LinkOf(call->agent_id)) {
    Continue(*link, *call);
    link->ScheduleFlush();
  }
  return BodyState::kComing;
}

void CallFlow::OnConsumed(const CallId& id, uint64_t body_bytes) {
  LiveCall* call = Find(id);
  if (call == nullptr) return;
  if (body_bytes > 0) {
    call->body.consumed += body_bytes;
    call->window_used += body_bytes;
    const uint32_t most = plane_.config.limits.window_max;
    if (call->window_used >= call->window && call->window < most) {
      call->window = std::min(2 * call->window, most);
      call->window_used = 0;
      call->window_changed = true;
    }
  } else if (call->outcome_seen && call->body.size == 0) {
    return;  // a small outcome: settled, not acknowledged
  }
  AckLater(*call);
}

}  // namespace callboard::server
