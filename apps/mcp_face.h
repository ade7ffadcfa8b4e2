// The MCP port of a program: a bridge behind an HTTP server.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bridge/bridge.h"
#include "bridge/control_plane_client.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/random.h"
#include "core/telemetry/metrics_text.h"
#include "net/http_server.h"
#include "net/tcp.h"

namespace callboard::apps {

// Loop thread; everything passed by reference outlives it.
class McpFace {
 public:
  // `peer_timeout`: what a peer that acknowledges nothing gets before it counts as gone.
  McpFace(core::AsioEventLoop& loop, core::Random& random, bridge::ControlPlaneClient& client,
          bridge::BridgeConfig config, absl::Duration peer_timeout);

  // Takes the port (0: a free one); requests are served from Serve() on.
  absl::Status Listen(const std::string& host, uint16_t port);
  void Serve();
  uint16_t port() const { return port_; }

  // See Bridge::Drain; the port is open until then. `done` runs `grace` later at most.
  void Drain(absl::Duration grace, absl::AnyInvocable<void()> done);

  bridge::Bridge& bridge() { return bridge_; }
  void WriteMetrics(core::MetricsText& text) const;

 private:
  core::AsioEventLoop& loop_;
  const absl::Duration peer_timeout_;
  bridge::Bridge bridge_;
  net::HttpServer http_;
  std::unique_ptr<net::Listener> listener_;
  uint16_t port_ = 0;
};

}  // namespace callboard::apps
