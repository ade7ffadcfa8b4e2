// The surface /mcp?tools=: whose tools they are is the URL's and the session's to say; pages.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "bridge/routes.h"
#include "bridge/tool_pages.h"
#include "core/mcp/json.h"
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kList[] = R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})";
constexpr char kUrl[] = "/mcp?tools=maya.*.bake";

std::string ListAfter(std::string_view raw_cursor) {
  return fmt::format(R"({{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"cursor":{}}}}})",
                     raw_cursor);
}

TEST_F(BridgeTest, SelectorsGoToTheControlPlaneInOneSpelling) {
  const Answer answer =
      Initialize("2025-11-25", "/mcp?x=1&tools=usd,Maya.%2A.mesh+add&tools=pinned");
  EXPECT_EQ(answer->status, 200) << answer->body;
  EXPECT_EQ(plane_.opened.back().surface(), "tools");
  EXPECT_EQ(plane_.opened.back().tools(), "maya.*.mesh add,usd.*.*,pinned");
  EXPECT_THAT(answer->body, AllOf(HasSubstr(R"("tools":{"listChanged":true})"),
                                  HasSubstr(R"("name":"callboard")")));
  Initialize();
  EXPECT_EQ(plane_.opened.back().surface(), "facade");
  EXPECT_EQ(plane_.opened.back().tools(), "");
}

TEST_F(BridgeTest, BadSelectorsGet400WithTheSelectorAndWhatIsWrong) {
  struct Case {
    std::string query, says;
  };
  for (const Case& bad :
       {Case{"tools=", "selector '' is empty"}, Case{"tools", "selector '' is empty"},
        Case{"tools=maya,,usd", "selector '' is empty"},
        Case{"tools=maya..bake", "selector 'maya..bake' has a dot and no instance"},
        Case{"tools=maya%00", "0x00 at byte 4"}, Case{"tools=%ff", "UTF-8"},
        Case{"tools=" + std::string(9'000, 'a'), "9000 bytes"}}) {
    const Answer answer = Initialize("2025-11-25", "/mcp?" + bad.query);
    EXPECT_EQ(answer->status, 400) << bad.query;
    EXPECT_THAT(answer->body,
                AllOf(HasSubstr(bad.says), HasSubstr("tools_invalid"), HasSubstr("tools=: ")));
  }
  EXPECT_TRUE(plane_.opened.empty());
}

TEST_F(BridgeTest, RandomQueriesGet400Or200) {
  core::SeededRandom random(5);
  constexpr std::string_view kAlphabet = "a9.*,_-+%&=2cF";
  for (int turn = 0; turn < 2'000; ++turn) {
    std::string query = "tools=";
    for (uint64_t i = random.Below(16); i > 0; --i) {
      query += kAlphabet[random.Below(kAlphabet.size())];
    }
    const int status = Initialize("2025-11-25", "/mcp?" + query)->status;
    ASSERT_TRUE(status == 200 || status == 400) << query << ": " << status;
    if (status == 200) {
      EXPECT_FALSE(plane_.opened.back().tools().empty()) << query;
    }
  }
}

TEST_F(BridgeTest, RefusalOfTheControlPlaneIsA400Too) {
  plane_.open_error = absl::InvalidArgumentError("nothing is pinned");
  const Answer answer = Initialize("2025-11-25", "/mcp?tools=pinned");
  EXPECT_EQ(answer->status, 400);
  EXPECT_THAT(answer->body, HasSubstr("nothing is pinned"));
}

TEST_F(BridgeTest, ControlPlaneThatDoesNotKnowSelectorsIsNamed) {
  plane_.knows_tools = false;
  const Answer answer = Initialize("2025-11-25", kUrl);
  EXPECT_EQ(answer->status, 503);
  EXPECT_THAT(answer->body, HasSubstr("too old"));
  EXPECT_TRUE(plane_.sessions.empty()) << "the session it has opened is closed again";
}

TEST_F(BridgeTest, SelectionBelongsToTheSession) {
  const std::string session = Open("2025-11-25", kUrl);
  EXPECT_EQ(PostIn(session, kList, kUrl)->status, 200);
  EXPECT_EQ(PostIn(session, kList, "/mcp?tools=%20maya.*.bake")->status, 200)
      << "the same, spelt anew";
  EXPECT_EQ(PostIn(session, kList, "/mcp")->status, 200) << "the session says which";
  const Answer other = PostIn(session, kList, "/mcp?tools=usd");
  EXPECT_EQ(other->status, 404);
  EXPECT_THAT(other->body, AllOf(HasSubstr("tools=maya.*.bake"), HasSubstr("tools=usd.*.*")));
  EXPECT_EQ(PostIn(session, kList, "/mcp/maya-1")->status, 404);
  EXPECT_EQ(PostIn(session, kList, "/mcp?tools=a..b")->status, 400);
  EXPECT_EQ(Get(session, {}, "/mcp?tools=usd")->status, 404);
  EXPECT_EQ(PostIn(session, kList, kUrl)->status, 200) << "it is still there";

  const Answer facade = PostIn(Open(), kList, kUrl);
  EXPECT_EQ(facade->status, 404);
  EXPECT_THAT(facade->body, HasSubstr("opened with no tools selected"));
  EXPECT_EQ(Initialize("2025-11-25", "/mcp/maya-1?tools=usd")->status, 400);
}

TEST_F(BridgeTest, ListComesInPagesAndTheirBytesAreTheControlPlanes) {
  bridge::BridgeConfig config;
  config.limits.tools_per_page_max = 2;
  Restart(config);
  plane_.tool_list = R"([{"x":1.50,"name":"a"},{"name":"b"},{"name":"c"}])";
  const std::string session = Open("2025-11-25", kUrl);
  EXPECT_EQ(
      PostIn(session, kList, kUrl)->body,
      R"({"jsonrpc":"2.0","id":1,"result":{"tools":[{"x":1.50,"name":"a"},{"name":"b"}],"nextCursor":"after:b"}})");
  EXPECT_EQ(plane_.lists.back().session_id(), session);
  EXPECT_EQ(PostIn(session, ListAfter(R"("after:b")"), kUrl)->body,
            R"({"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"c"}]}})");
  EXPECT_EQ(plane_.lists.back().known_digest(), "d1");
  EXPECT_EQ(PostIn(session, ListAfter(R"("after:c")"), kUrl)->body,
            R"({"jsonrpc":"2.0","id":1,"result":{"tools":[]}})");
  for (const char* foreign : {R"("")", R"("2")", "7", R"("after:")", R"("after:\u00fc")", "{}"}) {
    EXPECT_THAT(PostIn(session, ListAfter(foreign), kUrl)->body, HasSubstr("-32602")) << foreign;
  }
  EXPECT_THAT(PostIn(session, ListAfter("null"), kUrl)->body, HasSubstr("after:b"));
}

TEST_F(BridgeTest, ToolsThatAreLeftOutAreCountedInTheList) {
  plane_.left_out = 7;
  const std::string session = Open("2025-11-25", kUrl);
  EXPECT_EQ(
      PostIn(session, kList, kUrl)->body,
      R"({"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"bake"}],"_meta":{"callboard/left_out":7}}})");
}

TEST_F(BridgeTest, CallsGoWithTheirNameAndWithoutATarget) {
  const std::string session = Open("2025-11-25", kUrl);
  plane_.next_events = {Result(R"({"content":[],"resource":"usd://x"})")};
  const Answer answer = PostIn(
      session,
      R"({"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"maya_1f2e3d4c__bake","arguments":{"n":1.0},"_meta":{"progressToken":3}}})",
      kUrl);
  EXPECT_EQ(answer->body,
            R"({"jsonrpc":"2.0","id":5,"result":{"content":[],"resource":"usd://x"}})");
  const v1::InvokeRequest& call = plane_.invokes.back().request;
  EXPECT_FALSE(call.has_target());
  EXPECT_EQ(call.session_id(), session);
  EXPECT_EQ(call.progress_token(), "3");
  EXPECT_EQ(call.params(),
            R"({"name":"maya_1f2e3d4c__bake","arguments":{"n":1.0},"_meta":{"progressToken":3}})");
  EXPECT_TRUE(PostIn(session, R"({"jsonrpc":"2.0","id":6,"method":"ping"})", kUrl)->status == 200);
}

TEST_F(BridgeTest, UnknownToolIsInvalidParamsAndOtherMethodsAreNotServed) {
  const std::string session = Open("2025-11-25", kUrl);
  plane_.next_events = {Failed(v1::REJECTED, v1::TOOL_UNKNOWN)};
  const Answer answer = PostIn(
      session, R"({"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}})", kUrl);
  EXPECT_THAT(answer->body, AllOf(HasSubstr(R"("code":-32602)"), HasSubstr("tool_unknown"),
                                  HasSubstr(R"("certainty":"not_started")")));
  EXPECT_THAT(PostIn(session, R"({"jsonrpc":"2.0","id":6,"method":"resources/list"})", kUrl)->body,
              AllOf(HasSubstr("-32601"), HasSubstr("/mcp/{instance}")));
}

TEST_F(BridgeTest, LongCallsAreAnsweredWithTheirResultAndNotWithAJob) {
  const std::string session = Open("2025-11-25", kUrl);
  const Answer answer = PostIn(
      session, R"({"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}})", kUrl);
  EXPECT_EQ(plane_.invokes.back().request.open_stream_after_ms(), 250u);
  loop_.RunFor(absl::Minutes(2));
  EXPECT_EQ(answer->body, "");
  plane_.invokes.back().script->Push(Result("{}"));
  loop_.RunReady();
  EXPECT_EQ(answer->body, R"({"jsonrpc":"2.0","id":5,"result":{}})");
}

TEST_F(BridgeTest, SessionThatTheControlPlaneHasForgottenIsA404) {
  const std::string session = Open("2025-11-25", kUrl);
  plane_.list_tools_error = absl::NotFoundError("no session");
  EXPECT_EQ(PostIn(session, kList, kUrl)->status, 404);
  plane_.list_tools_error = absl::OkStatus();
  EXPECT_EQ(PostIn(session, kList, kUrl)->status, 200) << "asked for again";
}

TEST(ToolPages, CursorHoldsWhenTheListChangesMeanwhile) {
  const bridge::ToolPages before(R"([{"name":"a"},{"name":"b"},{"name":"d"}])", 2);
  const std::string cursor = before.After("").next_cursor;
  const bridge::ToolPages later(R"([{"name":"c"},{"name":"d"}])", 2);
  EXPECT_EQ(later.After(cursor).tools, R"({"name":"c"},{"name":"d"})");
  EXPECT_EQ(bridge::ToolPages("[]", 2).After("").tools, "");
  EXPECT_EQ(bridge::ToolPages("junk", 2).After("").tools, "");
}

TEST(ParameterOfQuery, ReadsTheParameterAsAFormHasIt) {
  EXPECT_EQ(bridge::ParameterOfQuery("", "tools"), std::nullopt);
  EXPECT_EQ(bridge::ParameterOfQuery("tool=a&xtools=b", "tools"), std::nullopt);
  EXPECT_EQ(bridge::ParameterOfQuery("tools", "tools"), "");
  EXPECT_EQ(bridge::ParameterOfQuery("a=1&tools=x%2cy+z%2Bw&b", "tools"), "x,y z+w");
  EXPECT_EQ(bridge::ParameterOfQuery("%74ools=a&tools=b", "tools"), "a,b");
  EXPECT_EQ(bridge::ParameterOfQuery("tools=a=b%", "tools"), "a=b%");
}

}  // namespace
}  // namespace callboard::tests
