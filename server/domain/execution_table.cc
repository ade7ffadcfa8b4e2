// Implementation of ExecutionTable.
#include "server/domain/execution_table.h"

namespace callboard::server {

v1::CallPhase TerminalPhase(const Ending& ending) {
  switch (ending.outcome) {
    case v1::RESULT:
      return ending.is_error ? v1::CALL_FAILED : v1::CALL_SUCCEEDED;
    case v1::CANCELLED:
      return v1::CALL_CANCELLED;
    case v1::EXPIRED:
      return v1::CALL_TIMED_OUT;
    case v1::LOST:
      return ending.certainty == v1::UNKNOWN ? v1::CALL_OUTCOME_UNKNOWN : v1::CALL_FAILED;
    default:
      return v1::CALL_FAILED;
  }
}

Execution& ExecutionTable::Open(const CallId& id, absl::Time now) {
  auto owned = std::make_unique<Execution>();
  Execution& execution = *owned;
  execution.call_id = id;
  execution.order = next_order_++;
  execution.created = execution.phase_since = now;
  by_id_[id] = &execution;
  by_order_.emplace_hint(by_order_.end(), execution.order, std::move(owned));
  ++open_;
  metrics_.Opened(execution.phase);
  return execution;
}

void ExecutionTable::SetPhase(Execution& execution, v1::CallPhase phase, absl::Time now) {
  if (execution.phase == phase) return;
  metrics_.PhaseLeft(execution.phase, phase, now - execution.phase_since);
  execution.phase = phase;
  execution.phase_since = now;
}

Execution* ExecutionTable::Find(const CallId& id) const {
  auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

Execution* ExecutionTable::FindJob(std::string_view backend_job_id) const {
  auto found = by_job_.find(backend_job_id);
  return found == by_job_.end() ? nullptr : found->second;
}

Execution* ExecutionTable::FindKey(std::string_view idempotency_scope) const {
  auto found = by_key_.find(idempotency_scope);
  return found == by_key_.end() ? nullptr : found->second;
}

void ExecutionTable::SetKey(Execution& execution, std::string scope, std::string key,
                            std::string digest) {
  by_key_[scope] = &execution;
  execution.idempotency_scope = std::move(scope);
  execution.idempotency_key = std::move(key);
  execution.arguments_digest = std::move(digest);
}

bool ExecutionTable::End(Execution& execution, const Ending& ending, absl::Time now) {
  const bool first = !execution.ended_once;
  if (ending.from_agent) execution.agent_outcome = true;
  if (!ending.backend_job_id.empty() && execution.backend_job_id.empty()) {
    execution.backend_job_id = ending.backend_job_id;
    by_job_[ending.backend_job_id] = &execution;
  }
  if (ending.queue_ms != 0) execution.queue_ms = ending.queue_ms;
  if (ending.run_ms != 0) execution.run_ms = ending.run_ms;
  // A late ending knows better what became of the tool, but not what the caller was told.
  execution.certainty = ending.certainty;
  execution.receipt_durable = false;
  if (!first) return false;
  metrics_.Ended(execution.phase, now - execution.phase_since, ending.outcome, ending.is_error,
                 ending.reason, now - execution.created);
  execution.ended_once = true;
  execution.is_error = ending.is_error;
  execution.outcome = ending.outcome;
  execution.reason = ending.reason;
  execution.message = ending.message;
  execution.phase = TerminalPhase(ending);
  execution.ended = now;
  execution.ahead = 0;
  --open_;
  ended_[{now, execution.order}] = &execution;
  while (ended_.size() > limits_.receipts_max) Drop(ended_.begin()->second->order);
  return true;
}

void ExecutionTable::Drop(uint64_t order) {
  auto found = by_order_.find(order);
  Execution& execution = *found->second;
  if (!execution.backend_job_id.empty() && FindJob(execution.backend_job_id) == &execution) {
    by_job_.erase(execution.backend_job_id);
  }
  if (!execution.idempotency_scope.empty() && FindKey(execution.idempotency_scope) == &execution) {
    by_key_.erase(execution.idempotency_scope);
  }
  if (dropped_ != nullptr) dropped_(execution);
  ended_.erase({execution.ended, order});
  by_id_.erase(execution.call_id);
  by_order_.erase(found);
}

void ExecutionTable::Sweep(absl::Time now) {
  while (!ended_.empty() && ended_.begin()->first.first + budgets_.receipt <= now) {
    Drop(ended_.begin()->second->order);
  }
}

}  // namespace callboard::server
