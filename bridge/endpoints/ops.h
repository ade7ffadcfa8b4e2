// Health for supervisors, and what unchanged dcc-mcp adapters ask of a gateway (D2).
#pragma once

#include "bridge/bridge_core.h"
#include "bridge/http_answer.h"
#include "bridge/routes.h"
#include "net/http_server.h"

namespace callboard::bridge {

// Owned by the bridge; loop thread.
class OpsEndpoint {
 public:
  explicit OpsEndpoint(BridgeCore& core) : core_(core) {}

  // `endpoint` is one of this class' own.
  void Handle(Endpoint endpoint, const net::HttpRequest& request, HttpAnswer answer);

 private:
  void Ready(const net::HttpRequest& request, const HttpAnswer& answer);
  void AnswerAdminHealth(const HttpAnswer& answer);
  void RefuseYield(const net::HttpRequest& request, const HttpAnswer& answer);

  BridgeCore& core_;
};

}  // namespace callboard::bridge
