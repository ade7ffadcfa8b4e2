// The settings of callboard-agent: keys, defaults and their check.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "apps/program_settings.h"
#include "apps/seat_roster.h"
#include "backend_agent/agent.h"
#include "backend_agent/mcp_seat.h"
#include "core/config/settings.h"

namespace callboard::apps {

// [admin], [backend], [link], [queue], [limits], [log], [runtime] and [labels] of callboard-agent's
// configuration.
struct AgentSettings : ProgramSettings {
  agent::AgentConfig config;
  agent::SeatLimits seat;
  absl::Duration keepalive = absl::Seconds(5);
  absl::Duration empty_seat_life = absl::Hours(1);
  absl::Duration drain = absl::Seconds(10);  // what runs has so long at an orderly end
  uint64_t spool_bytes_max = 1ull << 30;
  SeatRoster::Transport transport = SeatRoster::Transport::kAuto;
  // One server to serve, as by --name and --url or a command. The command is a shell's.
  std::string backend_name;
  std::string backend_url;
  std::string backend_command;
};

// Reads every key; InvalidArgument lists all that is wrong.
absl::Status ReadAgentSettings(core::Settings& settings, AgentSettings* out);

// Whether callboard-agent takes a changed value at SIGHUP; others need a restart.
bool IsHotAgentSetting(std::string_view key);

}  // namespace callboard::apps
