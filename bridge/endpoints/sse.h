// HTTP+SSE of MCP 2024-11-05: GET /sse, /sse?tools= and /sse/{instance}, POST /messages.
#pragma once

#include "bridge/bridge_core.h"
#include "bridge/endpoints/request_server.h"
#include "bridge/endpoints/surface.h"
#include "bridge/endpoints/visit.h"
#include "bridge/http_answer.h"
#include "bridge/routes.h"
#include "net/http_server.h"

namespace callboard::bridge {

// Opens streams and finds the one that a POST belongs to; the rest is SseSession's. A stream is
// known to its own bridge only. Owned by the bridge; loop thread.
class SseEndpoint {
 public:
  SseEndpoint(BridgeCore& core, RequestServer& requests) : core_(core), requests_(requests) {}

  void Handle(Route route, net::HttpRequest request, HttpAnswer answer);

 private:
  void Get(const VisitPtr& visit);
  void Open(const VisitPtr& visit, Surface surface);
  void Post(const VisitPtr& visit);

  BridgeCore& core_;
  RequestServer& requests_;
};

}  // namespace callboard::bridge
