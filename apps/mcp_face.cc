// Implementation of McpFace.
#include "apps/mcp_face.h"

#include <utility>

namespace callboard::apps {

namespace {

constexpr size_t kConnectionsBesideStreams = 2'000;

net::HttpServerLimits MakeLimits(const bridge::BridgeConfig& config, absl::Duration peer_timeout) {
  net::HttpServerLimits limits;
  limits.write_timeout = peer_timeout;
  // Requests come beside the streams.
  limits.connections_max = config.limits.streams_max + kConnectionsBesideStreams;
  return limits;
}

}  // namespace

McpFace::McpFace(core::AsioEventLoop& loop, core::Random& random,
                 bridge::ControlPlaneClient& client, bridge::BridgeConfig config,
                 absl::Duration peer_timeout)
    : loop_(loop),
      peer_timeout_(peer_timeout),
      bridge_(loop, random, client, config),
      http_(loop, MakeLimits(config, peer_timeout),
            [this](net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
              bridge_.Handle(std::move(request), std::move(responder));
            }) {}

absl::Status McpFace::Listen(const std::string& host, uint16_t port) {
  net::TcpOptions tcp;
  tcp.user_timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(peer_timeout_));
  auto listening = net::ListenTcp(loop_, host, port, tcp);
  if (!listening.ok()) return listening.status();
  listener_ = std::move(listening->listener);
  port_ = listening->port;
  return absl::OkStatus();
}

void McpFace::Serve() { http_.Serve(std::move(listener_)); }

void McpFace::WriteMetrics(core::MetricsText& text) const {
  text.Gauge("callboard_http_connections", "Connections of MCP clients.")
      .Sample(http_.connections());
  text.Counter("callboard_http_connections_refused_total",
               "Connections closed at once because there were too many.")
      .Sample(http_.connections_refused());
  bridge_.WriteMetrics(text);
}

void McpFace::Drain(absl::Duration grace, absl::AnyInvocable<void()> done) {
  bridge_.Drain(grace, [this, done = std::move(done)]() mutable {
    http_.Drain();
    done();
  });
}

}  // namespace callboard::apps
