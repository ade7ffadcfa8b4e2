// The orderly end of the control plane in mid-load, as SIGTERM asks for it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/sim_world.h"

namespace callboard::sim {

void BridgeProcess::Drain(absl::Duration grace, absl::AnyInvocable<void()> done) {
  bridge_.Drain(grace, [this, done = std::move(done)]() mutable {
    http_.Drain();
    done();
  });
}

void PlaneProcess::Drain(absl::Duration grace, absl::AnyInvocable<void()> done) {
  draining_ = true;
  if (bridge_ == nullptr) return plane_.Drain(grace, std::move(done));
  const absl::Time over = loop_.Now() + grace;
  bridge_->Drain(grace, [this, over, done = std::move(done)]() mutable {
    plane_.Drain(std::max(absl::ZeroDuration(), over - loop_.Now()), std::move(done));
  });
}

void SimWorld::DrainPlane() {
  const absl::Duration grace = Span(0.3, 6);
  trace_.Total("drains");
  if (disk_.failing) trace_.Total("drains while the store fails");
  trace_.Add(
      fmt::format("the control plane is told to end within {}", absl::FormatDuration(grace)));
  Disturb("");
  const uint64_t generation = plane_generation_;
  // The store may take its time.
  drain_timer_ = loop_.After(grace + absl::Seconds(3), [this, generation] {
    if (plane_ == nullptr || plane_generation_ != generation) return;
    trace_.Violate("an orderly end takes no longer than its grace",
                   "the control plane is still there");
  });
  plane_->Drain(grace, [this, generation] {
    loop_.Post([this, generation] {
      if (plane_ == nullptr || plane_generation_ != generation) return;
      drain_timer_.Cancel();
      trace_.Add("the control plane has ended in order");
      KillPlane();
      HealLater(Span(0.1, 3), [this] { StartPlane(); });
      if (!faulty_) HealAll();
    });
  });
}

}  // namespace callboard::sim
