// Tests of tool list deltas.
#include "core/mcp/tool_list_delta.h"

#include <gtest/gtest.h>

namespace callboard::core {
namespace {

std::string Tool(const std::string& name, const std::string& text = "") {
  return R"({"name":")" + name + R"(","description":")" + text + std::string(100, 'x') + R"("})";
}
std::string List(const std::vector<std::string>& tools) {
  std::string list = R"({"tools":[)";
  for (const std::string& tool : tools) list += (list.back() == '[' ? "" : ",") + tool;
  return list + "]}";
}
const std::vector<std::string> kMany = {Tool("a"), Tool("b"), Tool("c"), Tool("d"),
                                        Tool("e"), Tool("f"), Tool("g"), Tool("h")};

void ExpectDelta(const std::vector<std::string>& newer, size_t changes) {
  const std::string base = List(kMany);
  const auto delta = MakeToolListDelta(base, List(newer));
  ASSERT_TRUE(delta);
  EXPECT_EQ(delta->changes.size(), changes);
  EXPECT_LT(delta->body.size(), List(newer).size() / 2);
  EXPECT_EQ(*ApplyToolListDelta(base, delta->changes, delta->body), List(newer));
}

TEST(ToolListDelta, AddsAtTheStartInTheMiddleAndAtTheEnd) {
  auto newer = kMany;
  newer.insert(newer.begin() + 3, {Tool("n1"), Tool("n2")});
  newer.insert(newer.begin(), Tool("first"));
  newer.push_back(Tool("last"));
  ExpectDelta(newer, 4);
}

TEST(ToolListDelta, RemovesAndChangesInPlace) {
  auto newer = kMany;
  newer[4] = Tool("e", "new");
  newer.erase(newer.begin());
  ExpectDelta(newer, 2);
}

TEST(ToolListDelta, ReplacesASkillsStubByItsTools) {
  auto base = kMany;
  base.push_back(Tool("__skill__stage"));
  auto newer = kMany;
  newer.push_back(Tool("create_stage"));
  const auto delta = MakeToolListDelta(List(base), List(newer));
  ASSERT_TRUE(delta);
  EXPECT_TRUE(delta->changes[0].removed);
  EXPECT_EQ(delta->changes[1].after, "h");
}

TEST(ToolListDelta, AnotherOrderOfWhatStayedHasNoDelta) {
  auto newer = kMany;
  std::swap(newer[0], newer[1]);
  EXPECT_FALSE(MakeToolListDelta(List(kMany), List(newer)));
}

TEST(ToolListDelta, ListThatIsMostlyNewHasNoDelta) {
  EXPECT_FALSE(MakeToolListDelta(List({Tool("a")}), List(kMany)));
}

TEST(ToolListDelta, NamesThatAreMissingOrThereTwiceHaveNoDelta) {
  auto newer = kMany;
  newer.push_back(Tool("a"));
  EXPECT_FALSE(MakeToolListDelta(List(kMany), List(newer)));
  newer.back() = R"({"title":"x"})";
  EXPECT_FALSE(MakeToolListDelta(List(kMany), List(newer)));
}

TEST(ToolListDelta, ChangesOfAnotherListAreRefused) {
  const auto made =
      ApplyToolListDelta(List({Tool("a")}), {{.name = "n", .after = "zz"}}, List({Tool("n")}));
  EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace callboard::core
