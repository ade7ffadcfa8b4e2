// Waiting times between attempts: exponential with full jitter, so that a thousand agents that
// lost the same control plane do not come back in the same instant.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "core/runtime/random.h"

namespace callboard::core {

// Next() is uniform in (0, min(max, first * 2^n)]. Reset() after the first *message* of the peer,
// not after the connect: a peer that accepts and then hangs up keeps the backoff growing.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration max, Random& random)
      : first_(first), max_(max), random_(random), ceiling_(first) {}

  absl::Duration Next() {
    const absl::Duration wait = ceiling_ * std::max(random_.Unit(), 0.01);
    ceiling_ = std::min(max_, ceiling_ * 2);
    return wait;
  }
  void Reset() { ceiling_ = first_; }

 private:
  absl::Duration first_;
  absl::Duration max_;
  Random& random_;
  absl::Duration ceiling_;
};

}  // namespace callboard::core
