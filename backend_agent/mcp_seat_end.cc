// McpSeat, a call from its answer or failure to its end, and the order in which observers are told.
#include <utility>

#include "backend_agent/call_end.h"
#include "backend_agent/mcp_seat.h"
#include "backend_agent/result_facts.h"
#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::agent {

void McpSeat::OnReply(const std::string& id, McpReply reply) {
  const std::string call_id = id;
  auto at = calls_.find(call_id);
  if (at == calls_.end() || at->second.phase != Phase::kRunning) return;
  Call& call = at->second;
  if (reply.kind == McpReply::Kind::kFailed) {
    TakeFailure(call, std::move(reply));
  } else {
    TakeAnswer(call, std::move(reply));
  }
}

void McpSeat::TakeAnswer(Call& call, McpReply reply) {
  const std::string call_id = call.spec.call_id;
  probe_misses_ = 0;
  if (SendsAgain(call, reply)) return;
  RequireUrls(call, reply);
  if (!call.spec.modern && session_ != nullptr && session_->modern_only() &&
      !Translate(call, reply)) {
    return;
  }
  const bool is_result = reply.kind == McpReply::Kind::kResult;
  CallEnd end =
      MakeEnd(is_result ? v1::RESULT : v1::RPC_ERROR, v1::REASON_UNSPECIFIED, v1::FINISHED);
  end.body = std::move(reply.body);
  if (is_result) NoteInterest(call);
  bool lists_changed = false;
  if (is_result && call.spec.method == "tools/call") {
    end.facts = FindFacts(end.body.view());
    lists_changed = call.lists_changed ||
                    ChangesLists(core::FindString(call.spec.params.view(), "name").value_or(""));
    end.facts.set_list_changed_hint(lists_changed);
  } else if (is_result && call.spec.modern) {
    *end.facts.mutable_era_fields() = FindFacts(end.body.view()).era_fields();
  }
  end.facts.set_size(end.body.size());
  if (lists_changed && call.told) watcher_.OnListChanged();
  if (!lists_changed || call.told) {
    Finish(call_id, std::move(end));
    return;
  }
  // The DCC is free; the caller hears of it once the new list is known.
  FreeSlot(call);
  end.ran = loop_.Now() - call.started;
  call.phase = Phase::kEnding;
  call.timer.Cancel();
  call.end = std::move(end);
  watcher_.ListNow(limits_.relist_wait, [this, call_id] {
    auto at = calls_.find(call_id);
    if (at == calls_.end() || at->second.phase != Phase::kEnding) return;
    Finish(call_id, std::move(at->second.end));
  });
}

void McpSeat::TakeFailure(Call& call, McpReply reply) {
  const std::string call_id = call.spec.call_id;
  std::string detail(core::Message(reply.status));
  const absl::StatusCode code = reply.status.code();
  if (!reply.reached || code == absl::StatusCode::kNotFound) {
    Finish(call_id,
           MakeEnd(v1::REJECTED, v1::BACKEND_UNREACHABLE, v1::NOT_STARTED, std::move(detail)));
  } else if (code == absl::StatusCode::kResourceExhausted) {
    Finish(call_id, MakeEnd(v1::LOST, v1::RESULT_TOO_LARGE, v1::FINISHED, std::move(detail)));
  } else if (code == absl::StatusCode::kInternal) {
    Finish(call_id, MakeEnd(v1::LOST, v1::BACKEND_PROTOCOL_ERROR, v1::UNKNOWN, std::move(detail)));
  } else {
    // Most often the process has died, and the news of how follows.
    call.phase = Phase::kFailing;
    call.end = MakeEnd(v1::LOST, v1::BACKEND_CONNECTION_LOST, v1::UNKNOWN, std::move(detail));
    call.timer = loop_.After(limits_.verdict_wait, [this, call_id] {
      const std::string id = call_id;  // the timer goes with the call
      auto at = calls_.find(id);
      if (at == calls_.end()) return;
      // The process lives, so it may still be at this call.
      if (at->second.lane.lane != v1::FREE) AssumeBusy();
      Finish(id, std::move(at->second.end));
    });
  }
}

void McpSeat::EndForDeadProcess(Call& call, const BackendExit& exit) {
  CallEnd end = exit.process_ended ? MakeEnd(v1::LOST, v1::DCC_EXITED, v1::UNKNOWN, exit.detail)
                                   : std::move(call.end);
  if (!exit.process_ended && end.reason == v1::REASON_UNSPECIFIED) {
    end = MakeEnd(v1::LOST, v1::BACKEND_CONNECTION_LOST, v1::UNKNOWN, exit.detail);
  }
  if (exit.process_ended) {
    end.facts.set_exit_status(exit.exit_status);
    end.facts.set_exit_signal(exit.exit_signal);
  } else if (call.lane.lane != v1::FREE) {
    AssumeBusy();
  }
  Finish(std::string(call.spec.call_id), std::move(end));
}

void McpSeat::Finish(const std::string& call_id, CallEnd end) {
  auto at = calls_.find(call_id);
  if (at == calls_.end()) return;
  Call& call = at->second;
  end.queued = call.started - call.submitted;
  if (call.phase != Phase::kEnding) end.ran = loop_.Now() - call.started;
  if (session_ != nullptr) end.backend_revision = session_->server().revision;
  FreeSlot(call);
  call_of_request_.erase({call.session, call.request});
  EndAsksOf(call_id);
  const bool late = call.told;
  auto node = calls_.extract(at);
  ReportHealth();
  Tell([this, call_id, late, end = std::move(end)]() mutable {
    if (late) {
      observer_.OnLateEnd(call_id, std::move(end));
    } else {
      observer_.OnEnd(call_id, std::move(end));
    }
  });
}

void McpSeat::FreeSlot(Call& call) {
  if (!call.slot) return;
  call.slot = false;
  if (std::exchange(call.raises_level, false)) ApplyInterestLater();
  queue_.Release(call.lane);
  if (queue_.waiting() > 0) SchedulePump();
}

// ---- telling ----------------------------------------------------------------------------------

void McpSeat::Tell(absl::AnyInvocable<void()> event) {
  events_.push_back(std::move(event));
  Flush();
}

void McpSeat::TellLater(absl::AnyInvocable<void()> event) {
  events_.push_back(std::move(event));
  if (flush_posted_) return;
  flush_posted_ = true;
  loop_.Post(lifetime_.Wrap([this] {
    flush_posted_ = false;
    Flush();
  }));
}

void McpSeat::Flush() {
  if (flushing_) return;
  flushing_ = true;
  auto alive = lifetime_.Watch();
  while (!events_.empty()) {
    auto event = std::move(events_.front());
    events_.pop_front();
    event();
    if (alive.expired()) return;
  }
  flushing_ = false;
}

}  // namespace callboard::agent
