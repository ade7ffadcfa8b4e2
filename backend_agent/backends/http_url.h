// The URL of a local MCP server.
#pragma once

#include <cstdint>
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

}  // namespace callboard::agent
