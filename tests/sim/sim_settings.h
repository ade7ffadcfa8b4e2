// With which budgets and bounds the processes of a world run: ordinary ones or, for some seeds,
// tight ones.
#pragma once

#include "backend_agent/agent.h"
#include "backend_agent/mcp_seat.h"
#include "bridge/config.h"
#include "core/runtime/random.h"
#include "net/http_server.h"
#include "server/domain/limits.h"

namespace callboard::sim {

struct SimSettings {
  server::Budgets budgets;
  server::Limits limits;
  bridge::BridgeConfig bridge;
  net::HttpServerLimits http;
  agent::AgentLimits agent;
  agent::SeatLimits seat;
  // From sending a call to its end, for its client.
  absl::Duration call_budget;
};

// Budgets are shorter than in production, so that a few minutes see each of them spent.
SimSettings DrawSettings(core::Random& random);

}  // namespace callboard::sim
