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

v1::Receipt ToReceipt(const Execution& execution, const Plane& plane) {
  v1::Receipt receipt;
  *receipt.mutable_call() = ToProto(execution, plane.loop.Now());
  receipt.set_created_unix_ms(plane.UnixMs(execution.created));
  receipt.set_ended_unix_ms(plane.UnixMs(execution.ended));
  if (execution.started != absl::InfiniteFuture()) {
    receipt.set_started_unix_ms(plane.UnixMs(execution.started));
  }
  receipt.set_agent_id(execution.agent_id);
  receipt.set_class_(execution.outcome);
  receipt.set_is_error(execution.is_error);
  receipt.set_agent_outcome(execution.agent_outcome);
  receipt.set_client_request_id(execution.client_request_id);
  receipt.set_arguments_digest(execution.arguments_digest);
  receipt.set_idempotency_scope(execution.idempotency_scope);
  return receipt;
}

Receipts::Receipts(Plane& plane, DurableLog& durable, KeptBodies& bodies)
    : plane_(plane), durable_(durable), bodies_(bodies) {
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
  const uint64_t block = next_block_++;
  v1::ReceiptBlock receipts;
  std::vector<CallId> calls;
  std::vector<CallId> erased;
  for (const auto& [id, erase] : std::exchange(added_, {})) {
    if (erase) erased.push_back(id);
    Execution* execution = plane_.executions.Find(id);
    if (execution == nullptr) continue;
    *receipts.add_receipts() = ToReceipt(*execution, plane_);
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
  EraseOutcome(execution);
}

// ---- outcomes -----------------------------------------------------------------------------------

void Receipts::EraseOutcome(const Execution& execution) {
  if (!execution.outcome_in_record) {
    durable_.Put(StoreKey::OfOutcome(execution.call_id), "");
    bodies_.Forget(execution.call_id);
  } else if (!execution.record_in_stream) {
    durable_.Put(StoreKey::OfCall(execution.call_id), "");
  }
}

void Receipts::DropOutcome(Execution& execution) {
  if (execution.outcome_bytes == 0) return;
  // The record that goes has the only receipt until then.
  if (added_.contains(execution.call_id)) Write();
  outcome_bytes_ -= std::exchange(execution.outcome_bytes, 0);
  EraseOutcome(execution);
}

void Receipts::CountOutcome(Execution& execution, size_t bytes, bool in_record) {
  execution.outcome_bytes = bytes;
  execution.outcome_in_record = in_record;
  outcome_bytes_ += bytes;
  outcomes_.push_back(execution.call_id);
}

void Receipts::KeepBound() {
  while (outcome_bytes_ > plane_.config.limits.receipt_outcomes_bytes_max && !outcomes_.empty()) {
    Execution* oldest = plane_.executions.Find(outcomes_.front());
    outcomes_.pop_front();
    if (oldest != nullptr) DropOutcome(*oldest);
  }
  // Of records that have gone.
  while (!outcomes_.empty() && plane_.executions.Find(outcomes_.front()) == nullptr) {
    outcomes_.pop_front();
  }
}

void Receipts::KeepOutcome(Execution& execution, const v1::CallOutcome& outcome, bool in_stream) {
  size_t bytes = outcome.ByteSizeLong();
  execution.record_in_stream = in_stream;
  if (!in_stream) {
    v1::CallRecord record;
    *record.mutable_ended()->mutable_event()->mutable_outcome() = outcome;
    *record.mutable_ended()->mutable_receipt() = ToReceipt(execution, plane_);
    std::string value = record.SerializeAsString();
    bytes = value.size();
    durable_.Put(StoreKey::OfCall(execution.call_id), std::move(value));
  }
  CountOutcome(execution, bytes, /*in_record=*/true);
  KeepBound();
}

void Receipts::KeepBeside(Execution& execution, v1::CallOutcome outcome, uint64_t n) {
  outcome.clear_id();
  DropOutcome(execution);
  const uint64_t body_bytes = outcome.body().size();
  std::string value = outcome.SerializeAsString();
  CountOutcome(execution, value.size(), /*in_record=*/false);
  durable_.Put(StoreKey::OfOutcome(execution.call_id), std::move(value));
  KeepBound();
  if (body_bytes > 0 && execution.outcome_bytes > 0) {
    bodies_.Begin(execution.call_id, {execution.agent_id, execution.attempt, n}, body_bytes);
  }
}

void Receipts::LoseBody(Execution& execution, const std::string& why) {
  v1::CallOutcome outcome;
  outcome.set_call_id(execution.call_id.str());
  outcome.set_client_request_id(execution.client_request_id);
  outcome.set_class_(v1::LOST);
  outcome.set_reason(v1::BODY_LOST);
  outcome.set_certainty(execution.certainty);
  outcome.set_queue_ms(execution.queue_ms);
  outcome.set_run_ms(execution.run_ms);
  outcome.set_message("the call has ended, but its result is not kept: " + why);
  KeepBeside(execution, std::move(outcome), 0);
}

void Receipts::KeepLate(Execution& execution, v1::CallOutcome outcome, uint64_t n) {
  const bool wanted = execution.outcome == v1::EXPIRED || execution.outcome == v1::LOST;
  const bool answers = outcome.class_() == v1::RESULT || outcome.class_() == v1::RPC_ERROR;
  if (!wanted || !answers) return;
  outcome.set_late(true);
  KeepBeside(execution, std::move(outcome), n);
}

void Receipts::ReadOutcome(const CallId& id,
                           absl::AnyInvocable<void(std::optional<v1::CallOutcome>)> reply) {
  const Execution* execution = plane_.executions.Find(id);
  if (execution == nullptr || execution->outcome_bytes == 0) return reply(std::nullopt);
  durable_.Flush();
  const bool in_record = execution->outcome_in_record;
  const std::string key = in_record ? StoreKey::OfCall(id) : StoreKey::OfOutcome(id);
  plane_.store.Read(
      key, key + '\0', 1,
      lifetime_.Wrap([in_record, reply = std::move(reply)](
                         absl::StatusOr<std::vector<StoreRecord>> records) mutable {
        if (!records.ok() || records->empty()) return reply(std::nullopt);
        const std::string& value = records->front().value;
        v1::CallRecord record;
        v1::CallOutcome outcome;
        if (!(in_record ? record.ParseFromString(value) : outcome.ParseFromString(value))) {
          return reply(std::nullopt);
        }
        if (in_record) {
          if (!record.ended().event().has_outcome()) return reply(std::nullopt);
          outcome = std::move(*record.mutable_ended()->mutable_event()->mutable_outcome());
          outcome.clear_id();
        }
        reply(std::move(outcome));
      }));
}

// ---- at start -----------------------------------------------------------------------------------

void Receipts::Restore(uint64_t block, const v1::ReceiptBlock& receipts) {
  next_block_ = std::max(next_block_, block + 1);
  for (const v1::Receipt& receipt : receipts.receipts()) {
    Execution* record = RestoreOne(receipt);
    if (record == nullptr) continue;
    record->receipt_durable = true;
    const uint64_t former = std::exchange(record->receipt_block, block);
    ++blocks_[block];
    if (former != 0) Release(former);
  }
  if (!blocks_.contains(block)) durable_.Put(StoreKey::OfReceipts(block), "");
}

Execution* Receipts::RestoreOne(const v1::Receipt& receipt) {
  const v1::Call& call = receipt.call();
  const auto id = CallId::From(call.call_id());
  if (!id) return nullptr;
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
  return plane_.executions.Find(*id);  // the bound may have cost it at once
}

void Receipts::RestoreEnded(const CallId& id, const v1::Receipt& receipt, size_t bytes) {
  Execution* record = plane_.executions.Find(id);
  if (record == nullptr) {
    // Killed before its block was written; or the block has gone and a stream held the record.
    record = RestoreOne(receipt);
    if (record == nullptr) return;
    Add(*record, /*erase_call=*/false);
  }
  CountOutcome(*record, bytes, /*in_record=*/true);
}

void Receipts::RestoreOutcome(const CallId& id, size_t bytes, uint64_t body_bytes) {
  Execution* record = plane_.executions.Find(id);
  if (record == nullptr || !record->over()) return durable_.Put(StoreKey::OfOutcome(id), "");
  DropOutcome(*record);  // a late one is kept in place of what its caller was told
  CountOutcome(*record, bytes, /*in_record=*/false);
  if (body_bytes > 0) bodies_.Restore(id, {record->agent_id, record->attempt, 0}, body_bytes);
}

}  // namespace callboard::server
