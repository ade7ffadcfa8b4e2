// Tool lists as backends send them, and which seat has which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/domain/tool_catalog.h"

namespace callboard::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ToolList, KeepsTheBackendsOwnBytes) {
  const std::string tool =
      R"({ "name":"create_sphere" ,"big":1e999, "description":"Makes a sphere. Really.",)"
      R"("inputSchema":{"type" : "object"},"annotations":{"idempotentHint":true},)"
      R"("_meta":{"dcc":{"timeoutHintSecs":1.5,"searchAliases":["ball","orb"],"tags":["mesh"]}}})";
  auto list = ParseToolList("d1", R"({"tools": [ )" + tool + R"( ], "nextCursor": null})");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ((*list)->array, "[ " + tool + " ]");
  const ToolInfo* info = (*list)->Find("create_sphere");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->definition, tool);
  EXPECT_EQ(info->input_schema, R"({"type" : "object"})");
  EXPECT_EQ(info->timeout_hint, absl::Seconds(1.5));
  EXPECT_THAT(info->aliases, ElementsAre("ball", "orb"));
  EXPECT_THAT(info->tags, ElementsAre("mesh"));
  EXPECT_TRUE(info->idempotent);
  EXPECT_FALSE(info->read_only);
}

TEST(ToolList, SkipsNamelessAndSecondTools) {
  auto list = ParseToolList(
      "d", R"({"tools":[{"title":"x"},{"name":"a","title":"1"},{"name":"a","title":"2"},)"
           R"({"name":"__skill__openusd-stage","description":"Edit stages"}]})");
  ASSERT_TRUE(list.ok());
  ASSERT_EQ((*list)->tools.size(), 2u);
  EXPECT_EQ((*list)->Find("a")->title, "1");
  EXPECT_EQ((*list)->Find("__skill__openusd-stage")->unloaded_skill, "openusd-stage");
}

TEST(ToolList, NamesTheBrokenTool) {
  auto list = ParseToolList("d9", R"({"tools":[{"name":"a"},17]})");
  EXPECT_TRUE(absl::IsInvalidArgument(list.status()));
  EXPECT_THAT(core::Message(list.status()), HasSubstr("tool list d9: tool 1 is not an object"));
  EXPECT_FALSE(ParseToolList("d", "{}").ok());
  EXPECT_FALSE(ParseToolList("d", R"({"tools":[)").ok());
}

TEST(SearchWords, SplitsSignsAndCamelCase) {
  EXPECT_THAT(SearchWords("openusd_stage__createUSDStage2 Ünï"),
              ElementsAre("openusd", "stage", "create", "usd", "stage2", "Ünï"));
}

TEST(Summary, IsTheFirstSentenceWithinTwoHundredCharacters) {
  EXPECT_EQ(Summary("  Bakes, e.g. normals. Slow."), "Bakes, e.g. normals.");
  EXPECT_EQ(Summary("One line\nmore"), "One line");
  EXPECT_EQ(Summary(""), "");
  std::string umlauts;
  for (int i = 0; i < 300; ++i) umlauts += "ä";
  const std::string cut = Summary(umlauts);
  EXPECT_EQ(cut.size(), 199u * 2 + 3);
  EXPECT_TRUE(cut.ends_with("ä\u2026"));
  EXPECT_EQ(Summary(umlauts.substr(0, 400)), umlauts.substr(0, 400));
}

TEST(ToolCatalog, KeepsAListWhileASeatUsesIt) {
  ToolCatalog catalog;
  const uint64_t start = catalog.generation();
  catalog.Assign("seat1", "d1");
  EXPECT_EQ(catalog.Of("seat1"), nullptr);
  catalog.Put(*ParseToolList("d1", R"({"tools":[{"name":"a"}]})"));
  ASSERT_NE(catalog.Of("seat1"), nullptr);
  catalog.Assign("seat2", "d1");
  catalog.RemoveSeat("seat1");
  EXPECT_TRUE(catalog.Has("d1"));
  const uint64_t before = catalog.generation();
  catalog.Assign("seat2", "d2");
  EXPECT_FALSE(catalog.Has("d1"));
  EXPECT_EQ(catalog.lists(), 0u);
  EXPECT_GT(catalog.generation(), before);
  EXPECT_GT(before, start);
}

TEST(ToolCatalog, DropsListsNobodyAskedForAtTheNextPut) {
  ToolCatalog catalog;
  catalog.Put(*ParseToolList("d1", R"({"tools":[]})"));
  catalog.Put(*ParseToolList("d2", R"({"tools":[]})"));
  EXPECT_FALSE(catalog.Has("d1"));
  EXPECT_TRUE(catalog.Has("d2"));
}

}  // namespace
}  // namespace callboard::server
