// Tests of HTTP+SSE (MCP 2024-11-05): the stream that is a session, and what is posted to it.
#include <gmock/gmock.h>

#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class HttpSse : public BridgeTest {
 protected:
  // Opens a stream; its place to post goes to messages_.
  Answer Listen(std::string target = "/sse") {
    const Answer stream = Get("", {}, std::move(target));
    EXPECT_EQ(stream->status, 200) << stream->body;
    const std::string begin = "event: endpoint\ndata: ";
    EXPECT_THAT(stream->body, StartsWith(begin));
    messages_ = stream->body.substr(begin.size(), stream->body.size() - begin.size() - 2);
    stream->body.clear();
    return stream;
  }
  Answer Say(std::string message) { return Post(std::move(message), {}, messages_); }
  static std::string InitializeText(std::string revision = "2024-11-05") {
    return R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":")" +
           revision + R"(","capabilities":{"roots":{}},"clientInfo":{"name":"c"}}})";
  }
  // A stream whose session is initialized.
  Answer Begin(std::string target = "/sse") {
    const Answer stream = Listen(std::move(target));
    EXPECT_EQ(Say(InitializeText())->status, 202);
    EXPECT_THAT(stream->body, HasSubstr(R"("id":0,"result":{"protocolVersion":"2024-11-05")"));
    stream->body.clear();
    return stream;
  }
  void Push(v1::InvokeEvent event, size_t call = 0) {
    plane_.invokes[call].script->Push(std::move(event));
    loop_.RunReady();
  }
  void Tell(absl::StatusOr<v1::ListenEvent> event) {
    plane_.listens.back().script->Push(std::move(event));
    loop_.RunReady();
  }
  static v1::InvokeEvent Progress(int value) {
    v1::InvokeEvent event;
    *event.mutable_stream_event()->mutable_id() = Id(3, 7, 2);
    event.mutable_stream_event()->set_method("notifications/progress");
    event.mutable_stream_event()->set_params(R"({"progressToken":"p","progress":)" +
                                             std::to_string(value) + "}");
    return event;
  }
  static std::string Message(std::string text) {
    return "event: message\ndata: " + std::move(text) + "\n\n";
  }
  static std::string Call(int id) {
    return CallTool("maya.1f2e3d4c.bake", "{}", std::to_string(id));
  }

  std::string messages_;
};

TEST_F(HttpSse, FirstEventOfTheStreamSaysWhereToPost) {
  const Answer stream = Listen();
  EXPECT_EQ(stream->Header("Content-Type"), "text/event-stream");
  EXPECT_EQ(stream->Header("X-Accel-Buffering"), "no");
  EXPECT_THAT(messages_, StartsWith("/messages?sessionId="));
  EXPECT_EQ(messages_.size(), std::string("/messages?sessionId=").size() + 32);
  EXPECT_TRUE(plane_.opened.empty()) << "who its client is is not known before initialize";
  const std::string first = messages_;
  Listen();
  EXPECT_NE(messages_, first);
}

TEST_F(HttpSse, InitializeIsTakenByThePostAndAnsweredOnTheStream) {
  const Answer stream = Listen();
  const Answer posted = Say(InitializeText());
  EXPECT_EQ(posted->status, 202);
  EXPECT_EQ(posted->body, "");
  EXPECT_EQ(posted->Header("Mcp-Session-Id"), "");
  EXPECT_THAT(stream->body,
              StartsWith("event: message\ndata: "
                         R"({"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2024-11-05")"));
  ASSERT_EQ(plane_.opened.size(), 1u);
  EXPECT_EQ(plane_.opened[0].revision(), "2024-11-05");
  EXPECT_EQ(plane_.opened[0].surface(), "facade");
  EXPECT_EQ(plane_.opened[0].capabilities(), R"({"roots":{}})");
  ASSERT_EQ(plane_.listens.size(), 1u) << "what the session is told comes on the same stream";
  EXPECT_EQ(plane_.listens[0].request.session_id(), "s1");
}

TEST_F(HttpSse, LaterRevisionsAreSpokenOverItTooAndAnUnknownOneGetsItsOwn) {
  for (const auto& [asked, given] :
       std::vector<std::pair<std::string, std::string>>{{"2025-06-18", "2025-06-18"},
                                                        {"2025-11-25", "2025-11-25"},
                                                        {"2026-07-28", "2024-11-05"},
                                                        {"1999-01-01", "2024-11-05"}}) {
    const Answer stream = Listen();
    Say(InitializeText(asked));
    EXPECT_THAT(stream->body, HasSubstr("\"protocolVersion\":\"" + given + "\"")) << asked;
  }
}

TEST_F(HttpSse, RequestBeforeInitializeIsAnErrorAndPingIsNot) {
  const Answer stream = Listen();
  EXPECT_EQ(Say(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})")->status, 202);
  EXPECT_EQ(stream->body, Message(R"({"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":)"
                                  R"("'tools/list' came before the answer to initialize"}})"));
  stream->body.clear();
  Say(R"({"jsonrpc":"2.0","id":2,"method":"ping"})");
  EXPECT_EQ(stream->body, Message(R"({"jsonrpc":"2.0","id":2,"result":{}})"));
}

TEST_F(HttpSse, SecondInitializeIsRefused) {
  const Answer stream = Begin();
  EXPECT_EQ(Say(InitializeText())->status, 202);
  EXPECT_THAT(stream->body, HasSubstr("the session is initialized already"));
  EXPECT_EQ(plane_.opened.size(), 1u);
}

TEST_F(HttpSse, ProgressAndResultOfACallComeOnTheStreamWithoutIds) {
  const Answer stream = Begin();
  EXPECT_EQ(Say(Call(5))->status, 202);
  ASSERT_EQ(plane_.invokes.size(), 1u);
  EXPECT_EQ(plane_.invokes[0].request.session_id(), "s1");
  EXPECT_EQ(plane_.invokes[0].request.on_detach(), v1::InvokeRequest::KEEP);
  Push(Accepted(3));
  Push(Progress(1));
  Push(Result(R"({"content":[]})"));
  EXPECT_EQ(stream->body, Message(R"({"jsonrpc":"2.0","method":"notifications/progress","params":)"
                                  R"({"progressToken":"p","progress":1}})") +
                              Message(R"({"jsonrpc":"2.0","id":5,"result":{"content":[]}})"));
  EXPECT_FALSE(stream->ended);
  EXPECT_EQ(bridge_->gauges().exchanges, 1u) << "the stream alone";
}

TEST_F(HttpSse, WhileOneAnswerComesInPiecesTheOthersWaitAndThenFollow) {
  const Answer stream = Begin();
  Say(Call(1));
  Say(Call(2));
  Say(Call(3));
  Push(Big(4), 0);
  Push(Chunk("[1", false), 0);
  Push(Accepted(4), 1);
  Push(Progress(1), 1);
  Push(Big(4), 2);
  Push(Chunk("[3", false), 2);
  EXPECT_EQ(stream->body, R"(event: message)"
                          "\n"
                          R"(data: {"jsonrpc":"2.0","id":1,"result":[1)");
  stream->body.clear();
  Push(Chunk(",]", true), 0);
  EXPECT_THAT(stream->body, StartsWith(",]}\n\nevent: message\ndata: "));
  EXPECT_THAT(stream->body, HasSubstr(R"("method":"notifications/progress")"));
  EXPECT_THAT(stream->body, EndsWith(R"({"jsonrpc":"2.0","id":3,"result":[3)"));
  stream->body.clear();
  Push(Result("{}"), 1);
  EXPECT_EQ(stream->body, "");
  Push(Chunk(",]", true), 2);
  EXPECT_EQ(stream->body, ",]}\n\n" + Message(R"({"jsonrpc":"2.0","id":2,"result":{}})"));
}

TEST_F(HttpSse, AnswerThatBreaksInTheMiddleCutsTheStream) {
  const Answer stream = Begin();
  Say(Call(1));
  Push(Big(400));
  Push(Chunk("[1", false));
  plane_.invokes[0].script->Push(absl::UnavailableError("lost"));
  loop_.RunReady();
  EXPECT_TRUE(stream->aborted);
  loop_.RunFor(absl::Seconds(2));
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
  EXPECT_EQ(Say(Call(2))->status, 404);
}

TEST_F(HttpSse, CancelledCallGetsNoAnswer) {
  const Answer stream = Begin();
  Say(Call(1));
  EXPECT_EQ(Say(R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}})")
                ->status,
            202);
  ASSERT_EQ(plane_.sent.size(), 1u);
  EXPECT_EQ(plane_.sent[0].cancel().client_request_id(), "1");
  Push(Failed(v1::CANCELLED, v1::CANCELLED_BY_CLIENT));
  EXPECT_EQ(stream->body, "");
}

TEST_F(HttpSse, ClientIsAskedOnTheStreamAndItsAnswerIsPosted) {
  const Answer stream = Begin();
  Say(Call(1));
  Push(Accepted(3));
  v1::InvokeEvent ask;
  *ask.mutable_ask()->mutable_id() = Id(3, 7, 2);
  ask.mutable_ask()->set_ask_id("9");
  ask.mutable_ask()->set_method("roots/list");
  Push(ask);
  EXPECT_EQ(stream->body, Message(R"({"jsonrpc":"2.0","id":"ask-9","method":"roots/list"})"));
  EXPECT_EQ(Say(R"({"jsonrpc":"2.0","id":"ask-9","result":{"roots":[]}})")->status, 202);
  ASSERT_EQ(plane_.sent.size(), 1u);
  EXPECT_EQ(plane_.sent[0].answer().ask_id(), "9");
  EXPECT_EQ(plane_.sent[0].answer().result(), R"({"roots":[]})");
}

TEST_F(HttpSse, WhatTheSessionIsToldComesOnTheStream) {
  const Answer stream = Begin();
  v1::ListenEvent notice;
  *notice.mutable_stream_event()->mutable_id() = Id(0, 7, 1);
  notice.mutable_stream_event()->set_method("notifications/tools/list_changed");
  Tell(notice);
  EXPECT_EQ(stream->body,
            Message(R"({"jsonrpc":"2.0","method":"notifications/tools/list_changed"})"));
}

TEST_F(HttpSse, OneInstanceAndSelectedToolsAreServedToo) {
  plane_.instances.push_back(Row("maya-1", "1f2e3d4c000000000000000000000000"));
  const Answer seat = Listen("/sse/maya-1");
  Say(InitializeText());
  EXPECT_EQ(plane_.opened.back().surface(), "seat:1f2e3d4c000000000000000000000000");
  EXPECT_THAT(seat->body, HasSubstr(R"("serverInfo":{"name":"toy","version":"3"})"));
  Say(R"({"jsonrpc":"2.0","id":1,"method":"prompts/list"})");
  EXPECT_EQ(plane_.invokes.back().request.method(), "prompts/list");
  EXPECT_EQ(plane_.invokes.back().request.target().seat_id(), "1f2e3d4c000000000000000000000000");

  Listen("/sse?tools=maya");
  Say(InitializeText());
  EXPECT_EQ(plane_.opened.back().surface(), "tools");
  EXPECT_EQ(plane_.opened.back().tools(), "maya.*.*");

  const Answer unknown = Get("", {}, "/sse/nuke-7");
  EXPECT_EQ(unknown->status, 404);
  EXPECT_THAT(unknown->body,
              HasSubstr("instance 'nuke-7' is not connected; live instances: maya-1"));
  EXPECT_EQ(Get("", {}, "/sse/maya-1?tools=maya")->status, 400);
}

TEST_F(HttpSse, WhatIsNoMessageIsRefusedByThePost) {
  Begin();
  EXPECT_EQ(Say("{")->status, 400);
  EXPECT_THAT(Say("{")->body, HasSubstr("-32700"));
  EXPECT_EQ(Say("[]")->status, 400);
  EXPECT_EQ(Say(R"([{"jsonrpc":"2.0","id":1,"method":"ping"}])")->status, 400)
      << "batches are of 2025-03-26";
  EXPECT_EQ(Send("POST", messages_, {{"Host", "localhost"}, {"Content-Type", "text/plain"}},
                 InitializeText())
                ->status,
            415);
}

TEST_F(HttpSse, SessionThatNobodyKnowsIs404AndOneThatIsNotNamedIs400) {
  const Answer unknown = Post(Call(1), {}, "/messages?sessionId=abc");
  EXPECT_EQ(unknown->status, 404);
  EXPECT_THAT(unknown->body, HasSubstr("no open stream has this sessionId"));
  EXPECT_EQ(bridge_->gauges().session_mismatches, 1u);
  EXPECT_EQ(Post(Call(1), {}, "/messages")->status, 400);
}

TEST_F(HttpSse, MethodsOfOtherTransportsAreNotAllowedSoThatClientsFallBack) {
  const Answer posted = Post(InitializeText(), {}, "/sse");
  EXPECT_EQ(posted->status, 405);
  EXPECT_EQ(posted->Header("Allow"), "GET, OPTIONS");
  EXPECT_EQ(Get("", {}, "/messages?sessionId=abc")->status, 405);
  EXPECT_EQ(Send("GET", "/sse", {{"Host", "localhost"}, {"Accept", "text/html"}})->status, 406);
  EXPECT_EQ(Send("GET", "/sse", {{"Host", "localhost"}})->status, 200) << "anything is accepted";
}

TEST_F(HttpSse, ForeignPagesAndHostsAreRefused) {
  EXPECT_EQ(Send("GET", "/sse", {{"Host", "evil.example"}})->status, 403);
  EXPECT_EQ(Get("", {{"Origin", "https://evil.example"}}, "/sse")->status, 403);
  Listen();
  EXPECT_EQ(Post(InitializeText(), {{"Origin", "https://evil.example"}}, messages_)->status, 403);
}

TEST_F(HttpSse, WhereItIsOffThereAreNoSuchPaths) {
  Restart({.legacy_sse = false});
  EXPECT_EQ(Get("", {}, "/sse")->status, 404);
  EXPECT_EQ(Post(InitializeText(), {}, "/messages?sessionId=abc")->status, 404);
}

TEST_F(HttpSse, EndOfAnIdleStreamEndsTheSession) {
  const Answer stream = Begin();
  stream->on_peer_gone();
  loop_.RunReady();
  EXPECT_TRUE(plane_.sessions.empty());
  EXPECT_TRUE(plane_.listens[0].script->destroyed);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
  EXPECT_EQ(Say(Call(1))->status, 404);
}

TEST_F(HttpSse, EndOfTheStreamCancelsNoCall) {
  const Answer stream = Begin();
  Say(Call(1));
  stream->on_peer_gone();
  loop_.RunFor(absl::Seconds(2));
  EXPECT_EQ(plane_.sessions.size(), 1u) << "closing it would cancel the call";
  EXPECT_TRUE(plane_.sent.empty());
  plane_.invokes[0].script->Push(Result("{}"));
  loop_.RunReady();
  EXPECT_TRUE(plane_.invokes[0].script->destroyed);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(HttpSse, EndOfTheStreamEndsWhatBackendsAskAndWillAsk) {
  const Answer stream = Begin();
  const auto ask = [](const char* id) {
    v1::InvokeEvent event;
    event.mutable_ask()->set_ask_id(id);
    event.mutable_ask()->set_method("roots/list");
    *event.mutable_ask()->mutable_id() = Id(1, 7, 2);
    return event;
  };
  Say(Call(1));
  plane_.invokes[0].script->Push(Accepted(1));
  plane_.invokes[0].script->Push(ask("first"));
  loop_.RunReady();
  EXPECT_NE(stream->body.find(R"(first","method":"roots/list")"), std::string::npos);
  stream->on_peer_gone();
  loop_.RunFor(absl::Seconds(2));
  ASSERT_EQ(plane_.sent.size(), 1u);
  EXPECT_EQ(plane_.sent[0].answer().ask_id(), "first");
  EXPECT_NE(plane_.sent[0].answer().error().find("the client is gone"), std::string::npos);
  plane_.invokes[0].script->Push(ask("second"));
  loop_.RunReady();
  ASSERT_EQ(plane_.sent.size(), 2u);
  EXPECT_EQ(plane_.sent[1].answer().ask_id(), "second");
  EXPECT_NE(plane_.sent[1].answer().error().find("cannot be asked"), std::string::npos);
  plane_.invokes[0].script->Push(Result("{}"));
  loop_.RunReady();
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(HttpSse, LargeAnswersWithoutAStreamAreNotFetched) {
  const Answer stream = Begin();
  Say(Call(1));
  stream->on_peer_gone();
  loop_.RunReady();
  plane_.invokes[0].script->Push(Big(100'000));
  loop_.RunReady();
  EXPECT_TRUE(plane_.invokes[0].script->destroyed);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(HttpSse, SessionThatIsEndedElsewhereEndsTheStream) {
  const Answer stream = Begin();
  v1::ListenEvent end;
  end.mutable_end()->set_reason("session_ended");
  Tell(end);
  EXPECT_TRUE(stream->ended);
  EXPECT_EQ(Say(Call(1))->status, 404);
}

TEST_F(HttpSse, SilentStreamsBeat) {
  const Answer stream = Begin();
  loop_.RunFor(absl::Seconds(16));
  EXPECT_EQ(stream->body, ": ping\n\n");
}

TEST_F(HttpSse, ClientThatReadsNothingIsRefusedFurtherQuestionsAndThenCutOff) {
  bridge::BridgeConfig config;
  config.limits.sse_waiting_bytes_max = 100;
  Restart(std::move(config));
  const Answer stream = Begin();
  stream->stalled = true;
  EXPECT_EQ(Say(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})")->status, 202);
  const Answer refused = Say(R"({"jsonrpc":"2.0","id":2,"method":"tools/list"})");
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->Header("Retry-After"), "2");
  loop_.RunFor(absl::Seconds(25));
  EXPECT_TRUE(stream->aborted);
  EXPECT_EQ(bridge_->gauges().streams.ended_by(bridge::StreamEnd::kSlow), 1u);
  EXPECT_TRUE(plane_.sessions.empty());
}

TEST_F(HttpSse, StreamsAreLimitedInNumber) {
  bridge::BridgeConfig config;
  config.limits.streams_max = 1;
  Restart(std::move(config));
  Listen();
  const Answer refused = Get("", {}, "/sse");
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->Header("Retry-After"), "2");
  EXPECT_EQ(bridge_->gauges().streams.refused, 1u);
}

TEST_F(HttpSse, ControlPlaneThatDoesNotOpenTheSessionIsAnErrorOnTheStream) {
  const Answer stream = Listen();
  plane_.open_error = absl::UnavailableError("the disk is full");
  Say(InitializeText());
  EXPECT_THAT(stream->body,
              HasSubstr(R"("id":0,"error":{"code":-32000,"message":"the disk is full")"));
  plane_.open_error = absl::OkStatus();
  stream->body.clear();
  Say(InitializeText());
  EXPECT_THAT(stream->body, HasSubstr(R"("result":{"protocolVersion")")) << "it may be tried again";

  const Answer silent = Listen();
  plane_.silent = true;
  Say(InitializeText());
  loop_.RunFor(absl::Seconds(32));
  EXPECT_THAT(silent->body, HasSubstr("the control plane did not answer in time"));
}

TEST_F(HttpSse, DrainLetsCallsEndAndThenTellsTheStream) {
  const Answer stream = Begin();
  Say(Call(1));
  bool drained = false;
  bridge_->Drain(absl::Seconds(10), [&] { drained = true; });
  loop_.RunReady();
  EXPECT_EQ(Get("", {}, "/sse")->status, 503);
  EXPECT_EQ(Say(Call(2))->status, 503);
  EXPECT_FALSE(stream->ended);
  Push(Result("{}"));
  loop_.RunReady();
  EXPECT_EQ(stream->body,
            Message(R"({"jsonrpc":"2.0","id":1,"result":{}})") + "event: close\ndata: {}\n\n");
  EXPECT_TRUE(stream->ended);
  EXPECT_TRUE(drained);
  EXPECT_TRUE(plane_.sessions.empty());
}

TEST_F(HttpSse, CallsThatOutlastTheDrainAreToldSoOnTheStream) {
  const Answer stream = Begin();
  Say(Call(1));
  bool drained = false;
  bridge_->Drain(absl::Seconds(10), [&] { drained = true; });
  loop_.RunFor(absl::Seconds(11));
  EXPECT_THAT(stream->body, HasSubstr("the server is shutting down"));
  EXPECT_THAT(stream->body, EndsWith("event: close\ndata: {}\n\n"));
  EXPECT_TRUE(drained);
  EXPECT_EQ(plane_.sessions.size(), 1u) << "the call goes on";
}

TEST_F(HttpSse, CallsGoOnOverALossOfTheControlPlane) {
  const Answer stream = Begin();
  Say(Call(1));
  Push(Accepted(3));
  plane_.invokes[0].script->Push(absl::UnavailableError("lost"));
  loop_.RunFor(absl::Seconds(2));
  ASSERT_EQ(plane_.listens.size(), 2u);
  EXPECT_EQ(plane_.listens[1].request.stream(), 3u);
  v1::ListenEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::RESULT);
  outcome.mutable_outcome()->mutable_body()->set_inline_("{}");
  Tell(outcome);
  EXPECT_EQ(stream->body, Message(R"({"jsonrpc":"2.0","id":1,"result":{}})"));
}

}  // namespace
}  // namespace callboard::tests
