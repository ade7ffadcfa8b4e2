// Which notices of seats have been taken: what is sent again is told once, what is kept is said.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/functional/any_invocable.h"
#include "callboard/v1/agent.pb.h"
#include "callboard/v1/store.pb.h"
#include "core/runtime/lifetime.h"
#include "server/flows/durable_log.h"
#include "server/flows/plane.h"

namespace callboard::server {

// Of agents that keep notices until they are acknowledged. Loop thread, owned by
// ControlPlane::Impl. A mark for each seat says up to which notice all have been told; it becomes
// durable together with what they have put into streams, and is acknowledged then, or at once if
// nobody listened. While the store fails nothing is acknowledged that waits for it. Bound: one mark
// for each seat of the registry.
class NoticeIntake {
 public:
  using AckFn =
      absl::AnyInvocable<void(const std::string& seat_id, const std::string& boot_id, uint64_t n)>;

  NoticeIntake(Plane& plane, DurableLog& durable, AckFn ack)
      : plane_(plane), durable_(durable), ack_(std::move(ack)) {}

  // How many before it the agent had to give up; nullopt: it has been told before.
  std::optional<uint64_t> Take(const std::string& boot_id, const v1::Notice& notice);
  // The same turn: it has been told. `stored`: it was put into a stream that must be durable.
  void OnTold(const std::string& seat_id, bool stored);
  void Forget(const std::string& seat_id);
  // After the seats; a mark of a seat that is not known any more goes.
  void Restore(const std::string& seat_id, const v1::NoticeMark& stored);

 private:
  struct Mark {
    std::string boot_id;   // of the agent that counts
    uint64_t taken = 0;    // told up to here
    uint64_t put = 0;      // of these, the last that was put into a stream
    uint64_t durable = 0;  // the last `put` that is durable
    bool asked = false;    // the store will say when
  };

  void Ask(const std::string& seat_id, Mark& mark);
  void AckSoon(const std::string& seat_id);

  Plane& plane_;
  DurableLog& durable_;
  AckFn ack_;
  std::map<std::string, Mark> marks_;  // by seat
  std::set<std::string> due_;          // to be acknowledged at the end of this turn
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
