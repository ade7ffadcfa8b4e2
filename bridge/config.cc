// Implementation of what the bridge's configuration means.
#include "bridge/config.h"

#include <algorithm>
#include <iterator>

namespace callboard::bridge {

absl::Duration HeartbeatFor(absl::Duration wanted,
                            const std::vector<absl::Duration>& path_idle_timeouts, bool wan) {
  constexpr absl::Duration kWanHeartbeat = absl::Seconds(10);
  constexpr double kShareOfIdle = 0.4;  // two heartbeats fit, and one may be late
  absl::Duration heartbeat = wan ? std::min(wanted, kWanHeartbeat) : wanted;
  for (const absl::Duration idle : path_idle_timeouts) {
    heartbeat = std::min(heartbeat, idle * kShareOfIdle);
  }
  return heartbeat;
}

std::string_view StreamEndName(StreamEnd end) {
  switch (end) {
    case StreamEnd::kFinished:
      return "finished";
    case StreamEnd::kClient:
      return "client";
    case StreamEnd::kWriteFailed:
      return "write_failed";
    case StreamEnd::kIdle:
      return "idle";
    case StreamEnd::kMaxLife:
      return "max_life";
    case StreamEnd::kDrain:
      return "drain";
    case StreamEnd::kSlow:
      return "slow";
    case StreamEnd::kBroken:
      break;
  }
  return "broken";
}

std::string_view ResumeName(Resume resume) {
  constexpr std::string_view kNames[] = {"resumed", "gap", "gone"};
  static_assert(std::size(kNames) == kResumes);
  return kNames[static_cast<size_t>(resume)];
}

}  // namespace callboard::bridge
