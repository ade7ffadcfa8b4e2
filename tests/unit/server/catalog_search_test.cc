// What a search over the seats' tools finds and in which order, and how slugs name one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/flows/tool_search.h"

namespace callboard::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kUsd[] = "aabbccdd000000000000000000000003";
constexpr char kMaya[] = "1f2e3d4c000000000000000000000001";

class ToolSearchTest : public ::testing::Test {
 protected:
  ToolSearchTest() {
    AddSeat(kUsd, "usd", "openusd");
    Give(kUsd, "d1",
         R"({"tools":[
          {"name":"list_stage","description":"Lists a stage. Long text."},
          {"name":"create_sphere","description":"Makes a ball in a stage",
           "annotations":{"readOnlyHint":false}},
          {"name":"createSphereGrid","_meta":{"dcc":{"searchAliases":["lattice"]}}},
          {"name":"bake","description":"Renders a sphere"},
          {"name":"hemisphere"},
          {"name":"__skill__openusd-stage","description":"Edit USD stages. Load it first."}]})");
  }
  void AddSeat(const std::string& id, const std::string& name, const std::string& app) {
    v1::SeatState state;
    state.set_seat_id(id);
    state.set_name(name);
    state.set_app(app);
    ASSERT_TRUE(seats_.Update(state, name, "ws", {}, absl::UnixEpoch()).ok());
  }
  void Give(const std::string& seat, const std::string& digest, const std::string& body) {
    catalog_.Assign(seat, digest);
    auto list = ParseToolList(digest, body);
    ASSERT_TRUE(list.ok()) << list.status();
    catalog_.Put(*list);
  }
  std::vector<std::string> Found(v1::SearchToolsRequest request) {
    last_ = SearchTools(request, seats_, catalog_);
    std::vector<std::string> tools;
    for (const auto& hit : last_.hits()) tools.push_back(hit.tool());
    return tools;
  }
  std::vector<std::string> Found(const std::string& query) {
    v1::SearchToolsRequest request;
    request.set_query(query);
    return Found(request);
  }
  SeatRegistry seats_{SeatRegistryLimits{}};
  ToolCatalog catalog_;
  v1::SearchToolsResponse last_;
};

TEST_F(ToolSearchTest, RanksNamesBeforeDescriptions) {
  EXPECT_THAT(Found("sphere"),
              ElementsAre("createSphereGrid", "create_sphere", "bake", "hemisphere"));
  EXPECT_EQ(last_.total(), 4u);
  EXPECT_EQ(last_.index_generation(), std::to_string(catalog_.generation()));
  EXPECT_EQ(last_.hits(1).slug(), "openusd.aabbccdd.create_sphere");
  EXPECT_EQ(last_.hits(1).summary(), "Makes a ball in a stage");
  EXPECT_EQ(last_.hits(1).annotations(), R"({"readOnlyHint":false})");
  EXPECT_TRUE(last_.hits(1).loaded());
}

TEST_F(ToolSearchTest, EveryWordMustMatch) {
  EXPECT_THAT(Found("Create ball"), ElementsAre("create_sphere"));
  EXPECT_THAT(Found("create teapot"), SizeIs(0));
  EXPECT_THAT(Found("latt"), ElementsAre("createSphereGrid"));
  EXPECT_THAT(Found("???"), SizeIs(0));
}

TEST_F(ToolSearchTest, SentenceIsMatchedByMostOfItsWordsIfByNoneAsAWhole) {
  EXPECT_THAT(Found("please edit an OpenUSD stage"), ElementsAre("__skill__openusd-stage"));
  EXPECT_THAT(Found("please bake me an apple pie"), SizeIs(0));
}

TEST_F(ToolSearchTest, ExactNameIsFirst) {
  EXPECT_EQ(Found("create_sphere").front(), "create_sphere");
  EXPECT_EQ(Found("createspheregrid").front(), "createSphereGrid");
}

TEST_F(ToolSearchTest, UnloadedSkillsAreHitsUnlessOnlyLoadedOnesAreWanted) {
  EXPECT_EQ(Found("openusd-stage").front(), "__skill__openusd-stage");
  EXPECT_FALSE(last_.hits(0).loaded());
  EXPECT_EQ(last_.hits(0).skill(), "openusd-stage");
  EXPECT_EQ(last_.hits(0).summary(), "Edit USD stages.");
  v1::SearchToolsRequest request;
  request.set_query("stage");
  request.set_loaded_only(true);
  EXPECT_THAT(Found(request), ElementsAre("list_stage", "create_sphere"));
}

TEST_F(ToolSearchTest, FiltersBySeatAndAppAndPages) {
  AddSeat(kMaya, "maya1", "maya");
  catalog_.Assign(kMaya, "d1");
  v1::SearchToolsRequest request;
  EXPECT_THAT(Found(request), SizeIs(12));
  EXPECT_EQ(last_.hits(0).slug(), "maya.1f2e3d4c.__skill__openusd-stage");
  request.set_app("Maya");
  EXPECT_THAT(Found(request), SizeIs(6));
  request.Clear();
  request.mutable_target()->set_instance("usd");
  request.set_query("bake");
  EXPECT_THAT(Found(request), SizeIs(1));
  EXPECT_EQ(last_.hits(0).seat_name(), "usd");
  request.mutable_target()->set_instance("nobody");
  EXPECT_THAT(Found(request), SizeIs(0));
  request.Clear();
  request.set_limit(2);
  request.set_offset(11);
  EXPECT_THAT(Found(request), ElementsAre("list_stage"));
  EXPECT_EQ(last_.total(), 12u);
  request.set_offset(4'000'000'000u);
  EXPECT_THAT(Found(request), SizeIs(0));
  seats_.Detach("maya1", absl::UnixEpoch());
  seats_.Sweep(absl::UnixEpoch() + absl::Minutes(1));
  EXPECT_THAT(Found(""), SizeIs(6));
}

TEST_F(ToolSearchTest, FindsOneToolBySlug) {
  auto hit = FindTool("openusd.aabbccdd.create_sphere", seats_, catalog_);
  ASSERT_TRUE(hit.ok()) << hit.status();
  EXPECT_EQ(hit->seat_id(), kUsd);
  EXPECT_TRUE(FindTool("openusd.usd.bake", seats_, catalog_).ok());
  EXPECT_FALSE(FindTool("openusd.aabbccdd.__skill__openusd-stage", seats_, catalog_)->loaded());
  auto message = [&](std::string_view slug) {
    return std::string(core::Message(FindTool(slug, seats_, catalog_).status()));
  };
  EXPECT_THAT(message("openusd.aabbccdd.make_sphere"),
              HasSubstr("nearest: create_sphere, createSphereGrid, hemisphere"));
  EXPECT_EQ(message("maya.aabbccdd.bake"),
            "no tool 'maya.aabbccdd.bake': instance 'usd' is openusd, not maya");
  EXPECT_THAT(message("bake"), HasSubstr("'bake' is no tool slug"));
}

TEST(Slug, KeepsDotsOfTheTool) {
  auto slug = ParseSlug("maya.1f2e3d4c.scene.open");
  ASSERT_TRUE(slug.ok());
  EXPECT_EQ(slug->app, "maya");
  EXPECT_EQ(slug->seat_prefix, "1f2e3d4c");
  EXPECT_EQ(slug->tool, "scene.open");
  for (const char* broken : {"", ".", "..", "a..b", "a.b", "a.b.", ".b.c"}) {
    EXPECT_FALSE(ParseSlug(broken).ok()) << broken;
  }
}

TEST_F(ToolSearchTest, StaysFastForTenThousandToolsOnManySeats) {
  std::string body = R"({"tools":[)";
  for (int i = 0; i < 10'000; ++i) {
    body += fmt::format(
        R"({}{{"name":"tool_{}_mesh","description":"Does thing {} with a mesh, slowly and well"}})",
        i == 0 ? "" : ",", i, i);
  }
  Give(kUsd, "big", body + "]}");
  for (int i = 0; i < 20; ++i) {
    const std::string id = fmt::format("bb{:030}", i);
    AddSeat(id, fmt::format("seat{}", i), "maya");
    catalog_.Assign(id, "big");
  }
  EXPECT_THAT(Found("mesh slowly"), SizeIs(25));
  EXPECT_EQ(last_.total(), 210'000u);
  EXPECT_EQ(Found("tool_77_mesh").front(), "tool_77_mesh");
}

}  // namespace
}  // namespace callboard::server
