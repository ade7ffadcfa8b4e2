// The [bridge] settings, the same for callboardd and callboard-bridge.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "apps/program_settings.h"
#include "bridge/config.h"
#include "core/config/settings.h"

namespace callboard::apps {

struct BridgeSettings {
  // `heartbeat` is the effective one: bridge.heartbeat, or less where bridge.path_idle_timeouts or
  // bridge.path ask for it.
  bridge::BridgeConfig config;
  absl::Duration drain = absl::Seconds(10);              // bridge.drain
  absl::Duration peer_timeout = absl::Seconds(20);       // bridge.peer_timeout
  absl::Duration control_plane_wait = absl::Seconds(5);  // bridge.control_plane_wait
  absl::Duration control_plane_ping = absl::Seconds(5);  // bridge.control_plane_ping
};

// Reads every key of them; defaults are what is in `out` before. The status tells what does not
// fit together; what cannot be read is told by Settings::Finish(), which goes first.
absl::Status ReadBridgeSettings(core::Settings& settings, BridgeSettings* out);

// The settings of callboard-bridge: [admin], [bridge], [log] and [runtime].
struct LoneBridgeSettings : ProgramSettings {
  BridgeSettings bridge;
};
absl::Status ReadLoneBridgeSettings(core::Settings& settings, LoneBridgeSettings* out);

}  // namespace callboard::apps
