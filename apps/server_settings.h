// The settings of callboardd: keys, defaults and their check.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/config/settings.h"
#include "server/domain/limits.h"

namespace callboard::apps {

// [budgets], [limits] and [bridge] of callboardd's configuration; docs/operations.md lists them.
struct ServerSettings {
  server::Budgets budgets;
  server::Limits limits;
  absl::Duration heartbeat = absl::Seconds(15);                // bridge.heartbeat
  absl::Duration open_stream_after = absl::Milliseconds(250);  // bridge.open_stream_after
  absl::Duration retry = absl::Seconds(3);                     // bridge.retry
  absl::Duration drain = absl::Seconds(10);                    // bridge.drain
  std::string allowed_hosts;    // bridge.allowed_hosts: comma-separated, beside loopback
  std::string allowed_origins;  // bridge.allowed_origins: comma-separated, beside loopback
};

// Reads every key and checks the order of the budgets.
absl::Status ReadServerSettings(core::Settings& settings, ServerSettings* out);

}  // namespace callboard::apps
