// The production event loop: one thread on a Boost.Asio io_context.
#pragma once

#include <memory>

#include "core/runtime/event_loop.h"

namespace boost::asio {
class io_context;  // NOLINT(readability-identifier-naming): Asio's own name
}

namespace callboard::core {

// Owns its io_context. Run() is called by the one thread that the loop is; Post() and Stop() come
// from any thread. What is still posted or scheduled when the loop is destroyed is dropped unrun.
class AsioEventLoop final : public EventLoop {
 public:
  AsioEventLoop();
  ~AsioEventLoop() override;

  absl::Time Now() const override;
  absl::Time WallNow() const override;
  void Post(absl::AnyInvocable<void()> fn) override;
  Timer After(absl::Duration delay, absl::AnyInvocable<void()> fn) override;

  // Runs until Stop(), on the calling thread.
  void Run();
  void Stop();

  // For adapters (sockets, processes, signals) that need Asio itself.
  boost::asio::io_context& io();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace callboard::core
