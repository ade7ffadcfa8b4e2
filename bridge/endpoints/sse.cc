// Implementation of the endpoint of HTTP+SSE.
#include "bridge/endpoints/sse.h"

#include <memory>
#include <string>
#include <utility>

#include "bridge/content_negotiation.h"
#include "bridge/endpoints/selected_tools.h"
#include "bridge/endpoints/sse_session.h"
#include "bridge/errors.h"
#include "core/mcp/jsonrpc.h"

namespace callboard::bridge {
namespace {

// As the SDKs' servers call it, and those that came after them.
constexpr std::string_view kSessionParameter = "sessionId";
constexpr size_t kIdBytes = 16;

}  // namespace

void SseEndpoint::Handle(Route route, net::HttpRequest request, HttpAnswer answer) {
  if (!core_.exchanges.has_room()) {
    return answer.RpcError(503, {}, core::kServerError, "too many requests under way",
                           R"({"reason":"too_many"})", RetryAfter());
  }
  const auto visit = std::make_shared<Visit>(
      Visit{std::move(route), std::move(request), std::move(answer), {}, true, {}, {}});
  if (visit->http.method == "POST") return Post(visit);
  auto tools = SelectedTools::OfRequest(visit->route, visit->http);
  if (!tools.ok()) {
    return visit->answer.RpcError(400, {}, core::kInvalidRequest, core::Message(tools.status()),
                                  R"({"reason":"tools_invalid"})");
  }
  visit->tools = *std::move(tools);
  Get(visit);
}

void SseEndpoint::Get(const VisitPtr& visit) {
  if (!Accepts(visit->HeaderText("Accept"), "text/event-stream")) {
    return visit->answer.RpcError(406, {}, core::kServerError,
                                  "this is the event stream of HTTP+SSE: Accept must list "
                                  "text/event-stream");
  }
  if (core_.draining || !StreamSlot::HasRoom(core_, {})) return RefuseStream(core_, visit->answer);
  if (visit->route.instance.empty()) return Open(visit, {visit->tools, {}});
  FindInstance(core_, visit, [this, visit](const v1::InstanceRow& row) { Open(visit, {{}, row}); });
}

void SseEndpoint::Open(const VisitPtr& visit, Surface surface) {
  core_.exchanges
      .Add(std::make_unique<SseSession>(core_, requests_, visit->answer, core_.random.Hex(kIdBytes),
                                        std::move(surface), visit->route.instance))
      .Start();
}

void SseEndpoint::Post(const VisitPtr& visit) {
  const HttpAnswer& answer = visit->answer;
  const auto id = ParameterOfQuery(visit->http.query(), kSessionParameter);
  if (!id || id->empty()) {
    return answer.RpcError(400, {}, core::kServerError,
                           "sessionId is missing: GET /sse, and post where its first event says");
  }
  const auto found = core_.sse_sessions.find(*id);
  if (found == core_.sse_sessions.end() || !found->second->open()) {
    ++core_.gauges.session_mismatches;
    return answer.RpcError(404, {}, core::kSessionNotFound,
                           "no open stream has this sessionId: a session of HTTP+SSE ends with its "
                           "stream, and is known to the bridge it was opened at; GET /sse again");
  }
  if (!IsJsonContent(visit->HeaderText("Content-Type"))) {
    return answer.RpcError(415, {}, core::kServerError, "Content-Type must be application/json");
  }
  if (!visit->ReadMessage()) return;
  found->second->Take(visit);
}

}  // namespace callboard::bridge
