// Implementation of callboardd's settings.
#include "apps/server_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "apps/read_count.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

template <class T>
void ReadSize(core::Settings& settings, std::string_view key, T* value) {
  auto bytes = static_cast<uint64_t>(*value);
  settings.ReadBytes(key, &bytes);
  *value = static_cast<T>(bytes);
}

// A setting that is one of two words.
absl::Status ReadChoice(core::Settings& settings, std::string_view key, std::string_view first,
                        std::string_view second, bool* is_second) {
  std::string word(*is_second ? second : first);
  settings.Read(key, &word);
  *is_second = word == second;
  if (*is_second || word == first) return absl::OkStatus();
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("{} = '{}': expected {} or {}", key, word, first, second));
}

absl::Status ReadStore(core::Settings& settings, ServerSettings* out) {
  bool memory = out->store_kind == StoreKind::kMemory;
  const absl::Status kind = ReadChoice(settings, "store.kind", "sqlite", "memory", &memory);
  out->store_kind = memory ? StoreKind::kMemory : StoreKind::kSqlite;
  settings.Read("store.path", &out->store_path);
  const absl::Status sync =
      ReadChoice(settings, "store.sync", "normal", "full", &out->store_sync_full);
  settings.ReadBytes("store.pending_bytes_max", &out->store_pending_bytes_max);
  settings.Read("store.hold_max", &out->store_hold_max);
  settings.Read("store.stall_max", &out->store_stall_max);
  return kind.ok() ? sync : kind;
}

// The bounds leave room for seat and hash, and are what MCP allows.
absl::Status ReadTools(core::Settings& settings, ServerSettings* out) {
  auto characters = static_cast<int64_t>(out->limits.tool_name_characters_max);
  settings.Read("tools.name_characters_max", &characters, 32, 128);
  out->limits.tool_name_characters_max = static_cast<size_t>(characters);
  auto selected = static_cast<int64_t>(out->limits.selected_tools_max);
  settings.Read("tools.selected_max", &selected, 1, 1'000);
  out->limits.selected_tools_max = static_cast<size_t>(selected);
  std::string pinned;
  settings.Read("tools.pinned", &pinned);
  if (pinned.empty()) return absl::OkStatus();
  auto selection = core::ToolSelection::Parse(pinned);
  absl::Status problem = selection.status();
  if (selection.ok() && selection->pinned()) {
    problem = absl::InvalidArgumentError("'pinned' cannot stand for itself");
  }
  if (problem.ok()) {
    out->pinned_tools = *std::move(selection);
    return absl::OkStatus();
  }
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("tools.pinned = '{}': {}", pinned, core::Message(problem)));
}

}  // namespace

absl::Status ReadServerSettings(core::Settings& settings, ServerSettings* out) {
  server::Budgets& budgets = out->budgets;
  settings.Read("budgets.connect", &budgets.connect);
  settings.Read("budgets.heartbeat", &budgets.heartbeat);
  settings.Read("budgets.link_read_idle", &budgets.link_read_idle);
  settings.Read("budgets.quick_call", &budgets.quick_call);
  settings.Read("budgets.heavy_call", &budgets.heavy_call);
  settings.Read("budgets.call_max", &budgets.call_max);
  settings.Read("budgets.queue", &budgets.queue);
  settings.Read("budgets.upper_wait_margin", &budgets.upper_wait_margin);
  settings.Read("budgets.session_grace", &budgets.session_grace);
  settings.Read("budgets.session_idle", &budgets.session_idle);
  settings.Read("budgets.skill_relist", &budgets.skill_relist);
  settings.Read("budgets.receipt", &budgets.receipt);

  server::Limits& limits = out->limits;
  ReadCount(settings, "limits.agents_max", &limits.agents_max, 1);
  ReadCount(settings, "limits.sessions_max", &limits.sessions_max, 1);
  ReadCount(settings, "limits.streams_per_session_max", &limits.streams_per_session_max, 1);
  ReadCount(settings, "limits.calls_per_session_max", &limits.calls_per_session_max, 1);
  ReadCount(settings, "limits.open_executions_max", &limits.open_executions_max, 1);
  ReadCount(settings, "limits.receipts_max", &limits.receipts_max, 1);
  ReadCount(settings, "limits.replay_events_max", &limits.replay_events_max, 1);
  ReadSize(settings, "limits.replay_bytes_max", &limits.replay_bytes_max);
  ReadSize(settings, "limits.replay_total_bytes_max", &limits.replay_total_bytes_max);
  ReadSize(settings, "limits.replay_disk_bytes_max", &limits.replay_disk_bytes_max);
  ReadSize(settings, "limits.receipt_outcomes_bytes_max", &limits.receipt_outcomes_bytes_max);
  ReadSize(settings, "limits.kept_bodies_bytes_max", &limits.kept_bodies_bytes_max);
  ReadSize(settings, "limits.params_bytes_max", &limits.params_bytes_max);
  ReadSize(settings, "limits.result_bytes_max", &limits.result_bytes_max);

  settings.Read("cluster.alternates", &out->alternates);
  const absl::Duration call_hard_wait =
      budgets.queue + budgets.heavy_call + budgets.upper_wait_margin;
  out->bridge.config.hard_wait = call_hard_wait + budgets.upper_wait_margin;
  const absl::Status bridge = ReadBridgeSettings(settings, &out->bridge);
  const absl::Status tools = ReadTools(settings, out);
  const absl::Status store = ReadStore(settings, out);
  const absl::Status program = ReadProgramSettings(settings, out);

  absl::Status hard_wait;
  if (out->bridge.config.hard_wait < call_hard_wait) {
    hard_wait =
        core::MakeError(absl::StatusCode::kInvalidArgument,
                        fmt::format("bridge.hard_wait ({}) must not be less than budgets.queue + "
                                    "budgets.heavy_call + budgets.upper_wait_margin ({})",
                                    absl::FormatDuration(out->bridge.config.hard_wait),
                                    absl::FormatDuration(call_hard_wait)));
  }
  return settings.Finish({store, tools, bridge, program, hard_wait, server::CheckOrder(budgets)});
}

bool IsHotServerSetting(std::string_view key) {
  constexpr std::string_view kHot[] = {
      "log.level",
      "bridge.hard_wait",
      "budgets.quick_call",
      "budgets.heavy_call",
      "budgets.call_max",
      "budgets.queue",
      "budgets.upper_wait_margin",
      "budgets.skill_relist",
      "limits.agents_max",
      "limits.calls_per_session_max",
      "limits.params_bytes_max",
      "tools.pinned",
  };
  return std::find(std::begin(kHot), std::end(kHot), key) != std::end(kHot);
}

}  // namespace callboard::apps
