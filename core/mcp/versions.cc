// Names of the protocol revisions.
#include "core/mcp/versions.h"

#include <array>

namespace callboard::core {
namespace {

// Indexed by McpRevision.
constexpr std::array<std::string_view, 5> kNames = {"2024-11-05", "2025-03-26", "2025-06-18",
                                                    "2025-11-25", "2026-07-28"};

}  // namespace

std::string_view RevisionName(McpRevision revision) {
  return kNames[static_cast<size_t>(revision)];
}

std::optional<McpRevision> ParseRevision(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<McpRevision>(i);
  }
  return std::nullopt;
}

}  // namespace callboard::core
