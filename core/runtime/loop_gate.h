// The way from foreign threads to the loop, which ends before they do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "core/runtime/event_loop.h"

namespace callboard::core {

// For adapters of libraries with threads of their own (gRPC): posts to the loop until Close(), and
// counts what those threads have not ended. An operation must end before the loop: with it may go
// the last channel, and with that gRPC's callback threads, which must not be joined by one of
// themselves. Shared between an adapter and its operations; all methods from any thread.
class LoopGate {
 public:
  explicit LoopGate(EventLoop& loop) : loop_(&loop) {}

  // After Close() `fn` is destroyed unrun, on the calling thread.
  void Post(absl::AnyInvocable<void()> fn) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (loop_ != nullptr) loop_->Post(std::move(fn));
  }
  void OnBegin() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++under_way_;
  }
  // The last thing an operation does here.
  void OnEnd() {
    std::lock_guard<std::mutex> lock(mutex_);
    --under_way_;
    ended_.notify_all();
  }
  // For the adapter's destructor, when it has cancelled everything: what is cancelled ends within
  // milliseconds, and 2 s are the most that it waits.
  void Close() {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait_for(lock, std::chrono::seconds(2), [this] { return under_way_ == 0; });
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  EventLoop* loop_;
  int under_way_ = 0;
};

}  // namespace callboard::core
