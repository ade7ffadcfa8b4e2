// What seats report about calls, as CallDesk takes it.
#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "backend_agent/call_desk.h"
#include "core/runtime/milliseconds.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

namespace callboard::agent {

void CallDesk::LogEnd(std::string_view event, const Call& call, const CallEnd& end) {
  if (!core::LogEnabled(core::LogLevel::kDebug)) return;
  core::LogDebug(
      event,
      {{call.session_id.empty() ? "" : "session", call.session_id},
       {"call", absl::BytesToHexString(core::ToAbsl(call.call_id))},
       {call.trace_id.empty() ? "" : "trace", call.trace_id},
       {"instance", call.seat_id},
       {"outcome", v1::OutcomeClass_Name(end.outcome_class)},
       {"reason", end.reason == v1::REASON_UNSPECIFIED ? "none" : v1::Reason_Name(end.reason)},
       {"certainty", v1::Certainty_Name(end.certainty)},
       {"bytes", end.body.size()},
       {"queue_ms", core::ToMillis(end.queued)},
       {"run_ms", core::ToMillis(end.ran)},
       {"detail", end.facts.detail()}});
}

void CallDesk::CountEnd(const CallEnd& end) {
  if (end.outcome_class == v1::RESULT && end.facts.is_error()) {
    ++tool_errors_;
  } else {
    ++ended_[{end.outcome_class, end.reason}];
  }
}

void CallDesk::OnQueued(const std::string& call_id, uint32_t ahead) {
  Call* call = Find(call_id);
  if (call == nullptr || ahead == 0) return;
  call->outbox.AddQueued(ahead);
  MakeReady(*call);
}

bool CallDesk::OnStarting(const std::string& call_id, uint64_t incarnation) {
  Call* call = Find(call_id);
  if (call == nullptr || call->started || call->ended) return false;
  JournaledCall record;
  record.call_id = call_id;
  record.attempt = call->attempt;
  record.owner_term = call->owner_term;
  record.owner_plane = call->owner_plane;
  record.seat_id = call->seat_id;
  record.incarnation = incarnation;
  record.params_size = call->params_size;
  record.params_crc = call->params_crc;
  if (!journal_.Started(std::move(record)).ok()) return false;
  call->started = true;
  ++started_;
  call->incarnation = incarnation;
  ReleaseQueuedBytes(*call);
  call->outbox.AddStarted(incarnation);
  // A quick tool's outcome follows at once and then shares the frame: half the wake-ups.
  MakeReadySoon(*call);
  return true;
}

void CallDesk::OnProgress(const std::string& call_id, std::string raw_params) {
  Call* call = Find(call_id);
  if (call == nullptr) return;
  call->outbox.AddProgress(Payload(std::move(raw_params)));
  MakeReady(*call);
}

void CallDesk::OnLog(const std::string& call_id, std::string raw_params) {
  Call* call = Find(call_id);
  if (call == nullptr) return;
  call->outbox.AddLog(Payload(std::move(raw_params)));
  MakeReady(*call);
}

void CallDesk::OnNotification(const std::string& call_id, std::string method,
                              std::string raw_params) {
  Call* call = Find(call_id);
  if (call == nullptr) return;
  call->outbox.AddNotification(std::move(method), Payload(std::move(raw_params)));
  MakeReady(*call);
}

void CallDesk::OnAsk(const std::string& call_id, uint64_t ask, std::string method,
                     std::string raw_params) {
  Call* call = Find(call_id);
  if (call == nullptr) return;
  call->outbox.AddAsk(ask, std::move(method), Payload(std::move(raw_params)));
  MakeReady(*call);
}

void CallDesk::OnAskCancelled(const std::string& call_id, uint64_t ask, std::string raw_params) {
  Call* call = Find(call_id);
  if (call == nullptr) return;
  call->outbox.CancelAsk(ask, Payload(std::move(raw_params)));
  MakeReady(*call);
}

// The backends keep to the agent's own limit; the control plane's may be less.
void CallDesk::CheckSize(const Call& call, CallEnd& end) {
  if (end.body.size() <= call.result_bytes_max) return;
  const uint64_t size = end.body.size();
  end.outcome_class = v1::LOST;
  end.reason = v1::RESULT_TOO_LARGE;
  end.body = {};
  end.facts = {};
  end.facts.set_detail(fmt::format(
      "the answer has {} bytes, the control plane takes {} (limits.result_bytes_max); the tool ran",
      size, call.result_bytes_max));
}

void CallDesk::OnEnd(const std::string& call_id, CallEnd end) {
  Call* call = Find(call_id);
  if (call == nullptr || call->ended) return;
  CheckSize(*call, end);
  ReleaseQueuedBytes(*call);
  call->ended = true;
  CountEnd(end);
  LogEnd("call_ended", *call, end);
  call->late_pending = end.certainty == v1::RUNNING;
  if (call->settled) {
    call->outcome_class = end.outcome_class;
    call->certainty = end.certainty;
    if (!call->late_pending) return ForgetSettled(*call);
  }
  AddOutcome(*call, std::move(end));
}

void CallDesk::OnLateEnd(const std::string& call_id, CallEnd end) {
  Call* call = Find(call_id);
  if (call == nullptr || !call->late_pending) return;
  call->late_pending = false;
  CheckSize(*call, end);
  LogEnd("call_ended_late", *call, end);
  AddOutcome(*call, std::move(end));
}

void CallDesk::AddOutcome(Call& call, CallEnd end) {
  call.outcome_class = end.outcome_class;
  call.certainty = end.certainty;
  v1::Outcome outcome;
  outcome.set_class_(end.outcome_class);
  outcome.set_reason(end.reason);
  outcome.set_certainty(end.certainty);
  *outcome.mutable_facts() = std::move(end.facts);
  outcome.mutable_facts()->set_size(end.body.size());
  outcome.set_queue_ms(core::ToMillis(end.queued));
  outcome.set_run_ms(core::ToMillis(end.ran));
  outcome.set_backend_revision(std::move(end.backend_revision));
  // A failed write costs the outcome after a crash, not now: it is sent all the same.
  journal_.Finished(call.call_id, outcome, end.body).IgnoreError();
  const bool spooled = end.body.size() > kInlineBodyMax;
  call.outbox.AddOutcome(std::move(outcome), std::move(end.body));
  MakeReady(call);
  if (call.over()) Hold(call);
  if (in_memory_bytes_ > limits_.ended_bytes_max) {
    MakeRoomInMemory();
  } else if (spooled) {
    MakeRoomInSpool();
  }
}

void CallDesk::Hold(Call& call) {
  if (!std::exchange(call.held, true)) ++held_;
  const Payload& body = call.outbox.body();
  if (body.empty() || body.file() != nullptr) return;
  if (in_memory_.emplace(call.sequence, &call).second) in_memory_bytes_ += body.size();
}

void CallDesk::Release(const Call& call) {
  if (in_memory_.erase(call.sequence) > 0) in_memory_bytes_ -= call.outbox.body().size();
}

void CallDesk::MakeRoomInMemory() {
  while (in_memory_bytes_ > limits_.ended_bytes_max && !in_memory_.empty()) {
    Call& call = *in_memory_.begin()->second;
    auto writer = spool_.Create();
    if (!writer.ok() || !(*writer)->Append(call.outbox.body().view()).ok()) break;
    Payload body((*writer)->Finish());
    journal_.MoveBody(call.call_id, body);
    Release(call);
    call.outbox.MoveBody(std::move(body));
  }
  for (const bool written : {true, false}) {
    for (auto next = in_memory_.begin(); next != in_memory_.end();) {
      if (in_memory_bytes_ <= limits_.ended_bytes_max) break;
      Call& call = *(next++)->second;
      GiveUpBody(call, written, "results in memory are too many and the spool takes nothing");
    }
  }
  MakeRoomInSpool();
}

void CallDesk::MakeRoomInSpool() {
  if (spool_.bytes() <= spool_.bytes_max() / 4 * 3) return;
  for (const bool written : {true, false}) {
    for (Call* call : InOrder()) {
      if (spool_.bytes() <= spool_.bytes_max() / 2) return;
      if (call->outbox.body().file() == nullptr) continue;
      GiveUpBody(*call, written, "the spool is nearly full");
    }
  }
}

// What has been written is missed only by a client that comes back for it; what waits for an owner
// has been seen by nobody.
void CallDesk::GiveUpBody(Call& call, bool written, std::string_view why) {
  const bool linked = call.port != nullptr;
  if (linked != written || !call.ended) return;
  Release(call);
  if (!call.outbox.LoseBody()) {
    if (call.held) Hold(call);
    return;
  }
  ++bodies_lost_;
  call.outcome_class = v1::LOST;
  call.certainty = v1::FINISHED;
  journal_.LoseBody(call.call_id);
  core::Log(
      written ? core::LogLevel::kDebug : core::LogLevel::kWarn, "body_lost",
      {{"call", absl::BytesToHexString(core::ToAbsl(call.call_id))},
       {"instance", call.seat_id},
       {"reason", fmt::format("{}; {}", why, written ? "it has been sent" : "its owner is away")}});
}

void CallDesk::EndHere(Call& call, v1::OutcomeClass outcome_class, v1::Reason reason,
                       v1::Certainty certainty, std::string detail) {
  if (call.collecting != nullptr) {
    call.collecting.reset();
    --collecting_count_;
  }
  CallEnd end;
  end.outcome_class = outcome_class;
  end.reason = reason;
  end.certainty = certainty;
  end.facts.set_detail(std::move(detail));
  const std::string call_id = call.call_id;
  if (call.late_pending) {
    OnLateEnd(call_id, std::move(end));
  } else {
    OnEnd(call_id, std::move(end));
  }
}

void CallDesk::EndCallsOfSeat(const std::string& seat_id, const std::string& reason) {
  for (Call* call : InOrder()) {
    if (call->seat_id != seat_id || call->over()) continue;
    EndHere(*call, v1::LOST, v1::DCC_EXITED, call->started ? v1::UNKNOWN : v1::NOT_STARTED,
            fmt::format("the seat is gone: {}", reason));
  }
}

}  // namespace callboard::agent
