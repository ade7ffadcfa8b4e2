// Tests of x-agent-status: what people are told of a call's state, and that nobody else is.
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

class AgentStatus : public BridgeTest {
 protected:
  Answer Call(std::string wish) {
    if (session_.empty()) {
      plane_.instances = {Row("maya-1", "aabbccdd00")};
      session_ = Open("2025-11-25", "/mcp/maya-1");
    }
    net::HeaderList headers = {{"Mcp-Session-Id", session_}};
    if (!wish.empty()) headers.emplace_back("x-agent-status", std::move(wish));
    return Post(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bake"}})",
                std::move(headers), "/mcp/maya-1");
  }
  void Push(v1::InvokeEvent event) {
    plane_.invokes.back().script->Push(std::move(event));
    loop_.RunReady();
  }
  static v1::InvokeEvent Status(v1::CallPhase phase, uint32_t ahead = 0) {
    v1::InvokeEvent event;
    event.mutable_status()->set_phase(phase);
    event.mutable_status()->set_ahead(ahead);
    event.mutable_status()->set_attempt(1);
    event.mutable_status()->set_attempts_max(3);
    return event;
  }
  static std::string Told(std::string_view fields) {
    return "event: x-agent-status\ndata: {" + std::string(fields) + "}\n\n";
  }
  static constexpr std::string_view kPrimed = "id: 5.7.1\nretry: 3000\ndata: \n\n";

  std::string session_;
};

TEST_F(AgentStatus, IsToldByHeaderAndEventsToThoseWhoAsk) {
  const Answer answer = Call("events");
  Push(Status(v1::CALL_QUEUED, 2));
  Push(Accepted(5));
  EXPECT_EQ(answer->Header("x-agent-status"), "queued");
  EXPECT_EQ(
      answer->body,
      std::string(kPrimed) +
          Told(
              R"("state":"queued","ahead":2,"attempt":1,"attempts_max":3,"reason":"","message":"queued: 2 before this call")"));
  loop_.RunFor(absl::Seconds(2));
  answer->body.clear();
  Push(Status(v1::CALL_WAITING));
  EXPECT_EQ(
      answer->body,
      Told(
          R"("state":"waiting","ahead":0,"attempt":1,"attempts_max":3,"reason":"","message":"the tool is at work")"));
  answer->body.clear();
  // At once, although the last was told in this very second.
  Push(Failed(v1::EXPIRED, v1::RUN_BUDGET_SPENT, v1::RUNNING));
  EXPECT_TRUE(answer->body.starts_with(Told(
      R"("state":"failed","ahead":0,"attempt":1,"attempts_max":3,"reason":"run_budget_spent","message":"why")")))
      << answer->body;
  EXPECT_TRUE(answer->ended);
}

TEST_F(AgentStatus, IsToldAtMostOnceASecondAndTheLastStateWins) {
  const Answer answer = Call("events");
  Push(Status(v1::CALL_QUEUED, 9));
  Push(Accepted(5));
  answer->body.clear();
  for (uint32_t ahead = 8; ahead > 0; --ahead) Push(Status(v1::CALL_QUEUED, ahead));
  Push(Status(v1::CALL_RETRYING));
  EXPECT_EQ(answer->body, "");
  loop_.RunFor(absl::Milliseconds(2100));
  EXPECT_EQ(
      answer->body,
      Told(
          R"("state":"retrying","ahead":0,"attempt":1,"attempts_max":3,"reason":"","message":"retry 1 of 3")"));
}

TEST_F(AgentStatus, GoesOnWhenTheControlPlaneIsLostAndTheStreamIsListenedToAgain) {
  const Answer answer = Call("events");
  Push(Status(v1::CALL_WAITING));
  Push(Accepted(5));
  answer->body.clear();
  plane_.invokes.back().script->Push(absl::UnavailableError("cut"));
  loop_.RunFor(absl::Seconds(2));
  ASSERT_EQ(plane_.listens.size(), 1u);
  EXPECT_TRUE(plane_.listens[0].request.with_status());
  v1::ListenEvent event;
  *event.mutable_status() = Status(v1::CALL_CONNECTING).status();
  plane_.listens[0].script->Push(std::move(event));
  loop_.RunReady();
  EXPECT_EQ(
      answer->body,
      Told(
          R"("state":"connecting","ahead":0,"attempt":1,"attempts_max":3,"reason":"","message":"waiting for the link to the application")"));

  const Answer plain = Call("");
  Push(Accepted(6));
  plane_.invokes.back().script->Push(absl::UnavailableError("cut"));
  loop_.RunFor(absl::Seconds(2));
  ASSERT_EQ(plane_.listens.size(), 2u);
  EXPECT_FALSE(plane_.listens[1].request.with_status()) << "nobody asked";
}

TEST_F(AgentStatus, WaitsForAReaderWhoIsBehind) {
  const Answer answer = Call("events");
  Push(Accepted(5));
  answer->body.clear();
  answer->unsent = 100;
  Push(Status(v1::CALL_WAITING));
  loop_.RunFor(absl::Seconds(5));
  EXPECT_EQ(answer->body, "");
  answer->unsent = 0;
  loop_.RunFor(absl::Seconds(1));
  EXPECT_NE(answer->body.find(R"("state":"waiting")"), std::string::npos);
}

TEST_F(AgentStatus, OfAPlainAnswerIsAHeader) {
  plane_.next_events = {Result(R"({"content":[]})")};
  EXPECT_EQ(Call("events")->Header("x-agent-status"), "success");
  v1::InvokeEvent failed = Result(R"({"content":[],"isError":true})");
  failed.mutable_outcome()->mutable_facts()->set_is_error(true);
  plane_.next_events = {failed};
  EXPECT_EQ(Call("header")->Header("x-agent-status"), "failed; reason=tool_error");
  plane_.next_events = {Failed(v1::REJECTED, v1::QUEUE_FULL)};
  const Answer rejected = Call("yes");
  EXPECT_EQ(rejected->Header("x-agent-status"), "failed; reason=queue_full");
  EXPECT_EQ(rejected->Header("Content-Type"), "application/json");
}

TEST_F(AgentStatus, IsByHeaderAloneForWhoeverAsksForNoEvents) {
  const Answer answer = Call("header");
  Push(Status(v1::CALL_WAITING));
  Push(Accepted(5));
  Push(Status(v1::CALL_RETRYING));
  Push(Result("{}"));
  EXPECT_EQ(answer->Header("x-agent-status"), "waiting");
  EXPECT_EQ(answer->body.find("x-agent-status"), std::string::npos);
}

TEST_F(AgentStatus, IsInNoByteOfAnAnswerToThoseWhoDidNotAsk) {
  const auto run = [&](bool with_statuses) {
    const Answer answer = Call("");
    if (with_statuses) Push(Status(v1::CALL_QUEUED, 1));
    Push(Accepted(5));
    for (int i = 0; with_statuses && i < 3; ++i) {
      Push(Status(v1::CALL_WAITING));
      loop_.RunFor(absl::Milliseconds(1));
    }
    Push(Result("{}"));
    return answer;
  };
  const Answer plain = run(false);
  const Answer told = run(true);
  EXPECT_EQ(told->body, plain->body);
  EXPECT_EQ(told->headers, plain->headers);
  EXPECT_EQ(told->headers, (net::HeaderList{{"Content-Type", "text/event-stream"},
                                            {"Cache-Control", "no-cache, no-transform"},
                                            {"X-Accel-Buffering", "no"}}));
}

TEST_F(AgentStatus, IsShownToPagesThatAsk) {
  const std::string session = Open();
  const auto exposed = [&](net::HeaderList extra) {
    extra.emplace_back("Origin", "http://localhost:3000");
    extra.emplace_back("Mcp-Session-Id", session);
    return Post(R"({"jsonrpc":"2.0","id":1,"method":"ping"})", std::move(extra))
        ->Header("Access-Control-Expose-Headers");
  };
  EXPECT_EQ(exposed({}), "Mcp-Session-Id");
  EXPECT_EQ(exposed({{"x-agent-status", "events"}}), "Mcp-Session-Id, x-agent-status");
}

}  // namespace
}  // namespace callboard::tests
