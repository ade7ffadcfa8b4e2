// The settings of callboardd: keys, defaults and their check.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/config/settings.h"
#include "server/domain/limits.h"

namespace callboard::apps {

enum class StoreKind { kSqlite, kMemory };

// [budgets], [limits], [bridge] and [store] of callboardd's configuration; docs/operations.md lists
// them.
struct ServerSettings {
  server::Budgets budgets;
  server::Limits limits;
  // The effective one: bridge.heartbeat, or less where bridge.path_idle_timeouts or bridge.path ask
  // for it.
  absl::Duration heartbeat = absl::Seconds(15);
  absl::Duration open_stream_after = absl::Milliseconds(250);  // bridge.open_stream_after
  absl::Duration retry = absl::Seconds(3);                     // bridge.retry
  absl::Duration drain = absl::Seconds(10);                    // bridge.drain
  absl::Duration stream_life = absl::Hours(24);                // bridge.stream_life
  absl::Duration slow_reader = absl::Seconds(20);              // bridge.slow_reader
  absl::Duration peer_timeout = absl::Seconds(20);             // bridge.peer_timeout
  absl::Duration envelope_after = absl::Seconds(45);           // bridge.envelope_after
  size_t streams_max = 10'000;                                 // bridge.streams_max
  size_t streams_per_session_max = 64;                         // bridge.streams_per_session_max
  std::string allowed_hosts;    // bridge.allowed_hosts: comma-separated, beside loopback
  std::string allowed_origins;  // bridge.allowed_origins: comma-separated, beside loopback
  StoreKind store_kind = StoreKind::kSqlite;               // store.kind
  std::string store_path;                                  // store.path; default: state folder
  bool store_sync_full = false;                            // store.sync
  uint64_t store_pending_bytes_max = 256 << 20;            // store.pending_bytes_max
  absl::Duration store_hold_max = absl::Milliseconds(50);  // store.hold_max
  absl::Duration store_stall_max = absl::Seconds(10);      // store.stall_max
};

// Reads every key and checks the order of the budgets.
absl::Status ReadServerSettings(core::Settings& settings, ServerSettings* out);

}  // namespace callboard::apps
