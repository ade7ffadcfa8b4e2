// Implementation of the agent's settings.
#include "apps/agent_settings.h"

#include <fmt/format.h>

#include <array>

#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

constexpr std::array<std::string_view, 3> kTransports = {"auto", "http", "sse"};

absl::Status CheckBackend(const AgentSettings& settings) {
  const bool url = !settings.backend_url.empty();
  const bool command = !settings.backend_command.empty();
  const auto fault = [](std::string_view text) {
    return core::MakeError(absl::StatusCode::kInvalidArgument, text);
  };
  if (url && command) {
    return fault("backend.url and backend.command: one server is either a URL or a command");
  }
  if (settings.backend_name.empty() && (url || command)) {
    return fault("backend.url and backend.command need backend.name, the seat's name");
  }
  if (!settings.backend_name.empty() && !url && !command) {
    return fault("backend.name needs backend.url or backend.command");
  }
  return url ? agent::ParseHttpUrl(settings.backend_url).status() : absl::OkStatus();
}

}  // namespace

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
  settings.ReadBytes("limits.ended_bytes_max", &config.limits.ended_bytes_max);
  settings.ReadBytes("limits.spool_bytes_max", &out->spool_bytes_max);
  int64_t open_calls = config.limits.open_calls_max;
  settings.Read("limits.open_calls_max", &open_calls, 1, 1'000'000);
  config.limits.open_calls_max = static_cast<uint32_t>(open_calls);
  int64_t ended_calls = config.limits.ended_calls_max;
  settings.Read("limits.ended_calls_max", &ended_calls, 1, 60'000);
  config.limits.ended_calls_max = static_cast<uint32_t>(ended_calls);

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
  settings.Read("seats.drain", &out->drain);

  std::string transport = "auto";
  settings.ReadChoice("backend.transport", &transport, kTransports);
  if (transport == "http") out->transport = SeatRoster::Transport::kHttp;
  if (transport == "sse") out->transport = SeatRoster::Transport::kSse;
  settings.Read("backend.name", &out->backend_name);
  settings.Read("backend.url", &out->backend_url);
  settings.Read("backend.command", &out->backend_command);
  return settings.Finish({CheckBackend(*out), ReadProgramSettings(settings, out)});
}

bool IsHotAgentSetting(std::string_view key) {
  return key == "log.level" || key == "backend.url" || key == "backend.command";
}

}  // namespace callboard::apps
