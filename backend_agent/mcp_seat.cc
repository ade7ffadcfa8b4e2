// McpSeat, a call until it has an answer: taking and refusing, queue, run, cancel.
#include "backend_agent/mcp_seat.h"

#include <algorithm>
#include <utility>

#include "backend_agent/call_end.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

std::string_view WordsOf(v1::Cancel::Why why) {
  switch (why) {
    case v1::Cancel::DEADLINE:
      return "deadline passed";
    case v1::Cancel::PARENT:
      return "the call it belongs to was cancelled";
    case v1::Cancel::ADMIN:
      return "cancelled by an administrator";
    default:
      return "cancelled by the client";
  }
}

}  // namespace

// ---- taking and refusing ----------------------------------------------------------------------

void McpSeat::Submit(CallSpec spec) {
  const std::string call_id = spec.call_id;
  if (auto at = calls_.find(call_id); at != calls_.end()) {
    // The same call twice is one call; another attempt has to wait for the end of this one.
    if (at->second.spec.attempt == spec.attempt) return;
    CallEnd end = MakeEnd(v1::REJECTED, v1::ATTEMPT_REFUSED, v1::NOT_STARTED,
                          "an earlier attempt of this call still holds its slot");
    TellLater([this, call_id, end = std::move(end)]() mutable {
      observer_.OnEnd(call_id, std::move(end));
    });
    return;
  }
  Call& call = calls_[call_id];
  call.spec = std::move(spec);
  call.submitted = loop_.Now();
  call.lane.lane = call.spec.lane == v1::LANE_UNSPECIFIED ? v1::MAIN : call.spec.lane;
  if (call.lane.lane == v1::NAMED) call.lane.name = call.spec.lane_name;
  if (cordoned_) {
    RefuseQueued(call_id, v1::CORDONED, fmt::format("seat '{}' takes no calls", description_.name));
    return;
  }
  if (!MatchesProcess(call.spec.expect_incarnation)) {
    RefuseQueued(call_id, v1::WRONG_INCARNATION,
                 fmt::format("the call was made for process number {} of '{}', now it is {}{}",
                             call.spec.expect_incarnation, description_.name, incarnation_,
                             process_over_ ? ", which has ended" : ""));
    return;
  }
  if (!queue_.Push({.call_id = call_id,
                    .lane = call.lane,
                    .priority = call.spec.priority,
                    .fair_key = call.spec.fair_key,
                    .session_id = call.spec.session_id,
                    .deadline = call.spec.queue_deadline})) {
    RefuseQueued(
        call_id, v1::QUEUE_FULL,
        fmt::format("{} calls wait at '{}'; try again later", queue_.waiting(), description_.name));
    return;
  }
  SchedulePump();
}

void McpSeat::RefuseQueued(const std::string& call_id, v1::Reason reason, std::string detail) {
  auto node = calls_.extract(call_id);
  if (node.empty()) return;
  const Call& call = node.mapped();
  CallEnd end = MakeEnd(reason == v1::QUEUE_BUDGET_SPENT ? v1::EXPIRED : v1::REJECTED, reason,
                        v1::NOT_STARTED, std::move(detail));
  end.queued = loop_.Now() - call.submitted;
  TellLater([this, call_id, end = std::move(end)]() mutable {
    observer_.OnEnd(call_id, std::move(end));
  });
}

bool McpSeat::MatchesProcess(uint64_t expected) const {
  if (expected == 0) return true;
  // While nobody is there a later process may still come.
  return process_over_ ? expected > incarnation_ : expected == incarnation_;
}

void McpSeat::RefuseWrongIncarnations() {
  for (const std::string& call_id : queue_.waiting_ids()) {
    auto at = calls_.find(call_id);
    if (at == calls_.end() || MatchesProcess(at->second.spec.expect_incarnation)) continue;
    queue_.Remove(call_id);
    RefuseQueued(call_id, v1::WRONG_INCARNATION,
                 fmt::format("process number {} of '{}' has ended while the call waited",
                             at->second.spec.expect_incarnation, description_.name));
  }
}

v1::CancelAck::Effect McpSeat::Cancel(const std::string& call_id, v1::Cancel::Why why) {
  auto at = calls_.find(call_id);
  if (at == calls_.end()) return v1::CancelAck::OVER;
  Call& call = at->second;
  if (call.phase == Phase::kQueued) {
    queue_.Remove(call_id);
    CallEnd end = MakeEnd(v1::CANCELLED, ReasonOf(why), v1::NOT_STARTED);
    end.queued = loop_.Now() - call.submitted;
    calls_.erase(at);
    TellLater([this, call_id, end = std::move(end)]() mutable {
      observer_.OnEnd(call_id, std::move(end));
    });
    SchedulePump();
    return v1::CancelAck::DROPPED;
  }
  if (call.phase == Phase::kEnding) return v1::CancelAck::OVER;
  if (call.told) return v1::CancelAck::DELIVERED;
  CallEnd end = MakeEnd(v1::CANCELLED, ReasonOf(why), v1::RUNNING);
  const bool reached = call.phase == Phase::kFailing || TellBackendOfCancel(call, WordsOf(why));
  if (!reached) end.certainty = v1::NOT_STARTED;
  EndLeftCall(call, std::move(end));
  return reached ? v1::CancelAck::DELIVERED : v1::CancelAck::DROPPED;
}

// ---- running ----------------------------------------------------------------------------------

void McpSeat::SchedulePump() {
  if (pump_posted_) return;
  pump_posted_ = true;
  loop_.Post(lifetime_.Wrap([this] {
    pump_posted_ = false;
    Pump();
  }));
}

void McpSeat::Pump() {
  auto alive = lifetime_.Watch();
  for (const std::string& call_id : queue_.TakeExpired(loop_.Now())) {
    RefuseQueued(call_id, v1::QUEUE_BUDGET_SPENT,
                 fmt::format("its turn at '{}' did not come in time", description_.name));
  }
  while (auto call_id = queue_.Take()) {
    Start(*call_id);
    if (alive.expired()) return;
  }
  if (queue_.waiting() > 0) {
    queue_.TellPlaces([this](const std::string& call_id, uint32_t ahead) {
      TellLater([this, call_id, ahead] {
        auto at = calls_.find(call_id);
        if (at != calls_.end() && at->second.phase == Phase::kQueued) {
          observer_.OnQueued(call_id, ahead);
        }
      });
    });
    const absl::Time due = queue_.next_deadline();
    if (due != absl::InfiniteFuture() && (!queue_timer_.pending() || due < queue_timer_due_)) {
      queue_timer_due_ = due;
      queue_timer_ = loop_.At(due, [this] { Pump(); });
    }
  }
  if (queue_.waiting() != queue_told_) ReportSoon();
  ReportHealth();
  Flush();
}

void McpSeat::Start(const std::string& call_id) {
  auto alive = lifetime_.Watch();
  Flush();
  if (alive.expired()) return;
  auto at = calls_.find(call_id);
  if (at == calls_.end()) return;
  Call& call = at->second;
  call.slot = true;
  call.phase = Phase::kRunning;
  call.started = loop_.Now();
  const bool may_start = observer_.OnStarting(call_id, incarnation_);
  if (alive.expired()) return;
  at = calls_.find(call_id);
  if (at == calls_.end()) return;
  if (!may_start || session_ == nullptr) {
    Finish(call_id, may_start ? MakeEnd(v1::REJECTED, v1::BACKEND_UNREACHABLE, v1::NOT_STARTED,
                                        "the DCC has just gone")
                              : MakeEnd(v1::REJECTED, v1::JOURNAL_UNWRITABLE, v1::NOT_STARTED,
                                        "the agent's journal cannot be written"));
    return;
  }
  if (call.spec.run_budget != absl::InfiniteDuration()) {
    call.timer = loop_.After(call.spec.run_budget, [this, call_id] { OnRunBudgetSpent(call_id); });
  }
  ChooseSession(call);
  std::optional<McpReply> answer = AnswerForBackend(call);
  if (!answer) answer = DeclinedUrl(call);
  if (answer) return OnReply(call_id, *std::move(answer));
  if (!SetsLevelFirst(call)) SendCall(call_id);
}

void McpSeat::OnRunBudgetSpent(const std::string& id) {
  // The timer that holds `id` is replaced below.
  const std::string call_id = id;
  auto at = calls_.find(call_id);
  if (at == calls_.end() || at->second.phase != Phase::kRunning) return;
  Call& call = at->second;
  CallEnd end = MakeEnd(
      v1::EXPIRED, v1::RUN_BUDGET_SPENT, v1::RUNNING,
      fmt::format("no answer within {} ms", absl::ToInt64Milliseconds(call.spec.run_budget)));
  const bool reached = TellBackendOfCancel(call, "run budget spent");
  if (reached) {
    end.facts.mutable_detail()->append("; the tool is still at work");
  } else {
    end.certainty = v1::NOT_STARTED;
  }
  call.overran = reached;
  EndLeftCall(call, std::move(end));
  ReportHealth();
  Flush();
}

// False: nothing has been sent to the backend, and nothing will be.
bool McpSeat::TellBackendOfCancel(const Call& call, std::string_view reason) {
  if (call.request == 0) return false;
  McpSession* session = SessionOf(call);
  return session == nullptr || session->CancelRequest(call.request, reason);
}

// The caller is told; unless nothing was sent the slot stays with the call until the DCC answers.
void McpSeat::EndLeftCall(Call& call, CallEnd end) {
  const std::string call_id = call.spec.call_id;
  end.queued = call.started - call.submitted;
  end.ran = loop_.Now() - call.started;
  if (session_ != nullptr) end.backend_revision = session_->server().revision;
  // Between two rounds nothing runs.
  const bool over = end.certainty == v1::NOT_STARTED || call.round.open > 0;
  EndAsksOf(call_id);
  TellLater([this, call_id, end = std::move(end)]() mutable {
    observer_.OnEnd(call_id, std::move(end));
  });
  if (over) {
    call_of_request_.erase({call.session, call.request});
    FreeSlot(call);
    calls_.erase(call_id);
    return ReportHealth();
  }
  call.told = true;
  if (call.phase == Phase::kRunning) AwaitLateAnswer(call);
}

void McpSeat::AwaitLateAnswer(Call& call) {
  const std::string call_id = call.spec.call_id;
  const absl::Time now = loop_.Now();
  call.give_up_at = now + limits_.late_max;
  if (session_ != nullptr && !session_->backend().ends_unanswered_exchanges()) {
    const absl::Time ask_at = std::max(
        now + limits_.silence_max, call.started + call.spec.run_budget * (call.overran ? 2 : 1));
    if (ask_at < call.give_up_at) {
      call.timer = loop_.At(ask_at, [this, call_id] { AskWhetherDropped(std::string(call_id)); });
      return;
    }
  }
  call.timer = loop_.At(call.give_up_at, [this, call_id] {
    GiveUpLeftCall(call_id, fmt::format("the DCC has not answered for {} after the caller left",
                                        absl::FormatDuration(limits_.late_max)));
  });
}

// A backend that is still at the call in its only thread does not answer the ping either.
void McpSeat::AskWhetherDropped(const std::string& call_id) {
  auto at = calls_.find(call_id);
  if (at == calls_.end()) return;
  at->second.timer = loop_.At(at->second.give_up_at, [this, call_id] {
    GiveUpLeftCall(call_id, fmt::format("the DCC has not answered for {} after the caller left",
                                        absl::FormatDuration(limits_.late_max)));
  });
  if (session_ == nullptr) return;
  session_->Request("ping", Payload(), false, [this, call_id](McpReply reply) {
    auto left = calls_.find(call_id);
    if (reply.kind == McpReply::Kind::kFailed || left == calls_.end()) return;
    left->second.timer = loop_.After(limits_.silence_settle, [this, call_id] {
      GiveUpLeftCall(call_id,
                     "the caller left, and the server answers pings but not this call: it has "
                     "dropped it, as MCP allows");
    });
  });
}

void McpSeat::GiveUpLeftCall(const std::string& id, std::string detail) {
  const std::string call_id = id;  // the timer that holds it goes with the call
  auto at = calls_.find(call_id);
  if (at == calls_.end()) return;
  if (McpSession* session = SessionOf(at->second)) session->Forget(at->second.request);
  Finish(call_id, MakeEnd(v1::LOST, v1::BACKEND_CONNECTION_LOST, v1::UNKNOWN, std::move(detail)));
}

}  // namespace callboard::agent
