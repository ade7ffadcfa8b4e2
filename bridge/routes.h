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
  kSse,          // /sse, /sse/{instance}
  kMessages,     // /messages
  kHealth,       // /health
  kLiveness,     // /v1/healthz
  kReadiness,    // /v1/readyz
  kAdminHealth,  // /admin/api/health
  kYield,        // /gateway/yield
};

struct Route {
  Endpoint endpoint = Endpoint::kUnknown;
  // Percent-decoded; empty of others than kInstance and kSse.
  std::string instance;
};

// `path` without query. One trailing slash is ignored rather than redirected: clients that are
// redirected lose their body or their session.
Route FindRoute(std::string_view path);

// What the query (without '?') gives as `name`, decoded as a form is; several are joined by commas.
// nullopt: it has none.
std::optional<std::string> ParameterOfQuery(std::string_view query, std::string_view name);

// For Allow and CORS: "POST, GET, DELETE, OPTIONS".
std::string_view AllowedMethods(Endpoint endpoint);
bool Allows(Endpoint endpoint, std::string_view method);

// What is said with a 404.
std::string_view KnownPaths();

}  // namespace callboard::bridge
