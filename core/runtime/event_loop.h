// The one thread a component lives on: its clock, its timers and its queue of posted work.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace callboard::core {

// One scheduled callback. Destroying or resetting it cancels; after that the callback never runs.
// Loop thread only. A default-constructed Timer is idle.
class Timer {
 public:
  // State shared by a Timer and the queue that will fire it. `fn` is empty once fired or cancelled.
  struct Entry {
    absl::AnyInvocable<void()> fn;
  };

  Timer() = default;
  explicit Timer(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
  Timer(Timer&&) = default;
  Timer& operator=(Timer&& other) noexcept {
    if (this != &other) {
      Cancel();
      entry_ = std::move(other.entry_);
    }
    return *this;
  }
  ~Timer() { Cancel(); }

  void Cancel() {
    if (entry_ != nullptr) {
      // Moved out first: destroying the callback may destroy the owner of this Timer.
      auto entry = std::move(entry_);
      auto fn = std::move(entry->fn);
      entry->fn = nullptr;
    }
  }
  bool pending() const { return entry_ != nullptr && entry_->fn != nullptr; }

 private:
  std::shared_ptr<Entry> entry_;
};

// Clock, timers and work queue of one thread. Production: AsioEventLoop. Simulation: the virtual
// loop of tests/sim. Everything that waits takes an EventLoop& in its constructor, and the loop
// outlives it. All methods but Post are for the loop's own thread.
class EventLoop {
 public:
  virtual ~EventLoop() = default;

  // Monotonic time that goes on while the machine sleeps (CLOCK_BOOTTIME). Its origin means
  // nothing: compare and subtract only.
  virtual absl::Time Now() const = 0;

  // Wall-clock time, for what people read and for terms. Never for deadlines.
  virtual absl::Time WallNow() const = 0;

  // Runs `fn` on the loop's thread, later, in the order posted. Callable from any thread.
  virtual void Post(absl::AnyInvocable<void()> fn) = 0;

  // Runs `fn` on the loop's thread once `delay` has passed (at once, but never inline, when it is
  // not positive), unless the returned Timer is destroyed before.
  [[nodiscard]] virtual Timer After(absl::Duration delay, absl::AnyInvocable<void()> fn) = 0;

  // The same at an instant of Now().
  [[nodiscard]] Timer At(absl::Time when, absl::AnyInvocable<void()> fn) {
    return After(when - Now(), std::move(fn));
  }
};

}  // namespace callboard::core
