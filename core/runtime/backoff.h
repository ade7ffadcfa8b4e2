// Waiting times between attempts: exponential with full jitter, so that a thousand agents that
// lost the same control plane do not come back in the same instant.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "core/runtime/random.h"

namespace callboard::core {

// Next() is uniform between min(max, first * 2^n) and a tenth of it: without a least wait a run of
// short ones would make one dialler among many a nuisance. Reset() after the first *message* of the
// peer, not after the connect: a peer that accepts and then hangs up keeps the backoff growing.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration max, Random& random)
      : first_(first), max_(max), random_(random), ceiling_(first) {}

  absl::Duration Next() {
    const absl::Duration wait = ceiling_ * (kLeast + (1 - kLeast) * random_.Unit());
    ceiling_ = std::min(max_, ceiling_ * 2);
    return wait;
  }
  void Reset() { ceiling_ = first_; }

 private:
  static constexpr double kLeast = 0.1;

  absl::Duration first_;
  absl::Duration max_;
  Random& random_;
  absl::Duration ceiling_;
};

}  // namespace callboard::core
