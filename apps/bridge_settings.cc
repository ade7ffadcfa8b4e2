// Implementation of the bridge's settings.
#include "apps/bridge_settings.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "apps/read_count.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

void ReadList(core::Settings& settings, std::string_view key, std::vector<std::string>* list) {
  std::string text;
  settings.Read(key, &text);
  if (!text.empty()) *list = absl::StrSplit(text, ',', absl::SkipWhitespace());
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

}  // namespace

absl::Status ReadBridgeSettings(core::Settings& settings, BridgeSettings* out) {
  bridge::BridgeConfig& config = out->config;
  const HeartbeatSettings beat = ReadHeartbeat(settings);
  settings.Read("bridge.open_stream_after", &config.open_stream_after);
  settings.Read("bridge.retry", &config.retry);
  settings.Read("bridge.modern", &config.modern);
  settings.Read("bridge.legacy_sse", &config.legacy_sse);
  settings.Read("bridge.drain", &out->drain);
  settings.Read("bridge.stream_life", &config.stream_life_max);
  settings.Read("bridge.slow_reader", &config.slow_reader);
  settings.Read("bridge.peer_timeout", &out->peer_timeout);
  settings.Read("bridge.envelope_after", &config.envelope_after);
  settings.Read("bridge.task_after", &config.task_after);
  settings.Read("bridge.task_poll", &config.task_poll);
  settings.Read("bridge.task_ttl", &config.task_ttl);
  ReadCount(settings, "bridge.streams_max", &config.limits.streams_max, 1);
  ReadCount(settings, "bridge.streams_per_session_max", &config.limits.streams_per_session_max, 1);
  ReadList(settings, "bridge.allowed_hosts", &config.allowed_hosts);
  ReadList(settings, "bridge.allowed_origins", &config.allowed_origins);
  settings.Read("bridge.hard_wait", &config.hard_wait);
  settings.Read("bridge.unary_wait", &config.unary_wait);
  settings.Read("bridge.reattach", &config.reattach);
  settings.Read("bridge.session_recheck", &config.session_recheck);
  settings.Read("bridge.control_plane_wait", &out->control_plane_wait);
  settings.Read("bridge.control_plane_ping", &out->control_plane_ping);
  CALLBOARD_ASSIGN_OR_RETURN(config.heartbeat, EffectiveHeartbeat(beat));
  settings.Derive("bridge.heartbeat, effective", absl::FormatDuration(config.heartbeat),
                  "the least of bridge.heartbeat, 40 % of bridge.path_idle_timeouts, 10s if "
                  "bridge.path is wan");
  return absl::OkStatus();
}

absl::Status ReadLoneBridgeSettings(core::Settings& settings, LoneBridgeSettings* out) {
  // Other bridges end sessions too: this one is to hear of it soon.
  out->bridge.config.session_recheck = absl::Seconds(5);
  const absl::Status bridge = ReadBridgeSettings(settings, &out->bridge);
  return settings.Finish({bridge, ReadProgramSettings(settings, out)});
}

}  // namespace callboard::apps
