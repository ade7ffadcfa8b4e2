// The surface /mcp?tools=: selected tools of many seats, listed and called under their own names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/request_exchange.h"
#include "bridge/routes.h"
#include "bridge/tool_pages.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/strings.h"
#include "net/http_server.h"

namespace callboard::bridge {

// Which tools those are and what each name stands for is the control plane's to say; here lists are
// kept by digest and cut into pages. Loop thread; owned by RequestServer. Bounds:
// tool_lists_cached_max lists.
class SelectedTools {
 public:
  explicit SelectedTools(BridgeCore& core) : core_(core) {}

  // What the URL of a request selects, in its one spelling; empty if it does not select.
  // InvalidArgument says which selector is wrong, or that this path has none.
  static absl::StatusOr<std::string> OfRequest(const Route& route, const net::HttpRequest& request);

  // The answer to methods that this surface does not have; nullopt: Serve() it.
  static std::optional<std::string> AnswerHere(const core::JsonRpcMessage& request);

  // Answers tools/list or tools/call of a session that was opened with `tools`, or without one.
  void Serve(RequestExchange& exchange, const std::string& tools,
             const core::JsonRpcMessage& request);

 private:
  struct Listed {
    std::string digest;
    std::shared_ptr<const ToolPages> pages;
  };

  void List(RequestExchange& exchange, const std::string& tools, const std::string& cursor);
  void AnswerPage(RequestExchange& exchange, const ToolPages& pages, std::string_view cursor,
                  uint32_t left_out) const;

  BridgeCore& core_;
  core::StringMap<Listed> lists_;  // by selectors
};

}  // namespace callboard::bridge
