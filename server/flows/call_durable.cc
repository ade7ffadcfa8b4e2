// CallFlow, across restarts: what the store is told of a call, and calls a former control plane
// began.
#include <algorithm>
#include <utility>

#include "core/mcp/jsonrpc.h"
#include "core/runtime/milliseconds.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/store_key.h"

namespace callboard::server {
namespace {

// More notes of its place than a call can have been told by one control plane.
constexpr uint32_t kNotesOfATerm = 1'000;
// An answer beyond this is not stored: after a restart the ask ends with an error, unless its agent
// has the answer.
constexpr size_t kAnswerStoredMax = 1 << 20;

}  // namespace

// ---- what the store is told ---------------------------------------------------------------------

void CallFlow::Record(LiveCall& call, bool all_stored) {
  const bool sending = call.step == CallStep::kSent || call.step == CallStep::kInOutbox ||
                       call.step == CallStep::kStoring;
  if (call.step == CallStep::kStoring || (sending && !call.journal_id.empty())) {
    call.recorded_journal = call.journal_id;
  } else if (const AgentInfo* agent = agents_->Find(call.agent_id);
             !call.recorded && agent != nullptr && agent->link != nullptr) {
    call.recorded_journal = agent->journal_id;
  }
  call.recorded = true;
  v1::CallRecord record;
  *record.mutable_request() = call.request;
  if (call.params != nullptr) record.set_params_bytes(call.params->size());
  if (const Execution* execution = plane_.executions.Find(call.id)) {
    *record.mutable_call() = ToProto(*execution, Now());
    record.set_arguments_digest(execution->arguments_digest);
  }
  record.mutable_call()->set_attempt(call.attempt);
  record.mutable_call()->set_seat_id(call.seat_id);
  record.set_agent_id(call.agent_id);
  record.set_journal_id(call.recorded_journal);
  if (call.stream != nullptr && !call.stream->session_id.empty()) {
    record.set_stream(call.stream->number);
    record.set_stream_term(call.stream->first_term);
  }
  record.set_lane(call.lane);
  record.set_read_only(call.read_only);
  record.set_idempotent(call.idempotent);
  record.set_expect_incarnation(call.expect_incarnation);
  record.set_queue_ms(core::ToMillis(call.queue_budget));
  record.set_run_ms(core::ToMillis(call.run_budget));
  record.set_created_unix_ms(plane_.UnixMs(call.created));
  if (call.sent_at != absl::InfiniteFuture()) record.set_sent_unix_ms(plane_.UnixMs(call.sent_at));
  for (const uint64_t ask : call.asks) record.add_asks(ask);
  for (const auto& [ask_n, answer] : call.answers) {
    v1::AskAnswer& stored = *record.add_answers();
    if (answer.ByteSizeLong() <= kAnswerStoredMax) {
      stored = answer;
    } else {
      stored.set_error(core::MakeErrorObject(
          core::kServerError,
          "the control plane was restarted before the client's answer had reached the tool, and "
          "the answer was too large to be kept"));
    }
    stored.set_ask_id(std::to_string(ask_n));
  }
  for (const auto& [ask_n, request] : call.parked) (*record.mutable_parked())[ask_n] = request;
  record.set_job(call.job);
  if (call.was_parked || call.as_task) record.set_parked_binding(call.parked_binding);
  record.set_as_task(call.as_task);
  if (call.round.number() > 0) *record.mutable_round() = call.round;
  record.set_outcome_n(call.outcome_n);
  record.set_job_open(call.job_open);
  if (call.cancel_by != absl::InfiniteFuture()) record.set_cancel_reason(call.cancel_reason);
  record.set_queue_notes(call.notes);
  record.set_progress_muted(call.progress_muted);
  record.set_all_stored(all_stored);
  if (all_stored) record.set_have_n(call.have_n);
  durable_.Put(StoreKey::OfCall(call.id), record.SerializeAsString());
}

void CallFlow::Keep(const CallId& id, absl::AnyInvocable<void(absl::Status)> kept) {
  LiveCall* call = Find(id);
  if (call == nullptr || call->ended || call->job_stored) return kept(absl::OkStatus());
  if (!std::exchange(call->job, true)) Record(*call);
  durable_.WhenDurable(
      lifetime_.Wrap([this, id, kept = std::move(kept)](const absl::Status& status) mutable {
        LiveCall* stored = Find(id);
        if (status.ok() && stored != nullptr) stored->job_stored = true;
        kept(status);
      }));
}

void CallFlow::PutAll() {
  for (const auto& [order, call] : calls_) {
    // What a former control plane has shown beyond the store is not known until its agent has told
    // all of that again.
    const bool known = (!call->former || call->all_stored) && call->have_n >= call->hold_to;
    if (known) ReleaseHeld(*call);
    if (call->ended) continue;
    // An event that is half here comes again.
    Record(*call, /*all_stored=*/known);
  }
  for (const auto& [id, session] : plane_.sessions.all()) {
    for (const auto& [number, stream] : session->streams) durable_.PutAll(*stream);
    durable_.TouchSession(*session);
  }
}

// ---- calls of a former control plane ------------------------------------------------------------

void CallFlow::Restore(const CallId& id, const v1::CallRecord& record, const StoredEvents& events,
                       const StoredOutcome* outcome) {
  Execution* execution = plane_.executions.Find(id);
  const bool has_receipt = execution != nullptr && execution->over();
  Session* session = plane_.sessions.Find(record.request().session_id());
  std::shared_ptr<Stream> stream;
  if (session != nullptr && record.stream() != 0) {
    auto found = session->streams.find(record.stream());
    if (found != session->streams.end()) stream = found->second;
  }
  const bool ended = stream != nullptr ? stream->finished : outcome != nullptr;
  const bool body_waits = ended && stream != nullptr && outcome->outcome.body().has_size();
  if (has_receipt && !body_waits) return durable_.Put(StoreKey::OfCall(id), "");
  if (!record.request().session_id().empty() && session == nullptr) {
    // The session's end was stored, the call's was not: whatever the agent holds is an orphan.
    return durable_.Put(StoreKey::OfCall(id), "");
  }

  auto owned = std::make_unique<LiveCall>();
  LiveCall& call = *owned;
  call.id = id;
  call.request = record.request();
  call.seat_id = record.call().seat_id();
  call.agent_id = record.agent_id();
  call.journal_id = call.recorded_journal = record.journal_id();
  call.recorded = call.may_be_sent = true;
  call.job = call.job_stored = record.job();
  call.tool = record.call().tool();
  call.read_only = record.read_only();
  call.idempotent = record.idempotent();
  call.lane = record.lane();
  call.expect_incarnation = record.expect_incarnation();
  call.queue_budget = core::FromMillis(record.queue_ms());
  call.run_budget = core::FromMillis(record.run_ms());
  call.created = std::min(Now(), plane_.FromUnixMs(record.created_unix_ms()));
  call.hard_at =
      call.created + call.queue_budget + call.run_budget + plane_.config.budgets.upper_wait_margin;
  call.attempt = std::max<uint32_t>(1, record.call().attempt());
  call.window = plane_.config.limits.window;
  call.have_n = record.all_stored() ? std::max(events.have_n, record.have_n()) : events.have_n;
  call.shown_progress = events.progress;
  call.progress_muted = record.progress_muted();
  call.ever_started = events.have_n > 0 || call.attempt > 1;
  call.stream = stream;
  if (execution == nullptr) {
    execution = &plane_.executions.Open(id, call.created);
    execution->seat_id = call.seat_id;
    execution->agent_id = call.agent_id;
    execution->incarnation = record.call().incarnation();
    execution->session_id = call.request.session_id();
    execution->principal = record.call().principal();
    execution->client_request_id = call.request.client_request_id();
    execution->method = call.request.method();
    execution->tool = call.tool;
    execution->attempt = call.attempt;
    execution->certainty = v1::UNKNOWN;
    if (!call.request.idempotency_key().empty()) {
      plane_.executions.SetKey(*execution, KeyScope(call, session), call.request.idempotency_key(),
                               record.arguments_digest());
    }
  }
  call.order = execution->order;
  calls_.emplace(call.order, std::move(owned));
  by_id_[id] = &call;
  if (ended) return RestoreEnded(call, record, *outcome);
  if (session != nullptr) {
    session->calls.insert(call.order);
    if (!call.request.client_request_id().empty()) {
      plane_.requests.Add(session->id, call.request.client_request_id(), id);
    }
  }
  RestoreOpen(call, record);
}

void CallFlow::RestoreEnded(LiveCall& call, const v1::CallRecord& record,
                            const StoredOutcome& stored) {
  Execution& execution = *plane_.executions.Find(call.id);
  call.ended = true;
  call.step = CallStep::kSent;
  if (stored.outcome.body().has_size()) {
    call.outcome_seen = true;
    call.outcome_n = record.outcome_n() != 0 ? record.outcome_n() : stored.call_n;
    call.body.size = stored.outcome.body().size();
    call.record_kept = call.stream != nullptr;
  }
  ended_.insert(call.order);
  if (!execution.over()) {
    // Killed before its receipt was written.
    const v1::CallOutcome& outcome = stored.outcome;
    Ending ending;
    ending.outcome = outcome.class_();
    ending.reason = outcome.reason();
    ending.certainty = outcome.certainty();
    ending.message = outcome.message();
    ending.is_error = outcome.facts().is_error();
    ending.queue_ms = outcome.queue_ms();
    ending.run_ms = outcome.run_ms();
    ending.backend_job_id = outcome.facts().backend_job_id();
    ending.from_agent = stored.call_n != 0;
    plane_.executions.End(execution, ending, Now());
    receipts_.Add(execution, /*erase_call=*/!call.record_kept);
  }
  // Without a body at the agent nothing but the receipt is needed.
  if (!call.record_kept) Forget(call);
}

void CallFlow::RestoreOpen(LiveCall& call, const v1::CallRecord& record) {
  call.all_stored = record.all_stored();
  call.progress_lost = !call.all_stored && !record.journal_id().empty();
  call.params_lost = record.params_bytes() > 0;
  call.notes = record.queue_notes() + kNotesOfATerm;
  for (const uint64_t ask : record.asks()) call.asks.insert(ask);
  for (const v1::AskAnswer& answer : record.answers()) {
    const uint64_t ask_n = std::strtoull(answer.ask_id().c_str(), nullptr, 10);
    call.answers[ask_n] = answer;
    call.asks.erase(ask_n);
  }
  call.parked_binding = record.parked_binding();
  call.as_task = record.as_task();
  call.was_parked = !call.parked_binding.empty();
  call.comes_back = call.was_parked && !call.as_task;
  call.round = record.round();
  for (const auto& [ask_n, request] : record.parked()) call.parked[ask_n] = request;
  const bool asks = AwaitsInput(call.round);
  if (!record.journal_id().empty()) {
    call.former = !asks;
    call.step = asks ? CallStep::kAsking : CallStep::kSent;
    call.sent_at = record.sent_unix_ms() != 0
                       ? std::min(Now(), plane_.FromUnixMs(record.sent_unix_ms()))
                       : call.created;
    // Until its agent says otherwise.
    CountStarted(call);
  }
  if (asks) {
    SetPhase(call, v1::CALL_WAITING, std::string(kAsksItsClient));
  } else {
    SetPhase(call, v1::CALL_CONNECTING, "the control plane was restarted; waiting for the agent");
  }
  if (record.cancel_reason() != v1::REASON_UNSPECIFIED) {
    return EndOwn(call, v1::CANCELLED, record.cancel_reason(),
                  call.step == CallStep::kSent ? v1::UNKNOWN : v1::NOT_STARTED,
                  "cancelled; the control plane was restarted before the agent had answered");
  }
  Record(call);
  if (call.stream != nullptr) {
    // Nothing new is shown before the record is durable that says so: no more all_stored, and how
    // far its caller may have been told its place.
    call.stream->readable = Stream::kUnannounced;
    durable_.Announce(*call.stream);
  }
  if (call.step == CallStep::kWaiting) waiting_[call.seat_id].push_back(call.order);
  AwaitClient(call);
  Arm(call);
}

// Its agent holds it.
void CallFlow::Return(LiveCall& call, const v1::CallState& state) {
  if (call.ended) return;
  if (state.attempt() > call.attempt) {
    call.attempt = state.attempt();
    call.progress_muted = call.progress_muted || call.progress_lost;
    call.have_n = 0;
    call.ever_started = true;
    if (Execution* record = plane_.executions.Find(call.id)) record->attempt = call.attempt;
  }
  if (!call.all_stored) {
    call.may_jump = true;
    call.hold_to = state.last_n() > call.have_n ? state.last_n() : 0;
  }
  if (state.phase() == v1::CallState::QUEUED) {
    UncountStarted(call);
    call.queued = true;
  } else if (!call.started) {
    call.started = call.ever_started = true;
    call.started_at = Now();
    call.incarnation = state.seat().incarnation();
    CountStarted(call);
    if (Execution* record = plane_.executions.Find(call.id)) {
      record->started = call.started_at;
      record->incarnation = call.incarnation;
      record->certainty = v1::RUNNING;
    }
  }
  Arm(call);
}

void CallFlow::ReleaseHeld(LiveCall& call) {
  if (!call.held_progress) return;
  auto [n, params] = *std::exchange(call.held_progress, std::nullopt);
  Publish(call, n, "notifications/progress", std::move(params));
}

}  // namespace callboard::server
