// Tests of sessions over HTTP: initialize, lookup, end, eras, and the status codes around them.
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

using Sessions = BridgeTest;

constexpr char kSeat[] = "aabbccdd000000000000000000000000";

TEST_F(Sessions, OpenAtInitializeWithTheClientsRevision) {
  for (const std::string revision : {"2025-03-26", "2025-06-18", "2025-11-25"}) {
    const Answer answer = Initialize(revision);
    EXPECT_EQ(answer->status, 200);
    EXPECT_NE(answer->body.find("\"protocolVersion\":\"" + revision + "\""), std::string::npos);
    EXPECT_EQ(plane_.opened.back().revision(), revision);
  }
  EXPECT_EQ(plane_.opened.back().surface(), "facade");
  EXPECT_EQ(plane_.opened.back().client_info(), R"({"name":"c"})");
  EXPECT_EQ(plane_.opened.back().capabilities(), R"({"roots":{}})");
}

TEST_F(Sessions, AnswerOurNewestRevisionToOthers) {
  for (const std::string revision : {"2024-11-05", "1999-01-01", "2026-07-28"}) {
    EXPECT_NE(Initialize(revision)->body.find(R"("protocolVersion":"2025-11-25")"),
              std::string::npos);
  }
}

TEST_F(Sessions, ShowTheFacadesCapabilities) {
  const Answer answer = Initialize();
  EXPECT_NE(answer->body.find(R"("capabilities":{"tools":{"listChanged":false}})"),
            std::string::npos);
  EXPECT_NE(answer->body.find(R"("serverInfo":{"name":"callboard")"), std::string::npos);
  EXPECT_NE(answer->body.find(R"("instructions":"Callboard)"), std::string::npos);
  EXPECT_EQ(answer->Header("Mcp-Session-Id"), "s1");
}

TEST_F(Sessions, OfAnInstanceShowItsCapabilities) {
  plane_.instances = {Row("maya-1", kSeat)};
  const Answer answer = Initialize("2025-11-25", "/mcp/maya-1");
  EXPECT_EQ(answer->status, 200);
  EXPECT_NE(
      answer->body.find(
          R"("capabilities":{"tools":{"x":1,"listChanged":true},"resources":{"subscribe":true},"logging":{}})"),
      std::string::npos)
      << answer->body;
  EXPECT_NE(answer->body.find(R"("serverInfo":{"name":"toy","version":"3"})"), std::string::npos);
  EXPECT_NE(answer->body.find(R"("instructions":"be kind")"), std::string::npos);
  EXPECT_EQ(plane_.opened.back().surface(), std::string("seat:") + kSeat);
}

TEST_F(Sessions, OfAnInstanceShowWhatElseItSaysOfItself) {
  plane_.instances = {Row("maya-1", kSeat)};
  plane_.instances[0].set_description_rest(R"({"com.example/rig":{"n":1.50},"_meta":{"k":[ 7 ]}})");
  const Answer answer = Initialize("2025-11-25", "/mcp/maya-1");
  EXPECT_NE(answer->body.find(
                R"("instructions":"be kind","com.example/rig":{"n":1.50},"_meta":{"k":[ 7 ]}})"),
            std::string::npos)
      << answer->body;
}

TEST_F(Sessions, OfAnInstanceShowWhatOfItsCapabilitiesNobodyHereKnows) {
  plane_.instances = {Row("maya-1", kSeat)};
  plane_.instances[0].set_capabilities(
      R"({"experimental":{"x":{"n":1.50}},"prompts":{},"com.example/new":{"a":[1]},"odd":7,)"
      R"("extensions":{"e":{}},"tasks":{"list":{}}})");
  EXPECT_NE(Initialize("2025-11-25", "/mcp/maya-1")
                ->body.find(R"("capabilities":{"tools":{"listChanged":true},)"
                            R"("experimental":{"x":{"n":1.50}},"prompts":{},)"
                            R"("com.example/new":{"a":[1]}},)"),
            std::string::npos);
}

TEST_F(Sessions, OfUnknownInstancesAre404NamingTheLiveOnes) {
  plane_.instances = {Row("maya-1", kSeat), Row("hou-2", "bb00")};
  const Answer answer = Initialize("2025-11-25", "/mcp/nuke-9");
  EXPECT_EQ(answer->status, 404);
  EXPECT_NE(answer->body.find("instance 'nuke-9' is not connected; live instances: maya-1, hou-2"),
            std::string::npos);
  EXPECT_NE(answer->body.find(R"("instances":["maya-1","hou-2"])"), std::string::npos);
  EXPECT_TRUE(plane_.opened.empty());
}

TEST_F(Sessions, AreDemandedAndChecked) {
  const std::string ping = R"({"jsonrpc":"2.0","id":"a","method":"ping"})";
  const Answer missing = Post(ping);
  EXPECT_EQ(missing->status, 400);
  EXPECT_NE(missing->body.find(R"("id":"a","error":{"code":-32000)"), std::string::npos);
  const Answer unknown = PostIn("nope", ping);
  EXPECT_EQ(unknown->status, 404);
  EXPECT_NE(unknown->body.find(R"("id":"a","error":{"code":-32001)"), std::string::npos);
}

TEST_F(Sessions, OpenedByAnotherBridgeAreServed) {
  const std::string session = Open();
  Restart({});
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":1,"method":"ping"})")->status, 200);
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":2,"method":"ping"})")->status, 200);
  EXPECT_EQ(plane_.gets, 1);
}

TEST_F(Sessions, AreNotBelievedForLong) {
  const std::string session = Open();
  plane_.sessions.clear();
  loop_.RunFor(absl::Seconds(31));
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":1,"method":"ping"})")->status, 404);
}

TEST_F(Sessions, AreBoundToTheirPath) {
  plane_.instances = {Row("maya-1", kSeat), Row("hou-2", "bb00112233")};
  const std::string ping = R"({"jsonrpc":"2.0","id":1,"method":"ping"})";
  const std::string facade = Open();
  const std::string seat = Open("2025-11-25", "/mcp/maya-1");
  EXPECT_EQ(PostIn(facade, ping, "/mcp/maya-1")->status, 404);
  EXPECT_EQ(PostIn(Open("2025-11-25", "/mcp/maya-1"), ping)->status, 404);
  EXPECT_EQ(PostIn(seat, ping, "/mcp/maya-1")->status, 200);
  EXPECT_EQ(PostIn(seat, ping, "/mcp/aabbccdd")->status, 200);
  Restart({});
  EXPECT_EQ(PostIn(seat, ping, "/mcp/maya-1")->status, 200);
  EXPECT_EQ(PostIn(seat, ping, "/mcp/hou-2")->status, 404);
}

TEST_F(Sessions, OfASeatThatIsNotKnownYetGoOn) {
  plane_.instances = {Row("maya-1", kSeat)};
  const std::string ping = R"({"jsonrpc":"2.0","id":1,"method":"ping"})";
  const std::string seat = Open("2025-11-25", "/mcp/maya-1");
  // The control plane has restarted, and its agents are not back.
  plane_.instances.clear();
  Restart({});
  EXPECT_EQ(PostIn(seat, ping, "/mcp/maya-1")->status, 200);
  const net::HeaderList headers = {{"Mcp-Session-Id", seat}, {"Accept", "text/event-stream"}};
  EXPECT_EQ(Send("GET", "/mcp/maya-1", headers)->status, 200);
  EXPECT_EQ(PostIn(seat, ping)->status, 404) << "the facade is another surface";
  // What the name means is seen as soon as it means something.
  plane_.instances = {Row("maya-1", "bb00112233")};
  EXPECT_EQ(PostIn(seat, ping, "/mcp/maya-1")->status, 404);
}

TEST_F(Sessions, AreNotUnknownBecauseNobodyCanTellTheirSeat) {
  plane_.instances = {Row("maya-1", kSeat)};
  const std::string seat = Open("2025-11-25", "/mcp/maya-1");
  Restart({});
  plane_.list_error = absl::UnavailableError("no control plane answers");
  const Answer answer = PostIn(seat, R"({"jsonrpc":"2.0","id":1,"method":"ping"})", "/mcp/maya-1");
  EXPECT_EQ(answer->status, 503);
  EXPECT_NE(answer->body.find("no control plane answers"), std::string::npos);
}

TEST_F(Sessions, RefuseASecondInitialize) {
  const std::string session = Open();
  const std::string initialize = R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{}})";
  const Answer again = PostIn(session, initialize);
  EXPECT_EQ(again->status, 400);
  EXPECT_NE(again->body.find("-32600"), std::string::npos);
  EXPECT_EQ(PostIn("gone", initialize)->status, 200);
}

TEST_F(Sessions, CheckTheVersionHeaderOnlyIfItIsThere) {
  const std::string session = Open("2025-06-18");
  const auto status = [&](std::string version) {
    return Post(R"({"jsonrpc":"2.0","id":1,"method":"ping"})",
                {{"Mcp-Session-Id", session}, {"MCP-Protocol-Version", std::move(version)}})
        ->status;
  };
  EXPECT_EQ(status("2025-06-18"), 200);
  EXPECT_EQ(status("2025-11-25"), 200);
  EXPECT_EQ(status("2099-01-01"), 400);
  EXPECT_EQ(status("bogus"), 400);
}

TEST_F(Sessions, EndByDelete) {
  const std::string session = Open();
  const net::HeaderList headers = {{"Mcp-Session-Id", session}};
  EXPECT_EQ(Send("DELETE", "/mcp", headers)->status, 200);
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":1,"method":"ping"})")->status, 404);
  EXPECT_EQ(Send("DELETE", "/mcp", headers)->status, 404);
  EXPECT_EQ(Send("DELETE", "/mcp", {})->status, 400);
}

TEST_F(Sessions, NamedUnknownByACallAre404) {
  const std::string session = Open();
  const Answer answer = PostIn(session, CallTool("maya.1f2e3d4c.bake"));
  plane_.invokes[0].script->Push(absl::NotFoundError("no such session"));
  EXPECT_EQ(answer->status, 404);
  EXPECT_NE(answer->body.find("-32001"), std::string::npos);
}

TEST_F(Sessions, OfTheModernEraAreSentBackToInitializeWhereItIsNotServed) {
  Restart({.modern = false});
  const std::string claim =
      R"({"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}})";
  const Answer probe = Post(claim);
  EXPECT_EQ(probe->status, 400);
  EXPECT_NE(probe->body.find(R"("id":"d","error":{"code":-32600)"), std::string::npos);
  EXPECT_NE(probe->body.find("2025-03-26, 2025-06-18, 2025-11-25"), std::string::npos);
  EXPECT_EQ(PostIn("stale", claim)->status, 400);
  const Answer header = Post(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})",
                             {{"MCP-Protocol-Version", "2026-07-28"}});
  EXPECT_EQ(header->status, 400);
  EXPECT_NE(header->body.find("-32600"), std::string::npos);
}

TEST_F(Sessions, AreNotOpenedForWhatIsNoJsonRpc) {
  const auto code = [&](std::string body) {
    const Answer answer = Post(std::move(body));
    EXPECT_EQ(answer->status, 400);
    return answer->body.substr(0, answer->body.find(",\"message"));
  };
  EXPECT_EQ(code("{"), R"({"jsonrpc":"2.0","id":null,"error":{"code":-32700)");
  EXPECT_EQ(code(""), R"({"jsonrpc":"2.0","id":null,"error":{"code":-32700)");
  EXPECT_EQ(code("{}"), R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600)");
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":null,"method":"ping"})"),
            R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600)");
}

TEST_F(Sessions, ThatCannotBeOpenedSayWhy) {
  plane_.open_error = absl::UnavailableError("the store is full");
  const Answer answer = Initialize();
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->Header("Retry-After"), "2");
  EXPECT_NE(answer->body.find("the store is full"), std::string::npos);
}

TEST_F(Sessions, ASilentControlPlaneIsAnswered) {
  plane_.silent = true;
  const Answer answer = Initialize();
  EXPECT_EQ(answer->status, 0);
  loop_.RunFor(absl::Seconds(32));
  EXPECT_EQ(answer->status, 200);
  EXPECT_NE(answer->body.find(R"("code":-32000)"), std::string::npos);
  EXPECT_NE(answer->body.find(R"("reason":"hard_timer")"), std::string::npos);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Sessions, NotificationsAndAnswersArePassedOn) {
  const std::string session = Open();
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","method":"notifications/initialized"})")->status,
            202);
  EXPECT_TRUE(plane_.sent.empty());
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","method":"notifications/cancelled",)"
                            R"("params":{"requestId":"7","reason":"bored"}})")
                ->status,
            202);
  EXPECT_EQ(plane_.sent[0].cancel().client_request_id(), "\"7\"");
  EXPECT_EQ(plane_.sent[0].cancel().reason(), "bored");
  PostIn(session,
         R"({"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"a":1}})");
  EXPECT_EQ(plane_.sent[1].notify().method(), "notifications/roots/list_changed");
  EXPECT_EQ(plane_.sent[1].notify().params(), R"({"a":1})");
  const Answer answer = PostIn(session, R"({"jsonrpc":"2.0","id":"ask-q1","result":{"roots":[]}})");
  EXPECT_EQ(answer->status, 202);
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(plane_.sent[2].answer().ask_id(), "q1");
  EXPECT_EQ(plane_.sent[2].answer().result(), R"({"roots":[]})");
  PostIn(session, R"({"jsonrpc":"2.0","id":"ask-q2","error":{"code":-1,"message":"no"}})");
  EXPECT_EQ(plane_.sent[3].answer().error(), R"({"code":-1,"message":"no"})");
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":5,"result":{}})")->status, 202);
  EXPECT_EQ(plane_.sent.size(), 4u);
}

TEST_F(Sessions, ThatAnAnswerNamesMustExist) {
  EXPECT_EQ(Post(R"({"jsonrpc":"2.0","id":"ask-1","result":{}})")->status, 400);
  const std::string session = Open();
  plane_.send_error = absl::NotFoundError("gone");
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":"ask-1","result":{}})")->status, 404);
}

}  // namespace
}  // namespace callboard::tests
