// MCP's Streamable HTTP on /mcp, /mcp?tools= and /mcp/{instance}: which era a request is of, and
// the revisions with sessions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/modern.h"
#include "bridge/endpoints/request_server.h"
#include "bridge/endpoints/surface.h"
#include "bridge/endpoints/visit.h"
#include "bridge/http_answer.h"
#include "bridge/routes.h"
#include "bridge/session_cache.h"
#include "net/http_server.h"

namespace callboard::bridge {

// Decides what an HTTP request is and which status it gets; the rest is done by exchanges. Owned by
// the bridge; loop thread.
class McpEndpoint {
 public:
  McpEndpoint(BridgeCore& core, RequestServer& requests)
      : core_(core), requests_(requests), modern_(core, requests) {}

  void Handle(Route route, net::HttpRequest request, HttpAnswer answer);

 private:
  using WithSessionFn = absl::AnyInvocable<void(const SessionInfo&)>;

  void Post(const VisitPtr& visit);
  // Answers what belongs to the revisions without sessions; false: nothing says that it does.
  bool TakeModern(const VisitPtr& visit);
  void PostBatch(const VisitPtr& visit);
  void Get(const VisitPtr& visit);
  // `wanted`: what kind of probe.
  void Probe(const HttpAnswer& answer, std::string_view wanted);
  void Delete(const VisitPtr& visit);

  void Initialize(const VisitPtr& visit);
  void OpenSession(const VisitPtr& visit, const Surface& surface);
  void AnswerOldControlPlane(const VisitPtr& visit, const v1::Session& session);

  // Runs `then` with the session the request names, if it exists and belongs to this path; else
  // answers 400 or 404.
  void WithSession(const VisitPtr& visit, WithSessionFn then);
  void CheckSurface(const VisitPtr& visit, SessionInfo& session, WithSessionFn then);
  void AnswerNoSession(const VisitPtr& visit);
  // The URL selects other tools than the session shows: 404, as for any other surface.
  void AnswerOtherTools(const VisitPtr& visit, const SessionInfo& session);

  void Serve(const VisitPtr& visit, const SessionInfo& session);
  void ServeBatch(const VisitPtr& visit, const SessionInfo& session);
  RequestSpec MakeSpec(const Visit& visit, const SessionInfo& session, std::string_view raw_id);

  BridgeCore& core_;
  RequestServer& requests_;
  ModernEndpoint modern_;
};

}  // namespace callboard::bridge
