// MCP's log levels in order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace callboard::core {

// RFC 5424 severities by MCP's names, the most verbose first.
inline constexpr std::array<std::string_view, 8> kMcpLogLevels = {
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

// Its place in kMcpLogLevels; their number if there is no such level.
inline size_t McpSeverity(std::string_view level) {
  return static_cast<size_t>(std::find(kMcpLogLevels.begin(), kMcpLogLevels.end(), level) -
                             kMcpLogLevels.begin());
}

}  // namespace callboard::core
