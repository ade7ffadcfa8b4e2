// The bridge's figures as Prometheus reads them.
#pragma once

#include "bridge/config.h"
#include "core/telemetry/metrics_text.h"

namespace callboard::bridge {

// docs/operations.md says what each means.
void WriteMetrics(const BridgeGauges& gauges, core::MetricsText& text);

}  // namespace callboard::bridge
