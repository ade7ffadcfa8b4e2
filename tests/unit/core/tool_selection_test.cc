// What selectors of tools mean, and what is said of those that mean nothing.
#include "core/mcp/tool_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/runtime/random.h"
#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Spelt(std::string_view text) {
  const auto selection = ToolSelection::Parse(text);
  return selection.ok() ? selection->text() : std::string(Message(selection.status()));
}

TEST(ToolSelection, WhatIsLeftOutIsAny) {
  EXPECT_EQ(Spelt("maya"), "maya.*.*");
  EXPECT_EQ(Spelt("Maya.1f2e3d4c"), "maya.1f2e3d4c.*");
  EXPECT_EQ(Spelt("maya.*.create_*"), "maya.*.create_*");
  EXPECT_EQ(Spelt("*"), "*.*.*");
}

TEST(ToolSelection, ToolMayHaveDotsAndBlanksInside) {
  const auto selection = ToolSelection::Parse("blender.44444444.mesh.add cube");
  ASSERT_TRUE(selection.ok()) << selection.status();
  ASSERT_EQ(selection->selectors().size(), 1u);
  EXPECT_EQ(selection->selectors()[0].app, "blender");
  EXPECT_EQ(selection->selectors()[0].instance, "44444444");
  EXPECT_EQ(selection->selectors()[0].tool, "mesh.add cube");
}

TEST(ToolSelection, TextsThatMeanTheSameHaveOneSpelling) {
  const std::string one = Spelt(" usd ,pinned, maya.*.bake,usd.*.*");
  EXPECT_EQ(one, "maya.*.bake,usd.*.*,pinned");
  EXPECT_EQ(Spelt(one), one);
  const auto selection = ToolSelection::Parse(one);
  EXPECT_TRUE(selection->pinned());
  EXPECT_EQ(selection->selectors().size(), 2u);
  EXPECT_EQ(Spelt("pinned"), "pinned");
}

TEST(ToolSelection, FaultsNameTheSelectorAndWhatIsWrongWithIt) {
  EXPECT_THAT(Spelt(""), HasSubstr("selector '' is empty"));
  EXPECT_THAT(Spelt("maya,,usd"), HasSubstr("selector '' is empty"));
  EXPECT_THAT(Spelt("maya,"), HasSubstr("selector '' is empty"));
  EXPECT_THAT(Spelt("usd,.x.bake"), AllOf(HasSubstr("selector '.x.bake' names no application"),
                                          HasSubstr("<app>[.<instance>[.<tool>]]")));
  EXPECT_THAT(Spelt("maya..bake"), HasSubstr("'maya..bake' has a dot and no instance after it"));
  EXPECT_THAT(Spelt("maya.x."), HasSubstr("'maya.x.' has a dot and no tool after it"));
  EXPECT_THAT(Spelt("maya.\n"), HasSubstr("0x0a at byte 5"));
  EXPECT_THAT(Spelt("maya.\xff"), HasSubstr("UTF-8"));
}

TEST(ToolSelection, BoundsAreSaid) {
  std::string many;
  for (int i = 0; i < 65; ++i) many += (i > 0 ? ",a" : "a") + std::to_string(i);
  EXPECT_THAT(Spelt(many), HasSubstr("more than 64 selectors"));
  EXPECT_THAT(Spelt(std::string(4090, 'x')), HasSubstr("xxx.*.*"));
  EXPECT_THAT(Spelt(std::string(4095, 'x')), HasSubstr("4099 bytes, and 4096 are taken"));
  EXPECT_THAT(Spelt(std::string(100'000, 'x')), HasSubstr("100000 bytes"));
  EXPECT_EQ(ToolSelection().text(), "");
  EXPECT_TRUE(ToolSelection().empty());
}

TEST(ToolSelection, RandomTextsAreRefusedOrHaveOneSpelling) {
  SeededRandom random(11);
  constexpr std::string_view kAlphabet = "aZ9.*,_- \tpinned%\xc3\xbc\x01";
  int taken = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    std::string text;
    for (uint64_t i = random.Below(24); i > 0; --i) {
      text += kAlphabet[random.Below(kAlphabet.size())];
    }
    const auto selection = ToolSelection::Parse(text);
    if (!selection.ok()) {
      EXPECT_FALSE(Message(selection.status()).empty());
      continue;
    }
    ++taken;
    const auto again = ToolSelection::Parse(selection->text());
    ASSERT_TRUE(again.ok()) << text << " | " << selection->text();
    EXPECT_EQ(again->text(), selection->text());
    EXPECT_EQ(again->selectors(), selection->selectors());
  }
  EXPECT_GT(taken, 100);
}

TEST(Pattern, StarStandsForAnyRun) {
  EXPECT_TRUE(FitsPattern("*", ""));
  EXPECT_TRUE(FitsPattern("create_*", "create_sphere"));
  EXPECT_TRUE(FitsPattern("*sphere*", "create_sphere"));
  EXPECT_TRUE(FitsPattern("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(FitsPattern("a*b*c", "a-b-b-"));
  EXPECT_FALSE(FitsPattern("bake", "bake_all"));
  EXPECT_FALSE(FitsPattern("", "x"));
  EXPECT_FALSE(FitsPattern(std::string(2'000, '*') + "b", std::string(2'000, 'a')));
}

}  // namespace
}  // namespace callboard::core
