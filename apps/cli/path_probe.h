// `callboard doctor --url`: what a path between here and a bridge does to event streams.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "apps/cli/examination.h"

namespace callboard::apps {

// Opens two probes of the bridge (bridge/endpoints/probe_exchange.h) through `url`, one that
// carries a comment every second and one that is silent, and tells what holds bytes back, what
// changes the stream, and after how much silence (at most `silence`) it is cut. Main thread; blocks
// until it is told.
void ExaminePath(Examination& doctor, const std::string& url, absl::Duration silence);

}  // namespace callboard::apps
