// Tests of the protocol revisions.
#include "core/mcp/versions.h"

#include <gtest/gtest.h>

namespace callboard::core {
namespace {

TEST(McpRevision, NamesRoundTripInOrderOfAge) {
  std::optional<McpRevision> older;
  for (std::string_view name :
       {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}) {
    const auto revision = ParseRevision(name);
    ASSERT_TRUE(revision.has_value()) << name;
    EXPECT_EQ(RevisionName(*revision), name);
    EXPECT_TRUE(!older || *older < *revision) << name;
    older = revision;
  }
}

TEST(McpRevision, UnknownNamesAreNone) {
  for (std::string_view name : {"", "2025-11-2", "2025-11-25 ", "1.0", "draft"}) {
    EXPECT_EQ(ParseRevision(name), std::nullopt) << name;
  }
}

TEST(McpRevision, TellsWhatChanged) {
  EXPECT_FALSE(HasPriming(McpRevision::k2025_06_18));
  EXPECT_TRUE(HasPriming(McpRevision::k2025_11_25));
  EXPECT_FALSE(HasStructuredContent(McpRevision::k2025_03_26));
  EXPECT_TRUE(HasStructuredContent(McpRevision::k2025_06_18));
  EXPECT_FALSE(InvalidArgumentsAreResults(McpRevision::k2025_06_18));
  EXPECT_TRUE(InvalidArgumentsAreResults(McpRevision::k2026_07_28));
}

}  // namespace
}  // namespace callboard::core
