// Implementation of AccessControl: takes Host and Origin headers apart.
#include "bridge/access_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "bridge/agent_status.h"
#include "core/mcp/mirror_header.h"
#include "core/runtime/strings.h"
#include "net/authority.h"

namespace callboard::bridge {
namespace {

constexpr size_t kShownBytesMax = 100;

std::string Lower(std::string_view text) { return absl::AsciiStrToLower(core::ToAbsl(text)); }

bool SameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return absl::ascii_tolower(static_cast<unsigned char>(x)) ==
           absl::ascii_tolower(static_cast<unsigned char>(y));
  });
}

}  // namespace

AccessControl::AccessControl(const BridgeConfig& config) {
  hosts_ = {"localhost", "127.0.0.1", "[::1]"};
  for (const std::string& host : config.allowed_hosts) {
    if (host == "*") {
      any_host_ = true;
    } else {
      hosts_.push_back(Lower(host));
    }
  }
  for (const std::string& origin : config.allowed_origins) origins_.push_back(Lower(origin));
}

bool AccessControl::IsOwnHost(std::string_view host) const {
  return std::ranges::find(hosts_, Lower(host)) != hosts_.end();
}

std::optional<std::string> AccessControl::Refusal(const net::HttpRequest& request) const {
  for (const auto& [name, value] : request.headers) {
    if (SameName(name, "host")) {
      if (!any_host_ && !IsOwnHost(net::HostOf(value))) {
        return fmt::format(
            "host '{}' is not served here; use localhost, or have the name added "
            "to allowed_hosts",
            value.substr(0, kShownBytesMax));
      }
    } else if (SameName(name, "origin")) {
      std::string_view rest = value;
      const bool web = rest.starts_with("http://") || rest.starts_with("https://");
      if (web) rest.remove_prefix(rest.find("://") + 3);
      const bool own = web && IsOwnHost(net::HostOf(rest));
      if (!own && std::ranges::find(origins_, Lower(value)) == origins_.end()) {
        return fmt::format(
            "pages of origin '{}' may not call this server; have it added to "
            "allowed_origins",
            value.substr(0, kShownBytesMax));
      }
    }
  }
  return std::nullopt;
}

net::HeaderList AccessControl::CorsHeaders(const net::HttpRequest& request) {
  const std::string* const origin = request.Header("Origin");
  if (origin == nullptr) return {};
  return {{"Access-Control-Allow-Origin", *origin},
          {"Access-Control-Expose-Headers", request.Header(kAgentStatus) == nullptr
                                                ? "Mcp-Session-Id"
                                                : "Mcp-Session-Id, x-agent-status"},
          {"Vary", "Origin"}};
}

net::HeaderList AccessControl::PreflightHeaders(std::string_view methods, std::string_view wanted) {
  std::string allowed =
      "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, "
      "Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id, traceparent, tracestate, "
      "baggage, x-agent-status";
  while (!wanted.empty()) {
    const std::string name = Lower(wanted.substr(0, wanted.find(',')));
    const std::string_view bare = core::ToStd(absl::StripAsciiWhitespace(name));
    if (bare.starts_with("mcp-param-") && core::IsHeaderToken(bare)) {
      allowed.append(", ").append(bare);
    }
    wanted.remove_prefix(std::min(wanted.size(), wanted.find(',')));
    wanted.remove_prefix(wanted.empty() ? 0 : 1);
  }
  return {{"Access-Control-Allow-Methods", std::string(methods)},
          {"Access-Control-Allow-Headers", std::move(allowed)},
          {"Access-Control-Max-Age", "600"}};
}

}  // namespace callboard::bridge
