// CallFlow, the end: budgets, cancels, the one outcome, and what is settled when.
#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "core/runtime/planted_bug.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "core/telemetry/trace_context.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/client_capabilities.h"
#include "server/flows/invoke_source.h"
#include "server/flows/outcome_source.h"
#include "server/flows/store_key.h"

namespace callboard::server {
namespace {

// Among the newest calls that of a late cancel is found.
constexpr size_t kCallsLookedAt = 1'000;

const char* PhaseName(v1::CallPhase phase) {
  switch (phase) {
    case v1::CALL_QUEUED:
      return "queued";
    case v1::CALL_CONNECTING:
      return "connecting";
    case v1::CALL_SENDING:
      return "sending";
    case v1::CALL_WAITING:
      return "waiting";
    case v1::CALL_RETRYING:
      return "retrying";
    default:
      return "ended";
  }
}

}  // namespace

CallFlow::~CallFlow() {
  std::vector<InvokeSource*> sources;
  for (auto& [order, call] : calls_) {
    if (call->source != nullptr) sources.push_back(call->source);
  }
  std::vector<StreamReader*> readers;
  for (const auto& [id, session] : plane_.sessions.all()) {
    for (const auto& [number, stream] : session->streams) {
      if (stream->reader != nullptr) readers.push_back(stream->reader);
    }
  }
  std::vector<OutcomeSource*> followers;
  for (const auto& [id, sources_of] : followers_) {
    followers.insert(followers.end(), sources_of.begin(), sources_of.end());
  }
  lifetime_.Renew();
  for (OutcomeSource* source : followers) source->PlaneGone();
  for (InvokeSource* source : sources) source->PlaneGone();
  for (StreamReader* reader : readers) reader->Wake();
}

absl::Duration CallFlow::Slack() const {
  return std::min(absl::Milliseconds(500), plane_.config.budgets.upper_wait_margin);
}

// ---- budgets ------------------------------------------------------------------------------------

absl::Time CallFlow::BudgetAt(const LiveCall& call) const {
  // Whether it waits or runs only its agent knows.
  if (call.former) return call.hard_at;
  const absl::Time queue_end = call.created + call.queue_budget;
  if (call.sent_at == absl::InfiniteFuture()) return queue_end;
  if (call.started && call.attempt == 1) return call.started_at + call.run_budget + Slack();
  if (call.queued && !call.ever_started) return queue_end + Slack();
  return call.sent_at + call.run_budget + Slack();
}

void CallFlow::Arm(LiveCall& call) {
  if (call.ended) return;
  const absl::Time next =
      std::min({call.hard_at, call.accept_at, call.retry_at, call.note_at, call.cancel_by,
                call.exit_by, call.asks_by, call.status_at, BudgetAt(call)});
  // One that fires too early looks again; so a deadline that moves away costs nothing here.
  if (call.timer.pending() && call.timer_at <= next) return;
  call.timer_at = next;
  call.timer = plane_.loop.At(next, [this, order = call.order] { OnTimer(order); });
}

void CallFlow::OnTimer(uint64_t order) {
  auto found = calls_.find(order);
  if (found == calls_.end() || found->second->ended) return;
  LiveCall& call = *found->second;
  const absl::Time now = Now();
  if (now >= call.hard_at) {
    const v1::Certainty certainty = CertaintyNow(call);
    SendCancel(call, v1::Cancel::DEADLINE);
    return EndOwn(call, v1::EXPIRED, v1::HARD_TIMER, certainty,
                  "nothing came of the call within all its budgets; see the diagnostics");
  }
  if (now >= BudgetAt(call)) return ExpireBudget(call);
  if (now >= call.cancel_by) {
    return EndOwn(call, v1::CANCELLED, call.cancel_reason, CertaintyNow(call),
                  "cancelled; the agent has not said what became of it");
  }
  if (now >= call.exit_by) {
    call.exit_by = absl::InfiniteFuture();
    if (MayRetry(call, absl::ZeroDuration())) {
      Retry(call, absl::ZeroDuration(), "the DCC was restarted");
    } else {
      return EndOwn(call, v1::LOST, v1::DCC_EXITED, v1::UNKNOWN,
                    fmt::format("incarnation {} of the seat ended while the tool was at work; a "
                                "new one is running",
                                call.incarnation));
    }
  }
  if (now >= call.accept_at) {
    call.accept_at = absl::InfiniteFuture();
    if (OpenStream(call)) {
      ShowStatus(call);
    } else if (call.source != nullptr) {
      call.source->Accept(AcceptanceOf(call));
    }
  }
  if (now >= call.status_at) ShowStatus(call);
  if (now >= call.asks_by) EndAsksOfTheGone(call);
  if (now >= call.note_at) NoteQueue(call);
  if (now >= call.retry_at) Send(call);
  Arm(call);
}

v1::Certainty CallFlow::CertaintyNow(const LiveCall& call) const {
  if (call.sent_at == absl::InfiniteFuture()) return v1::NOT_STARTED;
  // Between two rounds nothing runs.
  if (call.round.number() > 0 && call.step != CallStep::kSent) return v1::FINISHED;
  if (call.started && agents_->LinkOf(call.agent_id) != nullptr) return v1::RUNNING;
  return v1::UNKNOWN;
}

void CallFlow::ExpireBudget(LiveCall& call) {
  const v1::Certainty certainty = CertaintyNow(call);
  const bool in_queue = call.sent_at == absl::InfiniteFuture() || (call.queued && !call.started);
  SendCancel(call, v1::Cancel::DEADLINE);
  if (in_queue) {
    return EndOwn(call, v1::EXPIRED, v1::QUEUE_BUDGET_SPENT, certainty,
                  fmt::format("the call waited {} for its turn, its queue budget",
                              absl::FormatDuration(call.queue_budget)));
  }
  const char* const detail = !call.parked.empty()       ? "; what it asked was not answered"
                             : certainty == v1::RUNNING ? "; the tool may still be at work"
                                                        : "";
  EndOwn(call, v1::EXPIRED, v1::RUN_BUDGET_SPENT, certainty,
         fmt::format("no result within {}, the call's run budget{}",
                     absl::FormatDuration(call.run_budget), detail));
}

// ---- cancel -------------------------------------------------------------------------------------

void CallFlow::SendCancel(LiveCall& call, v1::Cancel::Why why) {
  AgentSession* link = agents_->LinkOf(call.agent_id);
  if (link == nullptr || call.step != CallStep::kSent) return;
  link->outbox().DropBodies(call.id);
  v1::Cancel& cancel = *link->outbox().Control().mutable_cancel();
  cancel.set_call_id(call.id.str());
  cancel.set_owner_term(plane_.term);
  cancel.set_reason(why);
  link->ScheduleFlush();
}

void CallFlow::Cancel(LiveCall& call, v1::Cancel::Why why, v1::Reason reason, bool wait_for_agent) {
  if (call.ended || call.cancel_by != absl::InfiniteFuture()) return;
  if (call.step != CallStep::kSent) {
    return EndOwn(call, v1::CANCELLED, reason, CertaintyNow(call),
                  call.round.number() == 0 ? "cancelled before it was sent to the seat"
                                           : "cancelled while the tool waited for its client");
  }
  SendCancel(call, why);
  // Whether a call that is queued over there was still dropped only the agent knows.
  if (!call.started && wait_for_agent && agents_->LinkOf(call.agent_id) != nullptr) {
    call.cancel_reason = reason;
    call.cancel_by = Now() + Slack();
    Record(call);  // a cancel that was accepted outlives us
    return Arm(call);
  }
  EndOwn(call, v1::CANCELLED, reason, CertaintyNow(call),
         "cancelled; the tool may still be at work");
}

bool CallFlow::CancelRequest(const std::string& session_id, const std::string& request_id) {
  if (const auto id = plane_.requests.Find(session_id, request_id)) {
    return CancelById(*id, v1::Cancel::CLIENT, v1::CANCELLED_BY_CLIENT);
  }
  // Too late, mostly: the request has ended. Otherwise it may be on its way still.
  size_t looked_at = 0;
  const auto& all = plane_.executions.all();
  for (auto it = all.rbegin(); it != all.rend() && looked_at < kCallsLookedAt; ++it, ++looked_at) {
    const Execution& ended = *it->second;
    if (ended.session_id == session_id && ended.client_request_id == request_id) return false;
  }
  if (!request_id.empty()) plane_.requests.KeepCancel(session_id, request_id, Now());
  return false;
}

bool CallFlow::CancelById(const CallId& id, v1::Cancel::Why why, v1::Reason reason) {
  LiveCall* call = Find(id);
  if (call == nullptr || call->ended) return false;
  Cancel(*call, why, reason, true);
  receipts_.Write();
  return true;
}

void CallFlow::OnCancelAck(AgentSession& link, const v1::CancelAck& ack) {
  const auto id = CallId::From(ack.call_id());
  LiveCall* call = id ? Find(*id) : nullptr;
  if (call != nullptr && !MayTellOf(link, *id, call)) return;
  if (call == nullptr || call->ended || call->cancel_by == absl::InfiniteFuture()) return;
  switch (ack.effect()) {
    case v1::CancelAck::DROPPED:
      return EndOwn(*call, v1::CANCELLED, call->cancel_reason,
                    call->ever_started ? v1::UNKNOWN : v1::NOT_STARTED,
                    "cancelled while it was queued; nothing ran");
    case v1::CancelAck::DELIVERED:
    case v1::CancelAck::CANNOT_STOP:
      return EndOwn(*call, v1::CANCELLED, call->cancel_reason, v1::RUNNING,
                    "cancelled; the tool may still be at work");
    default:
      return;  // over: its outcome is on the way
  }
}

// ---- the end ------------------------------------------------------------------------------------

std::string CallFlow::Diagnostics(const LiveCall& call) const {
  const AgentInfo* agent = agents_->Find(call.agent_id);
  const Execution* record = plane_.executions.Find(call.id);
  core::JsonObject json;
  json.String("call_start", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                                             absl::FromUnixMillis(plane_.UnixMs(call.created)),
                                             absl::UTCTimeZone()));
  json.Int("call_age_ms", absl::ToInt64Milliseconds(Now() - call.created));
  if (agent != nullptr) {
    const absl::Time heard = agent->link != nullptr ? agent->link->last_heard() : agent->last_heard;
    json.Int("last_heartbeat_age_ms", absl::ToInt64Milliseconds(Now() - heard));
    json.Int("reconnects", std::max<int64_t>(0, static_cast<int64_t>(agent->links) - 1));
    json.Int("reconnects_refused", static_cast<int64_t>(agent->refused));
    if (!agent->last_loss.empty()) json.String("last_link_loss", agent->last_loss);
    json.Bool("linked", agent->link != nullptr);
  }
  json.String("session", call.request.session_id());
  json.String("instance", fmt::format("{}/{}", call.seat_id, call.incarnation));
  json.Int("attempt", call.attempt);
  json.String("last_state", record == nullptr ? "unknown" : PhaseName(record->phase));
  return json.Take();
}

v1::CallOutcome CallFlow::MakeOutcome(const LiveCall& call, const Ending& ending) const {
  v1::CallOutcome outcome;
  outcome.set_call_id(call.id.str());
  outcome.set_client_request_id(call.request.client_request_id());
  outcome.set_class_(ending.outcome);
  outcome.set_reason(ending.reason);
  outcome.set_certainty(ending.certainty);
  outcome.set_queue_ms(ending.queue_ms);
  outcome.set_run_ms(ending.run_ms);
  outcome.set_message(ending.message);
  if (ending.outcome == v1::EXPIRED || ending.outcome == v1::LOST) {
    outcome.set_diagnostics(Diagnostics(call));
  }
  return outcome;
}

void CallFlow::EndOwn(LiveCall& call, v1::OutcomeClass outcome, v1::Reason reason,
                      v1::Certainty certainty, std::string message) {
  Ending ending;
  ending.outcome = outcome;
  ending.reason = reason;
  ending.certainty = certainty;
  ending.message = std::move(message);
  if (call.started) {
    ending.run_ms = static_cast<uint64_t>(absl::ToInt64Milliseconds(Now() - call.started_at));
  }
  v1::CallOutcome told = MakeOutcome(call, ending);
  End(call, ending, std::move(told));
}

void CallFlow::LogEnd(const LiveCall& call, const Ending& ending, const std::string& tool,
                      const std::string& diagnostics) const {
  if (!core::LogEnabled(core::LogLevel::kInfo)) return;
  const SeatRecord* seat = plane_.seats.Find(call.seat_id);
  const std::string_view trace = core::TraceIdOf(call.request.traceparent());
  core::LogInfo(
      "call_ended",
      {{"session", call.request.session_id()},
       {"call", call.id.hex()},
       {trace.empty() ? "" : "trace", trace},
       {"instance", call.seat_id},
       {"agent", call.agent_id},
       {"seat", seat == nullptr ? call.seat_id : plane_.seats.DisplayName(*seat)},
       {"tool", tool.empty() ? call.request.method() : tool},
       {"outcome", v1::OutcomeClass_Name(ending.outcome)},
       {"reason",
        ending.reason == v1::REASON_UNSPECIFIED ? "none" : v1::Reason_Name(ending.reason)},
       {"certainty", v1::Certainty_Name(ending.certainty)},
       {"is_error", ending.is_error},
       {"queue_ms", ending.queue_ms},
       {"run_ms", ending.run_ms},
       {"duration_ms", absl::ToInt64Milliseconds(Now() - call.created)},
       {diagnostics.empty() ? "" : "diagnostics", diagnostics}});
}

void CallFlow::End(LiveCall& call, const Ending& ending, v1::CallOutcome outcome) {
  Execution* record = plane_.executions.Find(call.id);
  const bool first =
      record == nullptr ? !call.ended : plane_.executions.End(*record, ending, Now());
  if (!first && !core::Planted(core::PlantedBug::kDoubleTerminal)) {
    // Late: the receipt is complete now, the caller has been told long ago.
    if (record != nullptr) {
      receipts_.KeepLate(*record, std::move(outcome), call.outcome_n);
      receipts_.Add(*record, false);
    }
    if (!call.job_open) SettleAtAgent(call.id, call.agent_id);
    // A body that came too late is for whoever asks for the receipt, or nobody's.
    if (!bodies_.coming(call.id)) call.have_n = call.outcome_n;
    call.body = {};
    return;
  }
  LogEnd(call, ending, record == nullptr ? "" : record->tool, outcome.diagnostics());
  bool session_changed = false;
  if (Session* session = plane_.sessions.Find(call.request.session_id()); session && first) {
    session->calls.erase(call.order);
    session->quiet_since = Now();
    if (ending.outcome == v1::RESULT) {
      session_changed = audience_.OnResult(*session, call.request.method(), call.request.params());
    }
  }
  UncountStarted(call);
  plane_.requests.Remove(call.request.session_id(), call.request.client_request_id(), call.id);
  if (AgentSession* link = agents_->LinkOf(call.agent_id)) {
    if (call.step == CallStep::kInOutbox) link->outbox().Withdraw(call.id);
    link->outbox().DropBodies(call.id);
  }
  LeaveWaiting(call);
  call.ended = true;
  call.former = false;
  call.timer.Cancel();
  call.asks.clear();
  call.parked.clear();
  call.unstored.clear();
  call.params.reset();
  ended_.insert(call.order);
  ended_hook_(call.id);
  const bool by_reference = outcome.body().has_size();
  const bool resumable = call.stream != nullptr && !call.stream->session_id.empty();
  // A body that is still with the agent may be asked for by whoever comes back, also after a
  // restart.
  call.record_kept = by_reference && resumable;
  if (record != nullptr) {
    const bool kept = call.recorded || call.was_parked;
    const bool in_record = kept && !by_reference;
    if (in_record) {
      receipts_.KeepOutcome(*record, outcome, /*in_stream=*/resumable);
    } else if (kept) {
      receipts_.KeepBeside(*record, outcome, call.outcome_n);
    }
    receipts_.Add(*record, /*erase_call=*/call.recorded && !call.record_kept && !in_record);
  }
  if (call.stream != nullptr) {
    const bool by_agent = ending.from_agent;
    call.stream->finished = true;
    call.stream->idle_since = Now();
    durable_.Append(*call.stream, {std::move(outcome), by_agent ? call.outcome_n : 0, call.attempt},
                    DurableLog::Wait::kDurable);
    if (call.record_kept) Record(call);
    if (!by_reference && !call.goes_on()) {
      // The stream has all of it, and its receipt becomes durable behind it.
      const CallId id = call.id;
      OnDelivered(id);
      return TellFollowers(id);
    }
  } else if (call.source != nullptr && session_changed) {
    // What the session wants from now on is in the store before its client relies on it.
    durable_.WhenDurable(lifetime_.Wrap(
        [this, id = call.id, outcome = std::move(outcome)](const absl::Status&) mutable {
          LiveCall* ended = Find(id);
          if (ended != nullptr && ended->source) ended->source->SetOutcome(std::move(outcome));
        }));
  } else if (call.source != nullptr) {
    call.source->SetOutcome(std::move(outcome));
  } else {
    const CallId id = call.id;
    OnDelivered(id);
    return TellFollowers(id);
  }
  TellFollowers(call.id);
}

void CallFlow::OnDelivered(const CallId& id) {
  LiveCall* call = Find(id);
  if (call == nullptr || !call->ended) return;
  if (!call->goes_on()) {
    if (!call->job_open) SettleAtAgent(id, call->agent_id);
  } else if (AgentSession* link = agents_->LinkOf(call->agent_id)) {
    // Settled when its own outcome comes, for which what nobody read must not take the room.
    AckUnread(*link, id, call->attempt, call->have_n, call->event_body.received);
  }
  Forget(*call);
}

void CallFlow::SettleAtAgent(const CallId& id, const std::string& agent_id) {
  Execution* record = plane_.executions.Find(id);
  if (record == nullptr) {
    if (AgentSession* link = agents_->LinkOf(agent_id)) link->Settle(id);
    return;
  }
  if (record->settled) return;
  record->settle_wanted = true;
  if (record->receipt_durable) OnReceipt(*record);
}

// The store has the receipt: the agent may forget, unless it alone has what is kept beside that.
void CallFlow::OnReceipt(Execution& record) {
  if (bodies_.coming(record.call_id) && !core::Planted(core::PlantedBug::kSettledBeforeBody)) {
    return;
  }
  if (!std::exchange(record.settle_wanted, false)) return;
  record.settled = true;
  AgentSession* link = agents_->LinkOf(record.agent_id);
  if (link == nullptr) return;
  // They come by the block.
  link->outbox().Settle(record.call_id);
  link->outbox().SettlesDue();
  link->ScheduleFlush();
}

void CallFlow::Forget(LiveCall& call) {
  const uint64_t order = call.order;
  const Execution* record = plane_.executions.Find(call.id);
  if (call.record_kept && record != nullptr) {
    receipts_.Add(*record, /*erase_call=*/true);
  } else if (call.record_kept) {
    durable_.Put(StoreKey::OfCall(call.id), "");
  }
  ended_.erase(order);
  by_id_.erase(call.id);
  calls_.erase(order);
}

// ---- consumers that leave -----------------------------------------------------------------------

void CallFlow::OnSourceGone(const CallId& id, const InvokeSource* source, bool lost) {
  LiveCall* call = Find(id);
  if (call == nullptr || call->source != source) return;
  call->source = nullptr;
  if (call->ended) {
    // With a stream the outcome waits for the grace, or for whoever took the stream over.
    const bool streamed = call->stream != nullptr;
    if (!streamed || call->stream->session_id.empty()) OnDelivered(id);
    if (!streamed) PullBody(id);  // otherwise when the stream's reader had gone
    return;
  }
  if (!lost) return;
  if (call->request.on_detach() == v1::InvokeRequest::CANCEL) {
    return Cancel(*call, v1::Cancel::CLIENT, v1::CANCELLED_BY_CLIENT, false);
  }
  Record(*call);
  AckLater(*call);
}

void CallFlow::OnReaderGone(Stream& stream) {
  stream.idle_since = Now();
  if (stream.call_id.empty()) return AwaitClientOf(stream);
  if (const auto id = CallId::From(stream.call_id)) {
    LiveCall* call = Find(*id);
    if (call != nullptr && call->ended) PullBody(*id);
    if (call == nullptr || !call->goes_on()) return;
    AckLater(*call);
    if (!call->ended) AwaitClient(*call);
  }
}

void CallFlow::AddReader(const std::string& session_id) {
  if (Session* session = plane_.sessions.Find(session_id)) ++session->readers;
}

void CallFlow::RemoveReader(const std::string& session_id) {
  if (Session* session = plane_.sessions.Find(session_id)) {
    --session->readers;
    session->quiet_since = Now();
  }
}

// ---- sessions -----------------------------------------------------------------------------------

void CallFlow::CloseSession(const std::string& session_id, const char* reason) {
  Session* session = plane_.sessions.Find(session_id);
  if (session == nullptr) return;
  const std::set<uint64_t> open = session->calls;
  for (const uint64_t order : open) {
    auto found = calls_.find(order);
    if (found == calls_.end()) continue;
    Cancel(*found->second, v1::Cancel::CLIENT, v1::CANCELLED_SESSION_ENDED, false);
  }
  std::vector<StreamReader*> readers;
  for (const auto& [number, stream] : session->streams) {
    if (stream->reader != nullptr) readers.push_back(stream->reader);
  }
  for (StreamReader* reader : readers) reader->EndReading(reason);
  plane_.elicitations.RemoveSession(session_id);
  plane_.sessions.Erase(session_id);
}

void CallFlow::SuspendSession(Session& session) {
  const std::set<uint64_t> open = session.calls;
  for (const uint64_t order : open) {
    auto found = calls_.find(order);
    if (found == calls_.end() || found->second->job) continue;
    Cancel(*found->second, v1::Cancel::CLIENT, v1::CANCELLED_SESSION_ENDED, false);
  }
  plane_.sessions.Suspend(session);
  durable_.TouchSession(session);
}

bool CallFlow::Notify(Session& session, const v1::Notify& notify) {
  if (session.seat_id.empty() || notify.method() == "notifications/initialized" ||
      notify.method() == "notifications/cancelled" || notify.params().size() > kInlineMax) {
    return false;
  }
  const SeatRecord* seat = plane_.seats.Find(session.seat_id);
  AgentSession* link = seat == nullptr ? nullptr : agents_->LinkOf(seat->agent_id);
  if (link == nullptr) return false;
  v1::Dispatch& dispatch = *link->outbox().Control().mutable_dispatch();
  dispatch.set_call_id(CallId::New(plane_.random, plane_.UnixMs(Now())).str());
  dispatch.set_attempt(1);
  dispatch.set_owner_term(plane_.term);
  dispatch.set_seat_id(session.seat_id);
  dispatch.set_method(notify.method());
  dispatch.mutable_params()->set_inline_(notify.params());
  dispatch.set_kind(v1::Dispatch::NOTIFICATION);
  dispatch.set_lane(v1::FREE);
  dispatch.set_session_id(session.id);
  SetClient(session, dispatch);
  dispatch.set_fair_key(session.principal.empty() ? session.id : session.principal);
  link->ScheduleFlush();
  return true;
}

void CallFlow::Sweep() {
  std::vector<CallId> delivered;
  for (const uint64_t order : ended_) {
    LiveCall& call = *calls_.at(order);
    const bool unread = call.stream != nullptr && call.stream->reader == nullptr;
    const bool unasked = call.stream == nullptr && call.source == nullptr;
    if (unasked || (unread && call.stream->session_id.empty())) {
      delivered.push_back(call.id);
    } else if (!call.body.complete() && Now() >= call.hard_at &&
               agents_->LinkOf(call.agent_id) == nullptr) {
      // Whoever reads must not wait for an agent that does not come back.
      call.body.lost = true;
      WakeReader(call);
    }
  }
  for (const CallId& id : delivered) OnDelivered(id);
  SweepOrphans();
  SweepBodies();
}

// An agent whose seats have been forgotten does not come back to say how its calls ended.
void CallFlow::SweepOrphans() {
  std::vector<std::string> gone;
  for (const auto& [agent_id, orphans] : orphans_) {
    if (agents_->LinkOf(agent_id) == nullptr && plane_.seats.SeatsOf(agent_id).empty()) {
      gone.push_back(agent_id);
    }
  }
  for (const std::string& agent_id : gone) {
    EndLostOrphans(agent_id, {}, v1::LINK_LOST, "the agent did not come back");
  }
}

}  // namespace callboard::server
