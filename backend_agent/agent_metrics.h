// The agent's figures as Prometheus reads them.
#pragma once

#include <vector>

#include "backend_agent/agent.h"
#include "callboard/v1/agent.pb.h"
#include "core/telemetry/metrics_text.h"

namespace callboard::agent {

// docs/operations.md says what each means. Seats are bounded by core::BoundedSamples.
void WriteMetrics(const AgentGauges& gauges, const std::vector<v1::SeatState>& seats,
                  core::MetricsText& text);

}  // namespace callboard::agent
