// The protocol revisions of MCP and what differs between those Callboard speaks.
#pragma once

#include <optional>
#include <string_view>

namespace callboard::core {

// In order of publication, so that < compares age.
enum class McpRevision { k2024_11_05, k2025_03_26, k2025_06_18, k2025_11_25, k2026_07_28 };

inline constexpr McpRevision kNewestLegacyRevision = McpRevision::k2025_11_25;

std::string_view RevisionName(McpRevision revision);
std::optional<McpRevision> ParseRevision(std::string_view name);

// Priming events were introduced with 2025-11-25; older clients may choke on empty data.
constexpr bool HasPriming(McpRevision revision) { return revision >= McpRevision::k2025_11_25; }
// Input validation failures are tool results with isError from 2025-11-25 on, -32602 before.
constexpr bool InvalidArgumentsAreResults(McpRevision revision) {
  return revision >= McpRevision::k2025_11_25;
}
constexpr bool HasStructuredContent(McpRevision revision) {
  return revision >= McpRevision::k2025_06_18;
}

}  // namespace callboard::core
