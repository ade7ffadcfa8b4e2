// Work too long for a loop (search, schema checks, bodies over 256 KiB) done elsewhere.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "core/runtime/event_loop.h"

namespace callboard::core {

// Runs `work` away from the loop, then `done` on the loop. `work` owns all it touches.
class Offload {
 public:
  virtual ~Offload() = default;
  virtual void Run(absl::AnyInvocable<void()> work, absl::AnyInvocable<void()> done) = 0;
};

// Runs the work on the loop itself, later. For the simulation and for tests.
class InlineOffload final : public Offload {
 public:
  explicit InlineOffload(EventLoop& loop) : loop_(loop) {}
  void Run(absl::AnyInvocable<void()> work, absl::AnyInvocable<void()> done) override {
    loop_.Post([work = std::move(work), done = std::move(done)]() mutable {
      work();
      done();
    });
  }

 private:
  EventLoop& loop_;
};

// One worker thread with a queue; joined by the destructor, which drops work not yet begun.
std::unique_ptr<Offload> MakeThreadOffload(EventLoop& loop);

}  // namespace callboard::core
