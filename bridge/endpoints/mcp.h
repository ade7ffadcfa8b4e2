// MCP's Streamable HTTP on /mcp, /mcp?tools= and /mcp/{instance}, for the revisions with sessions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/request_server.h"
#include "bridge/http_answer.h"
#include "bridge/routes.h"
#include "bridge/session_cache.h"
#include "net/http_server.h"

namespace callboard::bridge {

// Decides what an HTTP request is and which status it gets; the rest is done by exchanges. Owned by
// the bridge; loop thread.
class McpEndpoint {
 public:
  explicit McpEndpoint(BridgeCore& core) : core_(core), requests_(core) {}

  void Handle(Route route, net::HttpRequest request, HttpAnswer answer);

 private:
  // One HTTP request; on the heap, as messages are views into its body.
  struct Visit {
    Route route;
    net::HttpRequest http;
    HttpAnswer answer;
    // What the URL selects to be shown directly, in its one spelling; empty if it says nothing.
    std::string tools;
    bool accepts_events = true;
    core::JsonRpcMessage message;
    std::vector<absl::StatusOr<core::JsonRpcMessage>> batch;

    // Of the request, for errors; empty if there is none.
    std::string raw_id() const { return std::string(message.id); }
    std::string_view HeaderText(std::string_view name) const;
  };
  using VisitPtr = std::shared_ptr<Visit>;
  using WithSessionFn = absl::AnyInvocable<void(const SessionInfo&)>;

  void Post(const VisitPtr& visit);
  void PostBatch(const VisitPtr& visit);
  void Get(const VisitPtr& visit);
  // `wanted`: what kind of probe.
  void Probe(const HttpAnswer& answer, std::string_view wanted);
  void RefuseStream(const HttpAnswer& answer);
  void Delete(const VisitPtr& visit);

  void Initialize(const VisitPtr& visit);
  void OpenSession(const VisitPtr& visit, const v1::InstanceRow* row);
  void AnswerOldControlPlane(const VisitPtr& visit, const v1::Session& session);
  void RefuseDraining(const VisitPtr& visit);
  void AnswerNoInstance(const VisitPtr& visit, std::string_view problem);

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
  // The control plane's message for a notification or a response; false if it needs none.
  static bool ToSend(const SessionInfo& session, const core::JsonRpcMessage& message,
                     v1::SendRequest* request);

  BridgeCore& core_;
  RequestServer requests_;
};

}  // namespace callboard::bridge
