// What stays of ended calls: their receipts, and the outcomes whose callers may ask again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "callboard/v1/control.pb.h"
#include "callboard/v1/store.pb.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "server/flows/durable_log.h"
#include "server/flows/kept_bodies.h"
#include "server/flows/plane.h"

namespace callboard::server {

// A record of the table as callers see it.
v1::Call ToProto(const Execution& execution, absl::Time now);

// What is stored of an ended one.
v1::Receipt ToReceipt(const Execution& execution, const Plane& plane);

// Loop thread, owned by ControlPlane::Impl. A call's end costs a few words here; once in
// settle_delay all that ended meanwhile become one block in the store. Bounds: receipts live as
// long as their records (ExecutionTable); of outcomes receipt_outcomes_bytes_max are kept, the
// oldest go first.
class Receipts {
 public:
  Receipts(Plane& plane, DurableLog& durable, KeptBodies& bodies);
  // Runs when the store has the receipt of a record as the record is now.
  void OnDurable(absl::AnyInvocable<void(Execution&)> observer) { observer_ = std::move(observer); }

  // The call has ended, or more is known of its end. `erase_call`: its CallRecord goes with it,
  // unless its outcome has taken the place.
  void Add(const Execution& execution, bool erase_call);
  // All that was added is put now.
  void Write();

  // In the call's record. Without a body by reference. `in_stream`: a stream puts it there.
  void KeepOutcome(Execution& execution, const v1::CallOutcome& outcome, bool in_stream);
  // In a record of its own. A body by reference is kept beside it, of which the outcome is event
  // `n` at its agent.
  void KeepBeside(Execution& execution, v1::CallOutcome outcome, uint64_t n);
  // Of a call whose caller has been told something else: kept in place of that if it answers what
  // the caller has been left without.
  void KeepLate(Execution& execution, v1::CallOutcome outcome, uint64_t n);
  // The body that was kept beside it is gone: that, and why, is what stays.
  void LoseBody(Execution& execution, const std::string& why);
  // nullopt: it is not kept. `reply` runs inline or later.
  void ReadOutcome(const CallId& id,
                   absl::AnyInvocable<void(std::optional<v1::CallOutcome>)> reply);

  // ---- at start ----
  void Restore(uint64_t block, const v1::ReceiptBlock& receipts);
  // After the blocks. Of a record of so many bytes.
  void RestoreEnded(const CallId& id, const v1::Receipt& receipt, size_t bytes);
  // After the calls. `body_bytes`: of a body beside it, or 0.
  void RestoreOutcome(const CallId& id, size_t bytes, uint64_t body_bytes);

 private:
  void Forget(const Execution& execution);
  void Release(uint64_t block);
  // nullptr: the bounds have no room for it.
  Execution* RestoreOne(const v1::Receipt& receipt);
  void CountOutcome(Execution& execution, size_t bytes, bool in_record);
  // The oldest go.
  void KeepBound();
  // It is kept no longer.
  void DropOutcome(Execution& execution);
  void EraseOutcome(const Execution& execution);

  Plane& plane_;
  DurableLog& durable_;
  KeptBodies& bodies_;
  absl::AnyInvocable<void(Execution&)> observer_;
  std::map<CallId, bool> added_;       // to be written: whether its CallRecord goes
  std::map<uint64_t, size_t> blocks_;  // how many receipts of each are the newest of their call
  uint64_t next_block_ = 1;
  std::deque<CallId> outcomes_;  // the oldest first; some may be gone
  uint64_t outcome_bytes_ = 0;
  core::Timer timer_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
