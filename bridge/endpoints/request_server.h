// Serves one JSON-RPC request of a session, wherever it came from: alone or in a batch; and those
// that have none.
#pragma once

#include <optional>
#include <string>

#include "bridge/bridge_core.h"
#include "bridge/endpoints/request_exchange.h"
#include "bridge/endpoints/selected_tools.h"
#include "bridge/facade/facade.h"
#include "bridge/session_cache.h"
#include "core/mcp/jsonrpc.h"

namespace callboard::bridge {

// Loop thread; owned by the bridge; outlives its exchanges.
class RequestServer {
 public:
  explicit RequestServer(BridgeCore& core) : core_(core), facade_(core), selected_(core) {}

  // The answer to what needs no control plane; nullopt: Serve() it.
  std::optional<std::string> AnswerHere(const SessionInfo& session,
                                        const core::JsonRpcMessage& request) const;

  // Answers through spec, now or later. A request without a session has an info without an id,
  // with the instance's name in place of the seat. Returns the number of the exchange that does.
  uint64_t Serve(const SessionInfo& session, const core::JsonRpcMessage& request, RequestSpec spec);

 private:
  void ListTools(RequestExchange& exchange, const v1::Target& target);
  void AnswerToolList(RequestExchange& exchange, const std::string& list);

  BridgeCore& core_;
  Facade facade_;
  SelectedTools selected_;
};

}  // namespace callboard::bridge
