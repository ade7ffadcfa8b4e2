// Which web pages and host names may reach the bridge: the guard against DNS rebinding (X1).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bridge/config.h"
#include "net/http_server.h"

namespace callboard::bridge {

// Pure. Browsers always send Host, and Origin for everything a page of another site starts, so a
// request without Origin comes from a program and is judged by its Host alone.
class AccessControl {
 public:
  explicit AccessControl(const BridgeConfig& config);

  // Why the request is refused, for its sender; nullopt if it may pass. Every Host and Origin
  // header counts, not only the first.
  std::optional<std::string> Refusal(const net::HttpRequest& request) const;

  // What an answer to an allowed page carries; empty for requests without Origin.
  static net::HeaderList CorsHeaders(const net::HttpRequest& request);
  // What the answer to a preflight (OPTIONS) carries besides. `wanted`: the headers it asks for; of
  // Mcp-Param-* all are allowed.
  static net::HeaderList PreflightHeaders(std::string_view methods, std::string_view wanted);

 private:
  bool IsOwnHost(std::string_view host) const;

  std::vector<std::string> hosts_;
  std::vector<std::string> origins_;
  bool any_host_ = false;
};

}  // namespace callboard::bridge
