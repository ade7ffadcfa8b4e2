// Which endpoint a path belongs to and which methods it takes. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace callboard::bridge {

enum class Endpoint {
  kUnknown,
  kFacade,       // /mcp
  kInstance,     // /mcp/{instance}
  kHealth,       // /health
  kLiveness,     // /v1/healthz
  kReadiness,    // /v1/readyz
  kAdminHealth,  // /admin/api/health
  kYield,        // /gateway/yield
};

struct Route {
  Endpoint endpoint = Endpoint::kUnknown;
  std::string instance;  // of kInstance, percent-decoded
};

// `path` without query. One trailing slash is ignored rather than redirected: clients that are
// redirected lose their body or their session.
Route FindRoute(std::string_view path);

// The selectors that the query (without '?') gives as `tools`, decoded as a form is; several are
// joined by commas. nullopt: it has none.
std::optional<std::string> ToolsOfQuery(std::string_view query);

// For Allow and CORS: "POST, GET, DELETE, OPTIONS".
std::string_view AllowedMethods(Endpoint endpoint);
bool Allows(Endpoint endpoint, std::string_view method);

// What is said with a 404.
std::string_view KnownPaths();

}  // namespace callboard::bridge
