// Implementation of VirtualLoop.
#include "tests/support/virtual_loop.h"

namespace callboard::tests {

core::Timer VirtualLoop::After(absl::Duration delay, absl::AnyInvocable<void()> fn) {
  return timers_.Add(now_ + std::max(delay, absl::ZeroDuration()), std::move(fn));
}

bool VirtualLoop::Step(absl::Time until) {
  if (!posted_.empty()) {
    auto fn = std::move(posted_.front());
    posted_.pop_front();
    ++steps_;
    fn();
    return true;
  }
  auto due = timers_.NextDue();
  if (!due || *due > until) {
    now_ = std::max(now_, until);
    return false;
  }
  now_ = std::max(now_, *due);
  if (auto fn = timers_.PopDue(now_)) {
    ++steps_;
    fn();
  }
  return true;
}

void VirtualLoop::RunFor(absl::Duration duration) {
  const absl::Time until = now_ + duration;
  while (Step(until)) {
  }
}

bool VirtualLoop::RunUntil(absl::AnyInvocable<bool()> done, absl::Duration limit) {
  const absl::Time until = now_ + limit;
  while (!done()) {
    if (!Step(until)) return done();
  }
  return true;
}

}  // namespace callboard::tests
