// Implementation of callboardd's settings.
#include "apps/server_settings.h"

#include <fmt/format.h>

#include "absl/status/statusor.h"
#include "bridge/config.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

template <class T>
void ReadCount(core::Settings& settings, std::string_view key, T* value, int64_t min) {
  auto number = static_cast<int64_t>(*value);
  settings.Read(key, &number, min, 1'000'000'000);
  *value = static_cast<T>(number);
}

template <class T>
void ReadSize(core::Settings& settings, std::string_view key, T* value) {
  auto bytes = static_cast<uint64_t>(*value);
  settings.ReadBytes(key, &bytes);
  *value = static_cast<T>(bytes);
}

struct HeartbeatSettings {
  absl::Duration wanted = absl::Seconds(15);
  std::vector<absl::Duration> path_idle_timeouts;
  std::string path = "local";
};

HeartbeatSettings ReadHeartbeat(core::Settings& settings) {
  HeartbeatSettings beat;
  settings.Read("bridge.heartbeat", &beat.wanted);
  settings.Read("bridge.path_idle_timeouts", &beat.path_idle_timeouts);
  settings.Read("bridge.path", &beat.path);
  return beat;
}

// Streams are looked after once a second.
absl::StatusOr<absl::Duration> EffectiveHeartbeat(const HeartbeatSettings& beat) {
  if (beat.path != "local" && beat.path != "wan") {
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("bridge.path: '{}': expected \"local\" or \"wan\"", beat.path));
  }
  const absl::Duration heartbeat =
      bridge::HeartbeatFor(beat.wanted, beat.path_idle_timeouts, beat.path == "wan");
  if (heartbeat < absl::Seconds(1)) {
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("the heartbeat of streams would be {}, and at least 1s is possible: give "
                    "bridge.heartbeat >= 1s and only bridge.path_idle_timeouts >= 2.5s (the "
                    "heartbeat is 40 % of the shortest)",
                    absl::FormatDuration(heartbeat)));
  }
  return heartbeat;
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
  ReadSize(settings, "limits.params_bytes_max", &limits.params_bytes_max);
  ReadSize(settings, "limits.result_bytes_max", &limits.result_bytes_max);

  const HeartbeatSettings beat = ReadHeartbeat(settings);
  settings.Read("bridge.open_stream_after", &out->open_stream_after);
  settings.Read("bridge.retry", &out->retry);
  settings.Read("bridge.drain", &out->drain);
  settings.Read("bridge.stream_life", &out->stream_life);
  settings.Read("bridge.slow_reader", &out->slow_reader);
  settings.Read("bridge.peer_timeout", &out->peer_timeout);
  settings.Read("bridge.envelope_after", &out->envelope_after);
  ReadCount(settings, "bridge.streams_max", &out->streams_max, 1);
  ReadCount(settings, "bridge.streams_per_session_max", &out->streams_per_session_max, 1);
  settings.Read("bridge.allowed_hosts", &out->allowed_hosts);
  settings.Read("bridge.allowed_origins", &out->allowed_origins);

  const absl::Status store = ReadStore(settings, out);

  CALLBOARD_RETURN_IF_ERROR(settings.Finish());
  CALLBOARD_RETURN_IF_ERROR(store);
  CALLBOARD_ASSIGN_OR_RETURN(out->heartbeat, EffectiveHeartbeat(beat));
  settings.Derive("bridge.heartbeat, effective", absl::FormatDuration(out->heartbeat),
                  "the least of bridge.heartbeat, 40 % of bridge.path_idle_timeouts, 10s if "
                  "bridge.path is wan");
  return server::CheckOrder(budgets);
}

}  // namespace callboard::apps
