// Implementation of CallDesk, but for its links (call_desk_links.cc) and what seats report
// (call_desk_events.cc).
#include "backend_agent/call_desk.h"

#include <algorithm>
#include <utility>

#include "backend_agent/call_end.h"
#include "core/mcp/mirror_header.h"
#include "core/mcp/versions.h"
#include "core/runtime/planted_bug.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

constexpr size_t kDigestedBytes = 64 * 1024;
constexpr size_t kAnswersInPiecesMax = 16;

absl::Duration FromMillis(uint64_t milliseconds) {
  if (milliseconds == 0) return absl::InfiniteDuration();
  return absl::Milliseconds(static_cast<int64_t>(std::min<uint64_t>(
      milliseconds, static_cast<uint64_t>(absl::ToInt64Milliseconds(absl::Hours(24 * 365))))));
}

CallSpec MakeSpec(const v1::Dispatch& dispatch, absl::Time now) {
  CallSpec spec;
  spec.call_id = dispatch.call_id();
  spec.attempt = dispatch.attempt();
  spec.method = dispatch.method();
  spec.notification = dispatch.kind() == v1::Dispatch::NOTIFICATION;
  spec.lane = dispatch.lane() == v1::LANE_UNSPECIFIED ? v1::MAIN : dispatch.lane();
  spec.priority = dispatch.priority();
  spec.fair_key = dispatch.fair_key();
  spec.session_id = dispatch.session_id();
  spec.expect_incarnation = dispatch.expect_incarnation();
  spec.queue_deadline = now + FromMillis(dispatch.queue_ms());
  spec.run_budget = FromMillis(dispatch.run_ms());
  spec.wants_progress = dispatch.wants_progress();
  spec.read_only = dispatch.read_only();
  spec.idempotent = dispatch.idempotent();
  spec.trace =
      core::CheckedTraceContext(dispatch.traceparent(), dispatch.tracestate(), dispatch.baggage());
  spec.backend_session = dispatch.backend_session();
  spec.modern = dispatch.client().revision() == core::RevisionName(core::McpRevision::k2026_07_28);
  spec.log_level = dispatch.client().log_level();
  spec.client_capabilities = dispatch.client().capabilities();
  spec.client_info = dispatch.client().client_info();
  for (const v1::ParamHeader& header : dispatch.param_headers()) {
    if (core::IsHeaderToken(header.name()) && core::IsHeaderText(header.value())) {
      spec.param_headers.emplace_back(header.name(), header.value());
    }
  }
  return spec;
}

}  // namespace

CallDesk::CallDesk(core::EventLoop& loop, CallJournal& journal, Spool& spool,
                   Surroundings& surroundings, const AgentLimits& limits)
    : loop_(loop), journal_(journal), spool_(spool), surroundings_(surroundings), limits_(limits) {}

CallDesk::Call* CallDesk::Find(std::string_view call_id) {
  auto it = calls_.find(call_id);
  return it == calls_.end() ? nullptr : it->second.get();
}

std::vector<CallDesk::Call*> CallDesk::InOrder() const {
  std::vector<Call*> calls;
  calls.reserve(calls_.size());
  for (const auto& [call_id, call] : calls_) calls.push_back(call.get());
  std::sort(calls.begin(), calls.end(),
            [](const Call* a, const Call* b) { return a->sequence < b->sequence; });
  return calls;
}

void CallDesk::Recover() {
  for (const JournaledCall* journaled : journal_.Unsettled()) {
    auto call = std::make_unique<Call>(limits_.window, limits_.logs_per_call_max);
    call->call_id = journaled->call_id;
    call->attempt = journaled->attempt;
    call->seat_id = journaled->seat_id;
    call->owner_plane = journaled->owner_plane;
    call->owner_term = journaled->owner_term;
    call->incarnation = journaled->incarnation;
    call->backend_job = journaled->backend_job;
    call->sequence = next_sequence_++;
    call->started = true;
    call->ended = true;
    v1::Outcome outcome;
    Payload body;
    if (journaled->outcome && journaled->outcome->certainty() != v1::RUNNING) {
      outcome = *journaled->outcome;
      body = journaled->body;
      if (journaled->body_lost) {
        MarkBodyLost(outcome);
      }
    } else {
      outcome.set_class_(v1::LOST);
      outcome.set_reason(v1::AGENT_RESTARTED);
      outcome.set_certainty(v1::UNKNOWN);
      outcome.mutable_facts()->set_backend_job_id(journaled->backend_job);
      outcome.mutable_facts()->set_detail(
          "the agent was restarted while the call was at work; it may have run to its end");
      if (journal_.same_machine_boot()) busy_seats_.insert(call->seat_id);
    }
    call->outcome_class = outcome.class_();
    call->certainty = outcome.certainty();
    call->outbox.AddOutcome(std::move(outcome), std::move(body));
    Hold(*call);
    std::string call_id = call->call_id;
    calls_[std::move(call_id)] = std::move(call);
  }
  MakeRoomInMemory();
}

// ---- taking a call ------------------------------------------------------------------------------

void CallDesk::OnDispatch(Port& port, v1::Dispatch dispatch) {
  Call* known = Find(dispatch.call_id());
  if (known != nullptr ? !AcceptKnown(port, *known, dispatch) : !CheckTombstone(port, dispatch)) {
    return;
  }
  const bool chunked = dispatch.params().content_case() == v1::Body::kSize;
  const uint64_t size = chunked ? dispatch.params().size()
                                : static_cast<uint64_t>(dispatch.params().inline_().size());
  if (draining_) {
    return Reject(port, dispatch, v1::REJECTED, v1::DRAINING, v1::NOT_STARTED,
                  "the agent is stopping");
  }
  if (known != nullptr) Forget(*known);
  if (surroundings_.FindSeat(dispatch.seat_id()) == nullptr) {
    return Reject(port, dispatch, v1::REJECTED, v1::SEAT_UNKNOWN, v1::NOT_STARTED,
                  fmt::format("the agent has no seat '{}'", dispatch.seat_id()));
  }
  if (size > limits_.queued_bytes_max) {
    return Reject(port, dispatch, v1::REJECTED, v1::PARAMS_TOO_LARGE, v1::NOT_STARTED,
                  fmt::format("the parameters have {} bytes, the agent takes {}", size,
                              limits_.queued_bytes_max));
  }
  if (std::string full = Fullness(size); !full.empty()) {
    return Reject(port, dispatch, v1::REJECTED, v1::QUEUE_FULL, v1::NOT_STARTED, std::move(full));
  }
  auto owned = std::make_unique<Call>(port.window_, limits_.logs_per_call_max);
  Call& call = *owned;
  call.call_id = dispatch.call_id();
  call.attempt = dispatch.attempt();
  call.seat_id = dispatch.seat_id();
  call.owner_plane = port.plane_;
  call.owner_term = dispatch.owner_term();
  call.sequence = next_sequence_++;
  call.queued_bytes = size;
  call.params_size = size;
  queued_bytes_ += size;
  call.spec = MakeSpec(dispatch, loop_.Now());
  if (!call.spec.backend_session.empty()) call.spec.control_plane = port.plane_;
  call.session_id = call.spec.session_id;
  call.trace_id = core::TraceIdOf(call.spec.trace.traceparent);
  Bind(call, port, 0, 0);
  calls_[dispatch.call_id()] = std::move(owned);
  if (chunked && size > 0) {
    call.collecting = std::make_unique<Collecting>(spool_, size, size, port.window_);
    ++collecting_count_;
  } else {
    Submit(call, Payload(std::move(*dispatch.mutable_params()->mutable_inline_())));
  }
}

void CallDesk::Drain() {
  draining_ = true;
  for (Call* call : InOrder()) {
    if (call->started || call->ended) continue;
    // Missing in the next inventory and never started: the control plane sends it again.
    const std::string call_id = call->call_id;
    Seat* seat = call->collecting == nullptr ? surroundings_.FindSeat(call->seat_id) : nullptr;
    Forget(*call);
    if (seat != nullptr) seat->Cancel(call_id, v1::Cancel::ADMIN);
  }
}

std::string CallDesk::Fullness(uint64_t params_size) const {
  const size_t open = calls_.size() - held_;
  if (open >= limits_.open_calls_max || queued_bytes_ + params_size > limits_.queued_bytes_max) {
    return fmt::format("the agent holds {} of {} calls and {} of {} bytes of parameters", open,
                       limits_.open_calls_max, queued_bytes_, limits_.queued_bytes_max);
  }
  if (held_ >= limits_.ended_calls_max || in_memory_bytes_ > limits_.ended_bytes_max) {
    return fmt::format(
        "the agent keeps {} of {} ended calls with {} of {} bytes of results in memory until their "
        "control plane settles them, which it does not while its store fails",
        held_, limits_.ended_calls_max, in_memory_bytes_, limits_.ended_bytes_max);
  }
  return {};
}

bool CallDesk::AcceptKnown(Port& port, Call& call, const v1::Dispatch& dispatch) {
  if (dispatch.attempt() < call.attempt || !MayOwn(port, call, dispatch.owner_term())) return false;
  if (dispatch.attempt() == call.attempt) {
    call.owner_plane = port.plane_;
    call.owner_term = dispatch.owner_term();
    // Nobody has asked for its events on this link: they are the answer, its end above all.
    if (call.port != &port) Bind(call, port, 0, 0);
    return false;
  }
  const bool may_run = call.certainty == v1::NOT_STARTED || dispatch.idempotent();
  if (call.over() && may_run) return true;
  Reject(port, dispatch, v1::REJECTED, v1::ATTEMPT_REFUSED, v1::NOT_STARTED,
         call.over()
             ? fmt::format("attempt {} may have run and the call is not idempotent", call.attempt)
             : fmt::format("attempt {} is still at work", call.attempt));
  return false;
}

bool CallDesk::CheckTombstone(Port& port, const v1::Dispatch& dispatch) {
  const Tombstone* tombstone = journal_.FindTombstone(dispatch.call_id());
  if (tombstone == nullptr) return true;
  if (dispatch.attempt() > tombstone->attempt &&
      (dispatch.idempotent() || tombstone->certainty == v1::NOT_STARTED)) {
    return true;
  }
  // Only that it ended is known: whatever it ended in, what would say so is gone.
  const bool known =
      tombstone->certainty == v1::FINISHED || tombstone->certainty == v1::NOT_STARTED;
  Reject(port, dispatch, v1::LOST, v1::SETTLED_BEFORE, known ? tombstone->certainty : v1::UNKNOWN,
         fmt::format(
             "attempt {} of this call has ended before, as {}, and its outcome is no longer "
             "kept; it is not run again{}",
             tombstone->attempt, v1::OutcomeClass_Name(tombstone->outcome_class),
             tombstone->certainty == v1::NOT_STARTED ? ""
                                                     : ". Look at the scene before calling again"));
  return false;
}

void CallDesk::Reject(Port& port, const v1::Dispatch& dispatch, v1::OutcomeClass outcome_class,
                      v1::Reason reason, v1::Certainty certainty, std::string detail) {
  ++ended_[{outcome_class, reason}];
  v1::AgentItem item;
  v1::CallEvent* event = item.mutable_call_event();
  event->set_call_id(dispatch.call_id());
  event->set_attempt(dispatch.attempt());
  event->set_n(1);
  v1::Outcome* outcome = event->mutable_outcome();
  outcome->set_class_(outcome_class);
  outcome->set_reason(reason);
  outcome->set_certainty(certainty);
  outcome->mutable_facts()->set_detail(std::move(detail));
  port.SendControl(std::move(item));
}

void CallDesk::OnChunk(Port& port, const v1::Chunk& chunk) {
  Call* call = FindOwned(port, chunk.call_id());
  if (call == nullptr || chunk.attempt() != call->attempt) return;
  if (chunk.n() != 0) return OnAnswerChunk(port, *call, chunk);
  if (call->collecting == nullptr || chunk.offset() != call->collecting->builder.size()) {
    return;
  }
  Collecting& collecting = *call->collecting;
  const absl::Status status = collecting.builder.Append(chunk.bytes());
  if (!status.ok()) {
    return EndHere(*call, v1::REJECTED, v1::PARAMS_TOO_LARGE, v1::NOT_STARTED,
                   fmt::format("the parameters could not be kept: {}", core::Message(status)));
  }
  const uint64_t consumed = collecting.builder.size();
  if (consumed - collecting.acknowledged >= collecting.window / 4 || consumed == collecting.size) {
    // The spool takes parameters faster than the link brings them: the window grows at once.
    if (collecting_count_ * limits_.window_max <= limits_.queued_bytes_max) {
      collecting.window = std::max(collecting.window, limits_.window_max);
    }
    collecting.acknowledged = consumed;
    OweAck(*call);
  }
  if (consumed < collecting.size) return;
  Payload params = collecting.builder.Take();
  call->collecting.reset();
  --collecting_count_;
  Submit(*call, std::move(params));
}

void CallDesk::Submit(Call& call, Payload params) {
  call.params_crc = Crc32(params.view().substr(0, kDigestedBytes));
  call.spec.params = std::move(params);
  // It was there when the call was taken, but may have gone while the parameters came in.
  Seat* seat = surroundings_.FindSeat(call.seat_id);
  if (seat == nullptr) {
    return EndHere(call, v1::REJECTED, v1::SEAT_UNKNOWN, v1::NOT_STARTED,
                   fmt::format("the agent has no seat '{}' any more", call.seat_id));
  }
  seat->Submit(std::exchange(call.spec, CallSpec()));
}

void CallDesk::OweAck(Call& call) {
  if (core::Planted(core::PlantedBug::kLostAck)) return;
  if (call.port == nullptr) return;
  if (!std::exchange(call.ack_due, true)) call.port->acks_due_.push_back(call.call_id);
  call.port->Wake();
}

// ---- what the control plane wants of a call -----------------------------------------------------

void CallDesk::OnCancel(Port& port, const v1::Cancel& cancel) {
  Call* call = Find(cancel.call_id());
  if (call != nullptr &&
      (FindOwned(port, cancel.call_id()) == nullptr || cancel.owner_term() < call->owner_term)) {
    return;
  }
  v1::AgentItem item;
  v1::CancelAck* ack = item.mutable_cancel_ack();
  ack->set_call_id(cancel.call_id());
  ack->set_effect(call == nullptr ? v1::CancelAck::OVER : CancelCall(*call, cancel.reason()));
  port.SendControl(std::move(item));
}

v1::CancelAck::Effect CallDesk::CancelCall(Call& call, v1::Cancel::Why why) {
  if (call.over()) return v1::CancelAck::OVER;
  if (call.collecting != nullptr) {
    EndHere(call, v1::CANCELLED, ReasonOf(why), v1::NOT_STARTED,
            "cancelled before its parameters were complete");
    return v1::CancelAck::DROPPED;
  }
  Seat* seat = surroundings_.FindSeat(call.seat_id);
  return seat == nullptr ? v1::CancelAck::OVER : seat->Cancel(call.call_id, why);
}

void CallDesk::OnAnswer(Port& port, v1::Answer answer) {
  Call* call = FindOwned(port, answer.call_id());
  if (call == nullptr || answer.attempt() != call->attempt) return;
  const bool is_error = answer.has_error();
  v1::Body& body = is_error ? *answer.mutable_error() : *answer.mutable_result();
  if (!body.has_size() || body.size() == 0) {
    return TakeAnswer(*call, answer.ask_n(), is_error, Payload(std::move(*body.mutable_inline_())));
  }
  // Beyond the bound there is no client that would wait for so many answers of its own.
  if (call->answers.size() >= kAnswersInPiecesMax) return;
  call->answers.erase(answer.ask_n());
  call->answers.try_emplace(
      answer.ask_n(),
      AnswerInPieces{is_error, body.size(), PayloadBuilder(spool_, limits_.queued_bytes_max)});
}

void CallDesk::OnAnswerChunk(Port& port, Call& call, const v1::Chunk& chunk) {
  auto found = call.answers.find(chunk.n());
  if (found == call.answers.end()) return;
  AnswerInPieces& answer = found->second;
  if (chunk.offset() != answer.builder.size()) return;
  const bool kept = answer.builder.Append(chunk.bytes()).ok();
  v1::AgentItem item;
  v1::AckEntry* entry = item.mutable_ack()->add_entries();
  entry->set_call_id(call.call_id);
  entry->set_attempt(call.attempt);
  entry->set_n(chunk.n());
  entry->set_offset(chunk.offset() + chunk.bytes().size());
  port.SendControl(std::move(item));
  if (kept && answer.builder.size() < answer.size) return;
  const uint64_t ask_n = chunk.n();
  const bool is_error = answer.is_error || !kept;
  Payload text = kept ? answer.builder.Take()
                      : Payload(std::string(
                            R"({"code":-32000,"message":"the answer is too large to be kept"})"));
  call.answers.erase(found);
  TakeAnswer(call, ask_n, is_error, std::move(text));
}

void CallDesk::TakeAnswer(Call& call, uint64_t ask_n, bool is_error, Payload text) {
  const auto ask = call.outbox.TakeAsk(ask_n);
  Seat* seat = ask ? surroundings_.FindSeat(call.seat_id) : nullptr;
  if (seat != nullptr) seat->Answer(*ask, is_error, std::move(text));
}

void CallDesk::OnAck(Port& port, const v1::Ack& ack) {
  for (const v1::AckEntry& entry : ack.entries()) {
    Call* call = FindOwned(port, entry.call_id());
    if (call == nullptr || entry.attempt() != call->attempt) continue;
    call->outbox.Acknowledge(entry.n(), entry.offset(),
                             std::min(entry.window(), limits_.window_max));
    MakeReady(*call);
  }
}

void CallDesk::OnSettle(Port& port, const v1::Settle& settle) {
  std::vector<Settlement> settlements;
  for (const std::string& call_id : settle.call_id()) {
    Call* call = FindOwned(port, call_id);
    if (call != nullptr && settle.owner_term() >= call->owner_term) {
      SettleCall(port, *call, settlements);
    }
  }
  journal_.Settled(settlements);
}

void CallDesk::OnVerdict(Port& port, const v1::Verdict& verdict) {
  Call* call = Find(verdict.call_id());
  if (call == nullptr || verdict.attempt() != call->attempt ||
      !MayOwn(port, *call, verdict.owner_term())) {
    return;
  }
  call->owner_term = verdict.owner_term();
  call->owner_plane = port.plane_;
  switch (verdict.decision()) {
    case v1::Verdict::SETTLE: {
      std::vector<Settlement> settlements;
      SettleCall(port, *call, settlements);
      journal_.Settled(settlements);
      return;
    }
    case v1::Verdict::CONTINUE:
    case v1::Verdict::CANCEL:
      break;
    default:
      return;
  }
  Bind(*call, port, verdict.have_n(), verdict.have_offset());
  if (verdict.decision() == v1::Verdict::CANCEL) {
    v1::Cancel cancel;
    cancel.set_call_id(verdict.call_id());
    cancel.set_owner_term(verdict.owner_term());
    cancel.set_reason(v1::Cancel::CLIENT);
    OnCancel(port, cancel);
  }
}

void CallDesk::SettleCall(Port& port, Call& call, std::vector<Settlement>& settlements) {
  // Whoever settled a call that was still at work is told its late end, and nothing before it.
  if (call.ended && (call.late_pending || call.settled) && call.port == nullptr) {
    Bind(call, port, call.outbox.last_n(), 0);
  }
  // A settlement that crossed a late end on its way was meant for the end before.
  const bool late_end_waits = call.settled && !call.outbox.drained();
  if (call.over() && !late_end_waits) {
    settlements.push_back({call.call_id, call.attempt, call.outcome_class, call.certainty});
    return Forget(call);
  }
  call.settled = true;
  MakeReady(call);
  if (!call.started && !call.ended) CancelCall(call, v1::Cancel::CLIENT);
}

void CallDesk::Forget(Call& call) {
  ReleaseQueuedBytes(call);
  if (call.collecting != nullptr) --collecting_count_;
  if (call.held) --held_;
  Release(call);
  Unbind(call);
  coalesced_ += call.outbox.coalesced();
  calls_.erase(calls_.find(call.call_id));
}

void CallDesk::ForgetSettled(Call& call) {
  journal_.Settled({{call.call_id, call.attempt, call.outcome_class, call.certainty}});
  Forget(call);
}

void CallDesk::ReleaseQueuedBytes(Call& call) {
  queued_bytes_ -= std::exchange(call.queued_bytes, 0);
}

void CallDesk::Expire() {
  for (const std::string& call_id : journal_.Expire()) {
    if (Call* call = Find(call_id)) Forget(*call);
  }
}

void CallDesk::AddTo(AgentGauges& gauges) const {
  gauges.calls = calls_.size();
  gauges.held = held_;
  gauges.held_bytes = in_memory_bytes_;
  gauges.bodies_lost = bodies_lost_;
  gauges.coalesced = coalesced_;
  for (const auto& [call_id, call] : calls_) {
    if (call->started && !call->over()) ++gauges.running;
    gauges.outbox_events += call->outbox.size();
    gauges.coalesced += call->outbox.coalesced();
  }
  gauges.ended = ended_;
  gauges.started = started_;
  gauges.tool_errors = tool_errors_;
  gauges.queued_bytes = queued_bytes_;
}

}  // namespace callboard::agent
