// Scheduled callbacks ordered by (time, order of scheduling): the part both event loops share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "core/runtime/event_loop.h"

namespace callboard::core {

// Not thread-safe. Cancelled entries stay until their time comes or until they are more than half
// of the queue, when they are swept; so memory is bounded by twice the live timers.
class TimerQueue {
 public:
  Timer Add(absl::Time when, absl::AnyInvocable<void()> fn);

  // When the earliest live timer is due; nullopt when there is none.
  std::optional<absl::Time> NextDue();

  // Takes the earliest live timer that is due at `now`; an empty callback when there is none.
  absl::AnyInvocable<void()> PopDue(absl::Time now);

 private:
  struct Node {
    absl::Time when;
    uint64_t order;
    std::shared_ptr<Timer::Entry> entry;
  };
  static bool Later(const Node& a, const Node& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  }
  void DropCancelledTop();
  void SweepIfMostlyCancelled();

  std::vector<Node> heap_;
  uint64_t next_order_ = 0;
  size_t sweep_at_ = 1024;
};

}  // namespace callboard::core
