// MCP of revision 2026-07-28 on /mcp, /mcp?tools= and /mcp/{instance}: requests that stand for
// themselves.
#pragma once

#include "bridge/bridge_core.h"
#include "bridge/endpoints/request_server.h"
#include "bridge/endpoints/tasks.h"
#include "bridge/endpoints/visit.h"
#include "bridge/modern_request.h"

namespace callboard::bridge {

// Decides what a request of this revision gets; the rest is done by exchanges. Nothing of it has a
// session: a client that hangs up has cancelled. Owned by the MCP endpoint; loop thread.
class ModernEndpoint {
 public:
  ModernEndpoint(BridgeCore& core, RequestServer& requests)
      : core_(core), requests_(requests), tasks_(core) {}

  // A request or notification that belongs to this revision, sound or not.
  void Post(const VisitPtr& visit);

 private:
  void Discover(const VisitPtr& visit);
  void Listen(const VisitPtr& visit, const ModernRequest& asked);
  // `ours`: calls whose tasks are listened to besides. Without a request there is nothing else.
  void BeginListen(const VisitPtr& visit, std::optional<v1::ListenRequest> request,
                   const std::vector<std::string>& ours);
  void Serve(const VisitPtr& visit, ModernRequest request);
  // A whole response that needed nobody.
  void Answer(const VisitPtr& visit, const std::string& response);

  BridgeCore& core_;
  RequestServer& requests_;
  TasksEndpoint tasks_;
};

}  // namespace callboard::bridge
