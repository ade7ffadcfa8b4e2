// What the operating system knows of this process, as every Prometheus client names it.
#pragma once

#include "core/telemetry/metrics_text.h"

namespace callboard::core {

// process_resident_memory_bytes, process_virtual_memory_bytes, process_open_fds, process_max_fds,
// process_cpu_seconds_total, process_start_time_seconds and callboard_build_info. What cannot be
// read is left out. Costs a few reads of /proc, on the calling thread.
void WriteProcessMetrics(MetricsText& text);

}  // namespace callboard::core
