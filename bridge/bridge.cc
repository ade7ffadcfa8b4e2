// Implementation of the bridge's door: access, routes, methods, drain.
#include "bridge/bridge.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "bridge/bridge_core.h"
#include "bridge/bridge_metrics.h"
#include "bridge/endpoints/mcp.h"
#include "bridge/endpoints/ops.h"
#include "bridge/endpoints/request_server.h"
#include "bridge/endpoints/sse.h"
#include "bridge/http_answer.h"
#include "bridge/routes.h"

namespace callboard::bridge {
namespace {

constexpr size_t kShownBytesMax = 100;

}  // namespace

struct Bridge::State {
  State(core::EventLoop& loop, core::Random& random, ControlPlaneClient& client,
        BridgeConfig config)
      : core(loop, random, client, std::move(config)),
        requests(core),
        mcp(core, requests),
        sse(core, requests),
        ops(core) {}

  BridgeCore core;
  RequestServer requests;
  McpEndpoint mcp;
  SseEndpoint sse;
  OpsEndpoint ops;
  absl::AnyInvocable<void()> drained;
  core::Timer drain_timer;
  core::Lifetime lifetime;
};

Bridge::Bridge(core::EventLoop& loop, core::Random& random, ControlPlaneClient& client,
               BridgeConfig config)
    : state_(std::make_unique<State>(loop, random, client, std::move(config))) {}

Bridge::~Bridge() = default;

void Bridge::Handle(net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
  BridgeCore& core = state_->core;
  ++core.gauges.requests;
  if (const auto refusal = core.access.Refusal(request)) {
    ++core.gauges.foreign_refused;
    return HttpAnswer(std::move(responder), {}).Error(403, *refusal);
  }
  const HttpAnswer answer(std::move(responder), AccessControl::CorsHeaders(request));
  Route route = FindRoute(request.path());
  const bool is_sse = route.endpoint == Endpoint::kSse || route.endpoint == Endpoint::kMessages;
  if (is_sse && !core.config.legacy_sse) route = {};
  if (route.endpoint == Endpoint::kUnknown) {
    return answer.Error(404, fmt::format("no path '{}' here; there are: {}",
                                         request.path().substr(0, kShownBytesMax), KnownPaths()));
  }
  const std::string methods(AllowedMethods(route.endpoint));
  if (!Allows(route.endpoint, request.method)) {
    return answer.Error(405,
                        fmt::format("method {} is not allowed here; allowed: {}",
                                    request.method.substr(0, kShownBytesMax), methods),
                        {{"Allow", methods}});
  }
  if (request.method == "OPTIONS") {
    net::HeaderList headers = {{"Allow", methods}};
    if (request.Header("Origin") != nullptr) {
      const std::string* const wanted = request.Header("Access-Control-Request-Headers");
      for (auto& header : AccessControl::PreflightHeaders(
               methods, wanted == nullptr ? std::string_view() : std::string_view(*wanted))) {
        headers.push_back(std::move(header));
      }
    }
    return answer.Empty(204, std::move(headers));
  }
  const bool is_mcp = route.endpoint == Endpoint::kFacade || route.endpoint == Endpoint::kInstance;
  if (is_mcp) return state_->mcp.Handle(std::move(route), std::move(request), answer);
  if (is_sse) return state_->sse.Handle(std::move(route), std::move(request), answer);
  state_->ops.Handle(route.endpoint, request, answer);
}

void Bridge::SetHardWait(absl::Duration hard_wait) { state_->core.config.hard_wait = hard_wait; }

void Bridge::Drain(absl::Duration grace, absl::AnyInvocable<void()> done) {
  State& state = *state_;
  auto& core = state.core;
  core.draining = true;
  state.drained = std::move(done);
  auto finish = [&state] {
    if (!state.core.exchanges.idle()) return;
    // What has no end of its own was open for as long as anything could still be told.
    if (!state.core.exchanges.empty()) return state.core.exchanges.DrainAll(/*last=*/true);
    state.drain_timer.Cancel();
    if (auto drained = std::exchange(state.drained, nullptr)) drained();
  };
  core.exchanges.OnIdle(finish);
  core.exchanges.DrainAll(/*last=*/false);
  state.drain_timer = core.loop.After(grace, [&core] { core.exchanges.DrainAll(/*last=*/true); });
  core.loop.Post(state.lifetime.Wrap(finish));
}

void Bridge::WriteMetrics(core::MetricsText& text) const {
  bridge::WriteMetrics(gauges(), text);
  state_->core.client.WriteMetrics(text);
}

BridgeGauges Bridge::gauges() const {
  BridgeGauges gauges = state_->core.gauges;
  gauges.sessions_cached = state_->core.sessions.size();
  return gauges;
}

}  // namespace callboard::bridge
