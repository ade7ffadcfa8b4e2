// The settings of callboardd: keys, defaults and their check.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "apps/bridge_settings.h"
#include "apps/program_settings.h"
#include "core/config/settings.h"
#include "core/mcp/tool_selection.h"
#include "server/domain/limits.h"

namespace callboard::apps {

enum class StoreKind { kSqlite, kMemory };

// [admin], [budgets], [limits], [tools], [cluster], [bridge], [log], [runtime] and [store] of
// callboardd's configuration; docs/operations.md lists them.
struct ServerSettings : ProgramSettings {
  server::Budgets budgets;
  server::Limits limits;
  core::ToolSelection pinned_tools;  // tools.pinned: what /mcp?tools=pinned shows
  BridgeSettings bridge;
  std::string alternates;                     // cluster.alternates: comma-separated, told to agents
  StoreKind store_kind = StoreKind::kSqlite;  // store.kind
  std::string store_path;                     // store.path; default: state folder
  bool store_sync_full = false;               // store.sync
  uint64_t store_pending_bytes_max = 256 << 20;            // store.pending_bytes_max
  absl::Duration store_hold_max = absl::Milliseconds(50);  // store.hold_max
  absl::Duration store_stall_max = absl::Seconds(10);      // store.stall_max
};

// Reads every key and checks the order of the budgets.
absl::Status ReadServerSettings(core::Settings& settings, ServerSettings* out);

// Whether callboardd takes a changed value at SIGHUP; others need a restart.
bool IsHotServerSetting(std::string_view key);

}  // namespace callboard::apps
