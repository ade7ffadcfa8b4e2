// Takes URLs of local MCP servers apart.
#include "backend_agent/backends/http_url.h"

#include <charconv>

#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

std::string HostAndPort(const HttpUrl& url) {
  if (url.host.find(':') != std::string::npos) return fmt::format("[{}]:{}", url.host, url.port);
  return fmt::format("{}:{}", url.host, url.port);
}

absl::StatusOr<HttpUrl> ParseHttpUrl(std::string_view url) {
  const auto wrong = [&] {
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("'{}' is not the URL of a local MCP server; expected http://HOST[:PORT]/PATH",
                    url));
  };
  std::string_view rest = url;
  if (!rest.starts_with("http://")) return wrong();
  rest.remove_prefix(7);
  HttpUrl parsed;
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) parsed.path = std::string(rest.substr(slash));
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return wrong();
    parsed.host = std::string(authority.substr(1, close - 1));
    authority.remove_prefix(close + 1);
    if (!authority.empty() && authority.front() != ':') return wrong();
    if (!authority.empty()) port = authority.substr(1);
  } else {
    const size_t colon = authority.find(':');
    parsed.host = std::string(authority.substr(0, colon));
    if (colon != std::string_view::npos) port = authority.substr(colon + 1);
  }
  if (parsed.host.empty()) return wrong();
  if (!port.empty()) {
    auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
    if (error != std::errc() || end != port.data() + port.size() || parsed.port == 0) {
      return wrong();
    }
  }
  return parsed;
}

std::optional<std::string> PathWithin(const HttpUrl& origin, std::string_view reference) {
  if (reference.starts_with('/') && !reference.starts_with("//")) return std::string(reference);
  const auto url = ParseHttpUrl(reference);
  if (!url.ok() || url->host != origin.host || url->port != origin.port) return std::nullopt;
  return url->path;
}

}  // namespace callboard::agent
