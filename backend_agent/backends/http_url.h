// The URL of a local MCP server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace callboard::agent {

// "http://127.0.0.1:9401/mcp" taken apart; an IPv6 host is without its brackets.
struct HttpUrl {
  std::string host;
  uint16_t port = 80;
  std::string path = "/";  // with the query
};

// InvalidArgument: no http URL with a host.
absl::StatusOr<HttpUrl> ParseHttpUrl(std::string_view url);

// "127.0.0.1:9401", "[::1]:9401".
std::string HostAndPort(const HttpUrl& url);

// The path that `reference` ("/mcp/", "http://127.0.0.1:9401/mcp/") names on the same origin;
// nullopt: it leads elsewhere, or is neither a path from the root nor an http URL.
std::optional<std::string> PathWithin(const HttpUrl& origin, std::string_view reference);

}  // namespace callboard::agent
