// One record per call from its start to the end of its receipt, ended exactly once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/strings.h"
#include "server/domain/execution_metrics.h"
#include "server/domain/ids.h"
#include "server/domain/limits.h"

namespace callboard::server {

struct Execution {
  CallId call_id;
  uint64_t order = 0;                     // grows by one per call: the order of ListCalls
  v1::CallPhase phase = v1::CALL_QUEUED;  // by ExecutionTable::SetPhase
  absl::Time phase_since;
  v1::OutcomeClass outcome = v1::OUTCOME_CLASS_UNSPECIFIED;
  v1::Reason reason = v1::REASON_UNSPECIFIED;
  v1::Certainty certainty = v1::NOT_STARTED;
  uint32_t attempt = 1;
  std::string seat_id;
  std::string agent_id;
  uint64_t incarnation = 0;  // the process it started in
  std::string session_id;
  std::string principal;
  std::string client_request_id;  // raw JSON
  std::string method;
  std::string tool;
  std::string message;
  std::string backend_job_id;
  absl::Time created;
  absl::Time started = absl::InfiniteFuture();  // when its tool began to work
  absl::Time ended;
  uint64_t queue_ms = 0;
  uint64_t run_ms = 0;
  uint32_t ahead = 0;
  bool ended_once = false;
  bool agent_outcome = false;  // the agent's own outcome has come
  bool settled = false;        // the agent has been, or will be told to forget it
  bool orphan = false;
  bool is_error = false;  // the tool's own

  // C11: empty without a key.
  std::string idempotency_key;
  std::string idempotency_scope;  // whose key of which tool it is, as the table knows it
  std::string arguments_digest;

  // In the store.
  uint64_t receipt_block = 0;      // that holds the newest receipt; 0: none yet
  bool receipt_durable = false;    // and it says what this record says
  bool settle_wanted = false;      // as soon as it is
  size_t outcome_bytes = 0;        // of the outcome kept beside the receipt; 0: none
  bool outcome_in_record = false;  // it is the one of the call's record
  bool record_in_stream = false;   // that record is the last event of a stream, too

  bool over() const { return ended_once; }
};

// What ends a call.
struct Ending {
  v1::OutcomeClass outcome = v1::RESULT;
  v1::Reason reason = v1::REASON_UNSPECIFIED;
  v1::Certainty certainty = v1::FINISHED;
  std::string message;
  bool is_error = false;
  uint64_t queue_ms = 0;
  uint64_t run_ms = 0;
  std::string backend_job_id;
  bool from_agent = false;
};

// The terminal phase of C1 that an ending means.
v1::CallPhase TerminalPhase(const Ending& ending);

// Pure table, loop thread. Open records are bounded by open_executions_max (full() says so; the
// caller refuses), ended ones by receipts_max and the receipts' age: the oldest go.
class ExecutionTable {
 public:
  ExecutionTable(const Limits& limits, const Budgets& budgets)
      : limits_(limits), budgets_(budgets) {}

  // Runs for each record that leaves the table.
  void OnDropped(absl::AnyInvocable<void(const Execution&)> observer) {
    dropped_ = std::move(observer);
  }
  bool full() const { return open_ >= limits_.open_executions_max; }
  // The record is valid until it is ended and swept.
  Execution& Open(const CallId& id, absl::Time now);
  Execution* Find(const CallId& id) const;
  Execution* FindJob(std::string_view backend_job_id) const;
  // The newest call with that key.
  Execution* FindKey(std::string_view idempotency_scope) const;
  void SetKey(Execution& execution, std::string scope, std::string key, std::string digest);

  // The one place where the phase of an open call changes.
  void SetPhase(Execution& execution, v1::CallPhase phase, absl::Time now);

  // The one place where a call ends. True for the first ending; a later one completes the receipt
  // and changes nothing for the caller, who has been told.
  bool End(Execution& execution, const Ending& ending, absl::Time now);

  void Sweep(absl::Time now);

  // In the order of their start.
  const std::map<uint64_t, std::unique_ptr<Execution>>& all() const { return by_order_; }
  size_t open() const { return open_; }
  ExecutionMetrics& metrics() { return metrics_; }
  const ExecutionMetrics& metrics() const { return metrics_; }
  size_t ended() const { return by_order_.size() - open_; }

 private:
  void Drop(uint64_t order);

  const Limits limits_;
  const Budgets budgets_;
  std::map<uint64_t, std::unique_ptr<Execution>> by_order_;
  std::map<std::pair<absl::Time, uint64_t>, Execution*> ended_;
  absl::flat_hash_map<CallId, Execution*> by_id_;
  core::StringMap<Execution*> by_job_;
  core::StringMap<Execution*> by_key_;
  absl::AnyInvocable<void(const Execution&)> dropped_;
  uint64_t next_order_ = 1;
  size_t open_ = 0;
  ExecutionMetrics metrics_;
};

}  // namespace callboard::server
