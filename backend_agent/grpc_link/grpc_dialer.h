// Dials control planes over gRPC: the product's implementation of LinkDialer.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "backend_agent/agent.h"
#include "core/runtime/event_loop.h"

namespace callboard::agent {

struct GrpcDialerOptions {
  absl::Duration keepalive_interval = absl::Seconds(5);
  absl::Duration keepalive_timeout = absl::Seconds(5);
};

// Each Dial() opens a channel of its own, so that gRPC's connection backoff never adds to the
// uplink's. Links end before the dialer and the dialer before the loop; what gRPC reports
// later is dropped.
std::unique_ptr<LinkDialer> MakeGrpcDialer(core::EventLoop& loop, GrpcDialerOptions options);

}  // namespace callboard::agent
