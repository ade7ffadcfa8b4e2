// Names of tools that are shown side by side (FC-24), and which tools a selection finds.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/mcp/json.h"
#include "server/domain/tool_choice.h"
#include "server/domain/tool_names.h"

namespace callboard::server {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;
using testing::SizeIs;

std::string Seat(char digit) { return std::string(8, digit) + std::string(24, '0'); }

// As the case has them.
std::vector<ToolOrigin> FieldCase() {
  const std::string sixty(60, 'x');
  const std::string seventy(69, 'y');
  return {{Seat('1'), "maya", "create_sphere", ""},
          {Seat('2'), "maya", "create_sphere", ""},
          {Seat('3'), "houdini", sixty, ""},
          {Seat('3'), "houdini", seventy + "1", ""},
          {Seat('3'), "houdini", seventy + "2", ""},
          {Seat('4'), "blender", "mesh.add cube", ""},
          {Seat('4'), "blender", "mesh_add_cube", ""},
          {Seat('4'), "blender",
           "K\xc3\xbc"
           "bel",
           ""}};
}

TEST(ToolNames, Fc24NamesAreLegalDistinctAndTheSameInAnyOrderAndCompany) {
  const std::vector<ToolOrigin> origins = FieldCase();
  for (const size_t limit : {size_t{32}, size_t{48}, size_t{64}, size_t{128}}) {
    const auto names = MakeToolNames(origins, limit);
    EXPECT_THAT(std::set<std::string>(names.begin(), names.end()), SizeIs(8));
    for (const std::string& name : names) {
      EXPECT_THAT(name, MatchesRegex("^[A-Za-z_][A-Za-z0-9_-]*$"));
      EXPECT_LE(name.size(), limit);
    }
    std::vector<ToolOrigin> other = origins;
    std::reverse(other.begin(), other.end());
    auto reversed = MakeToolNames(other, limit);
    std::reverse(reversed.begin(), reversed.end());
    EXPECT_EQ(reversed, names);
    for (size_t i = 0; i < origins.size(); ++i) {
      EXPECT_THAT(MakeToolNames({origins[i]}, limit), ElementsAre(names[i]));
    }
  }
}

// These are a promise to clients' configurations.
TEST(ToolNames, AreTheSameInEveryBuild) {
  EXPECT_THAT(MakeToolNames(FieldCase(), 48),
              ElementsAre("maya_11111111__create_sphere", "maya_22222222__create_sphere",
                          "houdini_33333333__xxxxxxxxxxxxxxxxxxxxx_4c2f55cd",
                          "houdini_33333333__yyyyyyyyyyyyyyyyyyyyy_664d15ee",
                          "houdini_33333333__yyyyyyyyyyyyyyyyyyyyy_1f6ef544",
                          "blender_44444444__mesh_add_cube_023f8595",
                          "blender_44444444__mesh_add_cube", "blender_44444444__K_bel_094af59a"));
}

TEST(ToolNames, BeginWithALetterOrUnderscoreWhateverTheApplicationIsCalled) {
  const auto names = MakeToolNames({{Seat('a'), "3dsmax", "bake", ""},
                                    {Seat('b'), "", "bake", ""},
                                    {Seat('c'), "-\xc3\xbc.x", "bake", ""},
                                    {Seat('d'), "an_application_with_a_long_name", "bake", ""}},
                                   48);
  EXPECT_THAT(names, ElementsAre("_3dsmax_aaaaaaaa__bake", "mcp_bbbbbbbb__bake",
                                 "_-__x_cccccccc__bake", "an_application_w_dddddddd__bake"));
}

TEST(ToolNames, OriginsThatComeToOneNameAreToldApart) {
  // Two seats whose ids begin alike, and a tool named like another's hashed name.
  const std::string near = std::string(8, '1') + std::string(24, '5');
  const std::string hashed = MakeToolNames({{Seat('1'), "maya", "a.b", ""}}, 48)[0];
  const std::string tool = hashed.substr(std::string("maya_11111111__").size());
  const std::vector<ToolOrigin> origins = {{near, "maya", "bake", ""},
                                           {Seat('1'), "maya", "bake", ""},
                                           {Seat('1'), "maya", "a.b", ""},
                                           {Seat('1'), "maya", tool, ""}};
  const auto names = MakeToolNames(origins, 48);
  EXPECT_THAT(std::set<std::string>(names.begin(), names.end()), SizeIs(4));
  EXPECT_EQ(names[1], "maya_11111111__bake");
  EXPECT_EQ(names[3], hashed);
}

class ToolChoiceTest : public testing::Test {
 protected:
  void Add(const std::string& id, const std::string& app, const std::string& name,
           const std::string& tools) {
    auto list = ParseToolList("d" + id, R"({"tools":[)" + tools + "]}");
    ASSERT_TRUE(list.ok()) << list.status();
    seats_[id] = {app, name, true, *std::move(list)};
  }
  ToolChoice Choose(std::string_view selectors, size_t tools_max = 1'000) {
    const auto selection = core::ToolSelection::Parse(selectors);
    EXPECT_TRUE(selection.ok()) << selection.status();
    return ChooseTools(selection->selectors(), seats_, {tools_max, 48});
  }
  std::vector<std::string> Names(const ToolChoice& choice) {
    std::vector<std::string> names;
    (void)core::ForEachElement(choice.array, [&names](std::string_view tool) {
      names.push_back(core::FindString(tool, "name").value_or("none"));
      return true;
    });
    EXPECT_EQ(names.size(), choice.by_name.size());
    return names;
  }

  OfferingSeats seats_;
};

TEST_F(ToolChoiceTest, SelectorsFitByAppNameIdAndTool) {
  Add(Seat('1'), "maya", "maya-a", R"({"name":"bake"},{"name":"look"})");
  Add(Seat('2'), "maya", "maya-b", R"({"name":"bake"})");
  Add(Seat('3'), "usd", "stage.one", R"({"name":"create_stage"},{"name":"create_prim"})");
  EXPECT_THAT(Names(Choose("maya.*.bake")),
              ElementsAre("maya_11111111__bake", "maya_22222222__bake"));
  EXPECT_THAT(Names(Choose("MAYA.maya-a")),
              ElementsAre("maya_11111111__bake", "maya_11111111__look"));
  EXPECT_THAT(Names(Choose("*.22222222")), ElementsAre("maya_22222222__bake"));
  EXPECT_THAT(Names(Choose("maya.2222222")), ElementsAre()) << "seven digits are no prefix";
  EXPECT_THAT(Names(Choose("usd.stage*one.*_prim,maya.maya-b.b*")),
              ElementsAre("maya_22222222__bake", "usd_33333333__create_prim"));
  EXPECT_THAT(Names(Choose("houdini")), ElementsAre());
}

TEST_F(ToolChoiceTest, DefinitionsKeepTheirBytesButTheNameAndSayWhereTheyAreFrom) {
  Add(Seat('1'), "maya", "maya-a",
      R"({"title":"T","name":"a b","x-unknown":1.50,"annotations":{"readOnlyHint":true},)"
      R"("outputSchema":{"type":"object"},"_meta":{"dcc":{"n":9007199254740993}}})");
  const ToolChoice choice = Choose("maya");
  const std::string name = Names(choice).front();
  EXPECT_EQ(choice.array,
            R"([{"title":"T","name":")" + name +
                R"(","x-unknown":1.50,"annotations":{"readOnlyHint":true},)"
                R"("outputSchema":{"type":"object"},"_meta":{"dcc":{"n":9007199254740993},)" +
                R"("callboard/origin":{"instance":")" + Seat('1') + R"(","tool":"a b"}}}])");
  EXPECT_EQ(choice.by_name.find(name)->second.tool, "a b");
}

TEST_F(ToolChoiceTest, StubsOfSkillsAreNoToolsUnlessAskedFor) {
  Add(Seat('1'), "maya", "maya-a", R"({"name":"bake"},{"name":"__skill__rigging"})");
  EXPECT_THAT(Names(Choose("maya")), ElementsAre("maya_11111111__bake"));
  EXPECT_THAT(Names(Choose("maya.*.__skill__*")), ElementsAre("maya_11111111____skill__rigging"));
}

TEST_F(ToolChoiceTest, SeatsThatDoNotOfferShowNothingAndBoundsAreCounted) {
  Add(Seat('1'), "maya", "maya-a", R"({"name":"bake"},{"name":"look"})");
  Add(Seat('2'), "maya", "maya-b", R"({"name":"bake"},{"name":"look"})");
  const ToolChoice some = Choose("maya", 3);
  EXPECT_EQ(some.left_out, 1u);
  EXPECT_THAT(Names(some), SizeIs(3));
  seats_[Seat('1')].offers = false;
  EXPECT_THAT(Names(Choose("maya")), ElementsAre("maya_22222222__bake", "maya_22222222__look"));
  seats_[Seat('2')].list = nullptr;
  EXPECT_EQ(Choose("maya").array, "[]");
}

TEST_F(ToolChoiceTest, DigestIsThatOfTheText) {
  Add(Seat('1'), "maya", "maya-a", R"({"name":"bake"},{"name":"look"})");
  const std::string before = Choose("maya.*.bake").digest;
  Add(Seat('1'), "maya", "maya-a", R"({"name":"bake"},{"name":"look","description":"new"})");
  EXPECT_EQ(Choose("maya.*.bake").digest, before) << "what is not selected does not count";
  Add(Seat('1'), "maya", "maya-a", R"({"name":"bake","description":"new"})");
  EXPECT_NE(Choose("maya.*.bake").digest, before);
}

}  // namespace
}  // namespace callboard::server
