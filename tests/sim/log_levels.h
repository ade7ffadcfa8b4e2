// The log levels of MCP, the most verbose first.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace callboard::sim {

inline constexpr std::array<std::string_view, 8> kLogLevels = {
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

// Their number if there is no such level.
inline size_t LevelOf(std::string_view name) {
  return static_cast<size_t>(std::find(kLogLevels.begin(), kLogLevels.end(), name) -
                             kLogLevels.begin());
}

}  // namespace callboard::sim
