// Durations as the wire and the store have them: whole milliseconds, unsigned.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace callboard::core {

// 0 if it is negative.
inline uint64_t ToMillis(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(duration)));
}

// A peer may say any number: beyond 2^40 (35 years) it is cut to that.
inline absl::Duration FromMillis(uint64_t milliseconds) {
  return absl::Milliseconds(static_cast<int64_t>(std::min<uint64_t>(milliseconds, 1ull << 40)));
}

}  // namespace callboard::core
