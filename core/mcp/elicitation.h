// Elicitations that go on outside the client (MCP 2025-11-25): their ids, how their end is told.
#pragma once

#include <string>
#include <string_view>

#include "core/mcp/json.h"

namespace callboard::core {

// Told by a server, by the elicitation's id, to the client alone that started it.
inline constexpr std::string_view kElicitationComplete = "notifications/elicitation/complete";

// As the params of a request or notification, or an element of an error's data, name it; "": not,
// or by more than anybody needs.
inline std::string ElicitationIdOf(std::string_view raw) {
  constexpr size_t kBytesMax = 256;
  std::string id = FindString(raw, "elicitationId").value_or("");
  return id.size() <= kBytesMax ? id : std::string();
}

}  // namespace callboard::core
