// Notices a loop that hangs, from a thread of its own, and measures how late the loop is.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "core/runtime/event_loop.h"

namespace callboard::core {

// While it lives the loop beats a few times a second. When the beats stop for `limit` of time in
// which this process was running, `on_hang` runs on the watchdog's thread, once, with that time: a
// timer of a wedged thread is no timer, so it should end the process and leave the rest to a
// supervisor. A process that is stopped or a machine that sleeps is not hung: time counts only as
// far as the watchdog's own thread has run. Armed by the first beat, so that work before the loop
// runs may take its time.
//
// Created and destroyed on the loop's thread; the loop outlives it.
class Watchdog {
 public:
  // `limit` 0: no thread, only the measuring.
  Watchdog(EventLoop& loop, absl::Duration limit, absl::AnyInvocable<void(absl::Duration)> on_hang);
  ~Watchdog();

  // The longest that a due callback had to wait, in the last ten seconds and those before. Loop
  // thread.
  absl::Duration loop_lag() const;

 private:
  void Beat();
  void ScheduleBeat();
  void Watch();

  EventLoop& loop_;
  const absl::Duration limit_;
  const absl::Duration period_;
  absl::AnyInvocable<void(absl::Duration)> on_hang_;

  // Loop thread.
  Timer timer_;
  absl::Time due_;
  absl::Time interval_end_;
  absl::Duration lag_ = absl::ZeroDuration();
  absl::Duration former_lag_ = absl::ZeroDuration();

  std::atomic<uint64_t> beats_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace callboard::core
