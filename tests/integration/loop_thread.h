// An AsioEventLoop on a thread of its own, with calls into it that wait for their result.
#pragma once

#include <future>
#include <thread>
#include <utility>

#include "core/runtime/asio_event_loop.h"

namespace callboard::tests {

// Stops and joins in its destructor; whatever lives on the loop must be gone by then (Call a lambda
// that resets it).
class LoopThread {
 public:
  LoopThread() : thread_([this] { loop_.Run(); }) {}
  ~LoopThread() {
    loop_.Post([this] { loop_.Stop(); });
    thread_.join();
  }

  core::AsioEventLoop& loop() { return loop_; }

  // Runs `fn` on the loop and returns what it returns.
  template <class Fn>
  auto Call(Fn fn) {
    std::packaged_task<decltype(fn())()> task(std::move(fn));
    auto result = task.get_future();
    loop_.Post([&task] { task(); });
    return result.get();
  }

 private:
  core::AsioEventLoop loop_;
  std::thread thread_;
};

}  // namespace callboard::tests
