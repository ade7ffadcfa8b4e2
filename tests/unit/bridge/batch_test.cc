// Tests of JSON-RPC batches, which only 2025-03-26 has.
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

using Batches = BridgeTest;

TEST_F(Batches, AnswerInTheOrderOfTheirRequests) {
  const std::string session = Open("2025-03-26");
  const Answer answer = PostIn(
      session,
      R"([{"jsonrpc":"2.0","id":"p","method":"ping"},)" + CallTool("maya.1f2e3d4c.a", "{}", "2") +
          "," + CallTool("maya.1f2e3d4c.b", "{}", "3") +
          R"(,{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}},5])");
  ASSERT_EQ(plane_.invokes.size(), 2u);
  // Accepted only to become a job; a batch has no streams.
  EXPECT_EQ(plane_.invokes[0].request.open_stream_after_ms(), 45'000u);
  plane_.invokes[0].script->Push(Accepted(5));
  plane_.invokes[1].script->Push(Result(R"({"b":1})"));
  EXPECT_EQ(answer->status, 0);
  plane_.invokes[0].script->Push(Big(7));
  plane_.invokes[0].script->Push(Chunk(R"({"a":1})", true));
  EXPECT_EQ(answer->status, 200);
  EXPECT_TRUE(answer->body.starts_with(R"([{"jsonrpc":"2.0","id":"p","result":{}},)"
                                       R"({"jsonrpc":"2.0","id":2,"result":{"a":1}},)"
                                       R"({"jsonrpc":"2.0","id":3,"result":{"b":1}},)"
                                       R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600,)"))
      << answer->body;
  EXPECT_EQ(plane_.sent[0].cancel().client_request_id(), "9");
  loop_.RunReady();
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Batches, OfNotificationsAreAccepted) {
  const Answer answer =
      PostIn(Open("2025-03-26"), R"( [{"jsonrpc":"2.0","method":"notifications/initialized"}])");
  EXPECT_EQ(answer->status, 202);
  EXPECT_EQ(answer->body, "");
}

TEST_F(Batches, AreRefusedInLaterRevisions) {
  const Answer answer = PostIn(Open(), R"([{"jsonrpc":"2.0","id":1,"method":"ping"}])");
  EXPECT_EQ(answer->status, 400);
  EXPECT_NE(answer->body.find("-32600"), std::string::npos);
}

TEST_F(Batches, HaveRules) {
  const std::string session = Open("2025-03-26");
  const std::string claim =
      R"({"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}})";
  for (const std::string& body :
       {std::string("[]"), "[" + claim + "]",
        std::string(R"([{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}])")}) {
    const Answer answer = PostIn(session, body);
    EXPECT_EQ(answer->status, 400) << body;
    EXPECT_NE(answer->body.find("-32600"), std::string::npos) << body;
  }
  EXPECT_NE(PostIn(session, "[1,")->body.find("-32700"), std::string::npos);
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_EQ(PostIn(session, many + "]")->status, 400);
}

TEST_F(Batches, EndWithTheirClient) {
  const std::string session = Open("2025-03-26");
  const Answer answer = PostIn(session, "[" + CallTool("maya.1f2e3d4c.a") + "]");
  answer->on_peer_gone();
  loop_.RunReady();
  EXPECT_TRUE(plane_.invokes[0].script->destroyed);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

}  // namespace
}  // namespace callboard::tests
