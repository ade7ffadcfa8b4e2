// The control plane's figures as Prometheus reads them.
#pragma once

#include "core/telemetry/metrics_text.h"
#include "server/flows/control_plane.h"
#include "server/flows/plane.h"

namespace callboard::server {

// docs/operations.md says what each means. Seats are bounded by core::BoundedSamples.
void WriteMetrics(const Plane& plane, const ControlPlaneGauges& gauges, core::MetricsText& text);

}  // namespace callboard::server
