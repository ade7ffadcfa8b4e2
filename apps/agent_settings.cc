// Implementation of the agent's settings.
#include "apps/agent_settings.h"

#include <fmt/format.h>

#include "core/runtime/strings.h"

namespace callboard::apps {

absl::Status ReadAgentSettings(core::Settings& settings, AgentSettings* out) {
  agent::AgentConfig& config = out->config;
  settings.Read("link.backoff_first", &config.backoff_first);
  settings.Read("link.backoff_max", &config.backoff_max);
  settings.Read("link.permanent_refusal_wait", &config.permanent_refusal_wait);
  settings.Read("link.keepalive", &out->keepalive);
  settings.ReadTable("labels", &config.labels);

  settings.ReadBytes("limits.result_bytes_max", &config.limits.result_bytes_max);
  settings.ReadBytes("limits.journal_bytes_max", &config.limits.journal_bytes_max);
  settings.ReadBytes("limits.queued_bytes_max", &config.limits.queued_bytes_max);
  settings.ReadBytes("limits.spool_bytes_max", &out->spool_bytes_max);
  int64_t open_calls = config.limits.open_calls_max;
  settings.Read("limits.open_calls_max", &open_calls, 1, 1'000'000);
  config.limits.open_calls_max = static_cast<uint32_t>(open_calls);

  const auto read_count = [&settings](std::string_view key, size_t* value) {
    auto number = static_cast<int64_t>(*value);
    settings.Read(key, &number, 1, 100'000);
    *value = static_cast<size_t>(number);
  };
  read_count("queue.main_in_flight", &out->seat.queue.main_in_flight);
  read_count("queue.main_depth", &out->seat.queue.main_depth);
  read_count("queue.free_in_flight", &out->seat.queue.free_in_flight);
  read_count("queue.free_depth", &out->seat.queue.free_depth);
  settings.Read("queue.late_max", &out->seat.late_max);
  settings.Read("queue.silence_max", &out->seat.silence_max);
  settings.Read("seats.empty_life", &out->empty_seat_life);
  settings.Read("runtime.watchdog", &out->watchdog);

  std::string transport = "auto";
  settings.Read("backend.transport", &transport);
  if (transport == "http") {
    out->transport = SeatRoster::Transport::kHttp;
  } else if (transport == "sse") {
    out->transport = SeatRoster::Transport::kSse;
  } else if (transport != "auto") {
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("backend.transport = '{}': expected auto, http or sse", transport));
  }
  return settings.Finish();
}

}  // namespace callboard::apps
