// Implementation of the routes: a short table.
#include "bridge/routes.h"

#include <algorithm>
#include <array>
#include <utility>

namespace callboard::bridge {
namespace {

constexpr size_t kInstanceBytesMax = 256;
constexpr std::array<std::pair<std::string_view, Endpoint>, 2> kInstancePrefixes = {{
    {"/mcp/", Endpoint::kInstance},
    {"/sse/", Endpoint::kSse},
}};

constexpr std::array<std::pair<std::string_view, Endpoint>, 8> kPaths = {{
    {"/mcp", Endpoint::kFacade},
    {"/sse", Endpoint::kSse},
    {"/messages", Endpoint::kMessages},
    {"/health", Endpoint::kHealth},
    {"/v1/healthz", Endpoint::kLiveness},
    {"/v1/readyz", Endpoint::kReadiness},
    {"/admin/api/health", Endpoint::kAdminHealth},
    {"/gateway/yield", Endpoint::kYield},
}};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string PercentDecode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
                        HexDigit(text[i + 2]) >= 0;
    if (escape) {
      decoded.push_back(static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

}  // namespace

Route FindRoute(std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  for (const auto& [known, endpoint] : kPaths) {
    if (path == known) return {endpoint, {}};
  }
  for (const auto& [prefix, endpoint] : kInstancePrefixes) {
    if (!path.starts_with(prefix)) continue;
    const std::string_view instance = path.substr(prefix.size());
    const bool one_segment = instance.find('/') == std::string_view::npos;
    if (!instance.empty() && instance.size() <= kInstanceBytesMax && one_segment) {
      return {endpoint, PercentDecode(instance)};
    }
  }
  return {};
}

std::optional<std::string> ParameterOfQuery(std::string_view query, std::string_view name) {
  std::optional<std::string> found;
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view parameter = query.substr(0, end);
    query.remove_prefix(end == std::string_view::npos ? query.size() : end + 1);
    const size_t equals = parameter.find('=');
    if (PercentDecode(parameter.substr(0, equals)) != name) continue;
    std::string value(equals == std::string_view::npos ? "" : parameter.substr(equals + 1));
    std::replace(value.begin(), value.end(), '+', ' ');
    value = PercentDecode(value);
    if (found) {
      found->append(",").append(value);
    } else {
      found = std::move(value);
    }
  }
  return found;
}

std::string_view AllowedMethods(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kFacade:
    case Endpoint::kInstance:
      return "POST, GET, DELETE, OPTIONS";
    case Endpoint::kSse:
      return "GET, OPTIONS";
    case Endpoint::kMessages:
    case Endpoint::kYield:
      return "POST, OPTIONS";
    case Endpoint::kUnknown:
      return "";
    default:
      return "GET, HEAD, OPTIONS";
  }
}

bool Allows(Endpoint endpoint, std::string_view method) {
  std::string_view rest = AllowedMethods(endpoint);
  while (!rest.empty()) {
    const size_t comma = rest.find(", ");
    if (rest.substr(0, comma) == method) return true;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 2);
  }
  return false;
}

std::string_view KnownPaths() {
  return "/mcp, /mcp?tools=..., /mcp/{instance}, /sse, /sse/{instance}, /health, /v1/healthz, "
         "/v1/readyz, /admin/api/health, /gateway/yield";
}

}  // namespace callboard::bridge
