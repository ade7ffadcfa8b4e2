// The control plane's figures as Prometheus reads them.
#pragma once

#include "core/telemetry/metrics_text.h"
#include "server/flows/control_plane.h"
#include "server/flows/plane.h"

namespace callboard::server {

// docs/operations.md says what each means. Seats are told one by one up to kSeatsTold, the others
// together, so that a farm does not become a series a machine.
inline constexpr size_t kSeatsTold = 200;
void WriteMetrics(const Plane& plane, const ControlPlaneGauges& gauges, core::MetricsText& text);

}  // namespace callboard::server
