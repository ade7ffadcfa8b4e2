// Implementation of Receipts.
#include "server/flows/receipts.h"

#include <algorithm>
#include <utility>

#include "core/runtime/milliseconds.h"
#include "core/runtime/planted_bug.h"
#include "server/flows/store_key.h"

namespace callboard::server {

v1::Call ToProto(const Execution& execution, absl::Time now) {
  v1::Call call;
  call.set_call_id(execution.call_id.str());
  call.set_phase(execution.phase);
  call.set_certainty(execution.certainty);
  call.set_reason(execution.reason);
  call.set_seat_id(execution.seat_id);
  call.set_incarnation(execution.incarnation);
  call.set_method(execution.method);
  call.set_tool(execution.tool);
  call.set_session_id(execution.session_id);
  call.set_principal(execution.principal);
  call.set_attempt(execution.attempt);
  call.set_age_ms(core::ToMillis(now - execution.created));
  if (execution.over()) call.set_ended_ms(core::ToMillis(now - execution.ended));
  call.set_queue_ms(execution.queue_ms);
  call.set_run_ms(execution.run_ms);
  call.set_ahead(execution.ahead);
  call.set_message(execution.message);
  call.set_backend_job_id(execution.backend_job_id);
  call.set_settled(execution.settled);
  call.set_orphan(execution.orphan);
  call.set_idempotency_key(execution.idempotency_key);
  return call;
}

Receipts::Receipts(Plane& plane, DurableLog& durable) : plane_(plane), durable_(durable) {
  plane_.executions.OnDropped([this](const Execution& execution) { Forget(execution); });
}

void Receipts::Add(const Execution& execution, bool erase_call) {
  bool& erase = added_[execution.call_id];
  erase = erase || erase_call;
  if (timer_.pending()) return;
  timer_ = plane_.loop.After(plane_.config.budgets.settle_delay, [this] {
    Write();
    durable_.Flush();
  });
}

void Receipts::Write() {
  timer_.Cancel();
  if (added_.empty()) return;
  const absl::Time now = plane_.loop.Now();
  const uint64_t block = next_block_++;
  v1::ReceiptBlock receipts;
  std::vector<CallId> calls;
  std::vector<CallId> erased;
  for (const auto& [id, erase] : std::exchange(added_, {})) {
    if (erase) erased.push_back(id);
    Execution* execution = plane_.executions.Find(id);
    if (execution == nullptr) continue;
    v1::Receipt& receipt = *receipts.add_receipts();
    *receipt.mutable_call() = ToProto(*execution, now);
    receipt.set_created_unix_ms(plane_.UnixMs(execution->created));
    receipt.set_ended_unix_ms(plane_.UnixMs(execution->ended));
    if (execution->started != absl::InfiniteFuture()) {
      receipt.set_started_unix_ms(plane_.UnixMs(execution->started));
    }
    receipt.set_agent_id(execution->agent_id);
    receipt.set_class_(execution->outcome);
    receipt.set_is_error(execution->is_error);
    receipt.set_agent_outcome(execution->agent_outcome);
    receipt.set_client_request_id(execution->client_request_id);
    receipt.set_arguments_digest(execution->arguments_digest);
    receipt.set_idempotency_scope(execution->idempotency_scope);
    const uint64_t former = std::exchange(execution->receipt_block, block);
    ++blocks_[block];
    if (former != 0) Release(former);
    calls.push_back(id);
  }
  if (!calls.empty() && !core::Planted(core::PlantedBug::kReceiptLost)) {
    durable_.Put(StoreKey::OfReceipts(block), receipts.SerializeAsString());
  }
  for (const CallId& id : erased) durable_.Put(StoreKey::OfCall(id), "");
  auto stored = [this, block, calls = std::move(calls)] {
    for (const CallId& id : calls) {
      Execution* execution = plane_.executions.Find(id);
      // A newer one is on its way where more has become known.
      if (execution == nullptr || execution->receipt_block != block || added_.contains(id)) {
        continue;
      }
      execution->receipt_durable = true;
      if (observer_ != nullptr) observer_(*execution);
    }
  };
  if (core::Planted(core::PlantedBug::kSettledBeforeDurable)) return stored();
  durable_.OnceDurable(lifetime_.Wrap(std::move(stored)));
}

void Receipts::Release(uint64_t block) {
  auto found = blocks_.find(block);
  if (found == blocks_.end() || --found->second > 0) return;
  blocks_.erase(found);
  durable_.Put(StoreKey::OfReceipts(block), "");
}

void Receipts::Forget(const Execution& execution) {
  if (execution.receipt_block != 0) Release(execution.receipt_block);
  if (execution.outcome_bytes == 0) return;
  outcome_bytes_ -= execution.outcome_bytes;
  durable_.Put(StoreKey::OfOutcome(execution.call_id), "");
}

// ---- outcomes -----------------------------------------------------------------------------------

void Receipts::KeepOutcome(Execution& execution, v1::CallOutcome outcome) {
  if (outcome.body().has_size()) return;
  outcome.clear_id();
  std::string value = outcome.SerializeAsString();
  outcome_bytes_ += value.size();
  outcome_bytes_ -= execution.outcome_bytes;
  execution.outcome_bytes = value.size();
  outcomes_.push_back(execution.call_id);
  durable_.Put(StoreKey::OfOutcome(execution.call_id), std::move(value));
  while (outcome_bytes_ > plane_.config.limits.receipt_outcomes_bytes_max && !outcomes_.empty()) {
    Execution* oldest = plane_.executions.Find(outcomes_.front());
    outcomes_.pop_front();
    if (oldest == nullptr || oldest->outcome_bytes == 0) continue;
    outcome_bytes_ -= std::exchange(oldest->outcome_bytes, 0);
    durable_.Put(StoreKey::OfOutcome(oldest->call_id), "");
  }
  // Of records that have gone.
  while (!outcomes_.empty() && plane_.executions.Find(outcomes_.front()) == nullptr) {
    outcomes_.pop_front();
  }
}

void Receipts::KeepLate(Execution& execution, v1::CallOutcome outcome) {
  const bool wanted = execution.outcome == v1::EXPIRED || execution.outcome == v1::LOST;
  const bool answers = outcome.class_() == v1::RESULT || outcome.class_() == v1::RPC_ERROR;
  if (!wanted || !answers) return;
  outcome.set_late(true);
  KeepOutcome(execution, std::move(outcome));
}

void Receipts::ReadOutcome(const CallId& id,
                           absl::AnyInvocable<void(std::optional<v1::CallOutcome>)> reply) {
  const Execution* execution = plane_.executions.Find(id);
  if (execution == nullptr || execution->outcome_bytes == 0) return reply(std::nullopt);
  durable_.Flush();
  const std::string key = StoreKey::OfOutcome(id);
  plane_.store.Read(
      key, key + '0', 1,
      lifetime_.Wrap([reply = std::move(reply)](
                         absl::StatusOr<std::vector<StoreRecord>> records) mutable {
        v1::CallOutcome outcome;
        if (!records.ok() || records->empty() || !outcome.ParseFromString(records->front().value)) {
          return reply(std::nullopt);
        }
        reply(std::move(outcome));
      }));
}

// ---- at start -----------------------------------------------------------------------------------

void Receipts::Restore(uint64_t block, const v1::ReceiptBlock& receipts) {
  next_block_ = std::max(next_block_, block + 1);
  for (const v1::Receipt& receipt : receipts.receipts()) RestoreOne(block, receipt);
  if (!blocks_.contains(block)) durable_.Put(StoreKey::OfReceipts(block), "");
}

void Receipts::RestoreOne(uint64_t block, const v1::Receipt& receipt) {
  const v1::Call& call = receipt.call();
  const auto id = CallId::From(call.call_id());
  if (!id) return;
  Execution* record = plane_.executions.Find(*id);
  if (record == nullptr) {
    record = &plane_.executions.Open(*id, plane_.FromUnixMs(receipt.created_unix_ms()));
    record->seat_id = call.seat_id();
    record->agent_id = receipt.agent_id();
    record->incarnation = call.incarnation();
    record->session_id = call.session_id();
    record->principal = call.principal();
    record->client_request_id = receipt.client_request_id();
    record->method = call.method();
    record->tool = call.tool();
    record->orphan = call.orphan();
    if (receipt.started_unix_ms() != 0) {
      record->started = plane_.FromUnixMs(receipt.started_unix_ms());
    }
    if (!receipt.idempotency_scope().empty()) {
      plane_.executions.SetKey(*record, receipt.idempotency_scope(), call.idempotency_key(),
                               receipt.arguments_digest());
    }
  }
  record->attempt = call.attempt();
  Ending ending;
  ending.outcome = receipt.class_();
  ending.reason = call.reason();
  ending.certainty = call.certainty();
  ending.message = call.message();
  ending.is_error = receipt.is_error();
  ending.queue_ms = call.queue_ms();
  ending.run_ms = call.run_ms();
  ending.backend_job_id = call.backend_job_id();
  ending.from_agent = receipt.agent_outcome();
  plane_.executions.End(*record, ending, plane_.FromUnixMs(receipt.ended_unix_ms()));
  record = plane_.executions.Find(*id);  // the bound may have cost it at once
  if (record == nullptr) return;
  record->receipt_durable = true;
  const uint64_t former = std::exchange(record->receipt_block, block);
  ++blocks_[block];
  if (former != 0) Release(former);
}

void Receipts::RestoreOutcome(const CallId& id, size_t bytes) {
  Execution* record = plane_.executions.Find(id);
  if (record == nullptr || !record->over()) return durable_.Put(StoreKey::OfOutcome(id), "");
  record->outcome_bytes = bytes;
  outcome_bytes_ += bytes;
  outcomes_.push_back(id);
}

}  // namespace callboard::server
