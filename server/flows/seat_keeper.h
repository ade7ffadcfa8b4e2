// What of a seat outlives the control plane: which it is and when it was there, as the store has
// it.
#pragma once

#include <string>

#include "callboard/v1/agent.pb.h"
#include "callboard/v1/store.pb.h"
#include "server/flows/durable_log.h"
#include "server/flows/plane.h"

namespace callboard::server {

// Loop thread, owned by ControlPlane::Impl. Nobody waits for these records: one that a kill has
// lost is a seat that its agent announces anew. Bound: one record for each seat of the registry,
// kKeptBytesMax at most.
class SeatKeeper {
 public:
  SeatKeeper(Plane& plane, DurableLog& durable) : plane_(plane), durable_(durable) {}

  // Whether the two states differ in what is kept. What changes from call to call is not.
  static bool Differ(const v1::SeatState& a, const v1::SeatState& b);
  void Keep(const std::string& seat_id);
  void Forget(const std::string& seat_id);
  // Of a former control plane: calls for it wait for its agent, as after a cut of its link. One
  // that was linked when that control plane ended counts as detached from now on.
  void Restore(const std::string& seat_id, const v1::StoredSeat& stored);

 private:
  Plane& plane_;
  DurableLog& durable_;
};

}  // namespace callboard::server
