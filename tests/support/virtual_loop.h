// An event loop in virtual time: runs everything in one thread, in a repeatable order.
#pragma once

#include <cstdint>
#include <deque>

#include "core/runtime/event_loop.h"
#include "core/runtime/timer_queue.h"

namespace callboard::tests {

// Time stands still while callbacks run and jumps to the next timer when nothing is posted.
class VirtualLoop final : public core::EventLoop {
 public:
  explicit VirtualLoop(absl::Time start = absl::FromUnixSeconds(1'800'000'000)) : now_(start) {}

  absl::Time Now() const override { return now_; }
  absl::Time WallNow() const override { return now_; }
  void Post(absl::AnyInvocable<void()> fn) override { posted_.push_back(std::move(fn)); }
  core::Timer After(absl::Duration delay, absl::AnyInvocable<void()> fn) override;

  // Runs one callback if any is due within `until`; false when there is nothing to do before it
  // (time then stands at `until`).
  bool Step(absl::Time until);
  // Runs all that is due in the next `duration` of virtual time.
  void RunFor(absl::Duration duration);
  // Runs what is due now, without letting time pass.
  void RunReady() { RunFor(absl::ZeroDuration()); }
  // Runs until `done` or until `limit` of virtual time has passed; returns whether `done` held.
  bool RunUntil(absl::AnyInvocable<bool()> done, absl::Duration limit);

  uint64_t steps() const { return steps_; }

 private:
  absl::Time now_;
  std::deque<absl::AnyInvocable<void()>> posted_;
  core::TimerQueue timers_;
  uint64_t steps_ = 0;
};

}  // namespace callboard::tests
