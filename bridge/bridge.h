// The door of the bridge: MCP over HTTP in front of a control plane.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "bridge/config.h"
#include "bridge/control_plane_client.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"
#include "core/telemetry/metrics_text.h"
#include "net/http_server.h"

namespace callboard::bridge {

// Turns each HTTP request into one call on the control plane and each SSE answer into one stream
// of its events; keeps nothing but open connections and what it may forget (caches). Any bridge
// can serve any session.
//
// Loop thread. `loop`, `random` and `client` outlive it. Destroying it drops all that is under
// way: connections close, calls go on at the control plane. Bounds: BridgeLimits. Whatever a
// client sends gets a status or a JSON-RPC error; whatever the control plane fails to do is
// answered at the latest by the hard timers of BridgeConfig.
class Bridge {
 public:
  Bridge(core::EventLoop& loop, core::Random& random, ControlPlaneClient& client,
         BridgeConfig config);
  ~Bridge();

  // For net::HttpServer.
  void Handle(net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder);

  // From now on no session or stream is opened and no request taken: 503. What belongs to requests
  // under way is: cancels, and answers to what their clients were asked. These may finish within
  // `grace`, then they are answered with an error, or cut loose to be resumed; the GET streams of
  // sessions end with the last of them. `done` runs when nothing is left. To be called once.
  void Drain(absl::Duration grace, absl::AnyInvocable<void()> done);

  // BridgeConfig::hard_wait of what begins from now on.
  void SetHardWait(absl::Duration hard_wait);

  BridgeGauges gauges() const;
  void WriteMetrics(core::MetricsText& text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace callboard::bridge
