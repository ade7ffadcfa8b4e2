// Tests of Streamable HTTP against a real HTTP server over streams in memory.
#include "tests/unit/agent_seats/http_backend_fixture.h"

namespace callboard::agent {
namespace {

TEST_F(HttpBackendTest, PostsAndTakesAJsonReply) {
  Begin();
  answer = [](Responder to) { to->Respond(200, Json(), "{\"id\":1,\n\"result\":{}}"); };
  backend->SetRevision("2025-06-18");
  auto exchange = Post(1);
  EXPECT_EQ(told, (Told{"up", "{\"id\":1, \"result\":{}}", "1 OK"}));
  EXPECT_EQ(*requests[0].Header("accept"), "application/json, text/event-stream");
  EXPECT_EQ(*requests[0].Header("mcp-protocol-version"), "2025-06-18");
  EXPECT_EQ(requests[0].Header("mcp-session-id"), nullptr);
}

TEST_F(HttpBackendTest, CarriesTheTraceOfACallInItsHeaders) {
  Begin();
  answer = [](Responder to) { to->Respond(200, Json(), "{}"); };
  auto traced = Post(1, {.traceparent = "00-1", .tracestate = "v=1", .baggage = "b=2"});
  auto plain = Post(2);
  EXPECT_EQ(*requests[0].Header("traceparent"), "00-1");
  EXPECT_EQ(*requests[0].Header("tracestate"), "v=1");
  EXPECT_EQ(*requests[0].Header("baggage"), "b=2");
  EXPECT_EQ(requests[1].Header("traceparent"), nullptr);
  EXPECT_EQ(requests[1].Header("baggage"), nullptr);
}

TEST_F(HttpBackendTest, RepeatsInHeadersWhatAModernRequestNames) {
  answer = [](const Responder& responder) { responder->Respond(200, Json(), "{}"); };
  Begin();
  const auto exchange = backend->SendModern(
      1, R"({"jsonrpc":"2.0","id":1,"method":"tools/call"})",
      {.method = "tools/call", .named = "\xC3\xA4", .params = {{"Region", "eu"}, {"Empty", ""}}},
      {});
  loop.RunFor(absl::Milliseconds(10));
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(*requests[0].Header("MCP-Protocol-Version"), "2026-07-28");
  EXPECT_EQ(*requests[0].Header("Mcp-Method"), "tools/call");
  EXPECT_EQ(*requests[0].Header("Mcp-Name"), "=?base64?w6Q=?=");
  EXPECT_EQ(*requests[0].Header("Mcp-Param-Region"), "eu");
  ASSERT_NE(requests[0].Header("Mcp-Param-Empty"), nullptr);
  EXPECT_EQ(*requests[0].Header("Mcp-Param-Empty"), "");
}

TEST_F(HttpBackendTest, TakesMessagesFromAnEventStreamAsTheyCome) {
  Begin();
  Responder open;
  answer = [&](Responder to) {
    open = to;
    to->StartStream(200, {{"Content-Type", "text/event-stream"}});
    to->Write("data:\n\nevent: message\ndata: {\"progress\":1}\n\n", nullptr);
  };
  auto exchange = Post(1);
  EXPECT_EQ(told, (Told{"up", "{\"progress\":1}"}));
  open->Write("data: {\"x\":\"" + std::string(100'000, 'a') + "\"}\n\n", nullptr);
  open->End();
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(told, (Told{"up", "{\"progress\":1}", "100008 bytes", "1 OK"}));
}

TEST_F(HttpBackendTest, RemembersTheSessionAndSaysWhenItIsForgotten) {
  Begin();
  backend->SetRevision("2025-06-18");
  answer = [](Responder to) {
    to->Respond(200, {{"Content-Type", "application/json"}, {"Mcp-Session-Id", "s1"}}, "{}");
  };
  auto first = Post(1);
  answer = [](Responder to) { to->Respond(404, Json(), R"({"id":"server-error","error":{}})"); };
  auto second = Post(2);
  EXPECT_EQ(*requests[1].Header("mcp-session-id"), "s1");
  EXPECT_EQ(code, absl::StatusCode::kNotFound);
  auto third = Post(3);
  EXPECT_EQ(requests[2].Header("mcp-session-id"), nullptr);
  EXPECT_EQ(code, absl::StatusCode::kInternal);
}

TEST_F(HttpBackendTest, AcceptedNotificationEndsWithoutAMessage) {
  Begin();
  answer = [](Responder to) { to->Respond(202, {}, ""); };
  auto exchange = Post(1);
  EXPECT_EQ(told, (Told{"up", "1 OK"}));
}

TEST_F(HttpBackendTest, ErrorStatusWithOurIdIsAMessageAndWithoutItAnError) {
  Begin();
  answer = [](Responder to) {
    to->Respond(400, Json(), R"({"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}})");
  };
  auto first = Post(1);
  auto second = Post(2);
  EXPECT_EQ(told[1], R"({"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}})");
  EXPECT_EQ(told[2], "1 OK");
  EXPECT_EQ(told[3],
            R"(2 the backend answered HTTP 400 Bad Request: {"jsonrpc":"2.0","id":1,"error":{)"
            R"("code":-1,"message":"m"}})");
}

TEST_F(HttpBackendTest, ReplyOverTheLimitEndsWhenItsLengthIsKnown) {
  Begin();
  Responder open;
  answer = [&](Responder to) {
    open = to;
    to->StartStream(200, Json(), 314'572'800);
  };
  auto exchange = Post(1);
  EXPECT_EQ(told.back(), "1 result of 314572800 bytes exceeds the limit of 300000 bytes");
  // The server finds the connection closed at its next bytes.
  for (int i = 0; i < 2; ++i) {
    open->Write(std::string(1000, 'x'), nullptr);
    loop.RunFor(absl::Milliseconds(10));
  }
  EXPECT_NE(open->peer_loss(), net::PeerLoss::kNone);
}

TEST_F(HttpBackendTest, DeathOfTheProcessIsToldAtOnceAlsoWhenTheConnectionIsSilent) {
  Begin();
  std::vector<Responder> open;
  answer = [&](Responder to) { open.push_back(to); };
  auto exchange = Post(1);
  watcher.on_end({.exit_signal = 9});
  loop.RunReady();
  EXPECT_EQ(told, (Told{"up", "1 blender (pid 42) was killed by signal 9 (SIGKILL)",
                        "down: blender (pid 42) was killed by signal 9 (SIGKILL)"}));
}

TEST_F(HttpBackendTest, TwoRefusedConnectsAreDownAndTheNextAnswerIsUp) {
  Begin();
  network.RefuseConnects(true);
  network.Break();
  loop.RunFor(absl::Seconds(10));
  auto exchange = Post(1);
  loop.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(told[1].substr(0, 11), "1 unreached");
  EXPECT_TRUE(
      told[2].starts_with("down: http://127.0.0.1:9401/mcp does not accept connections any more: "))
      << told[2];
  network.RefuseConnects(false);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(told.back(), "up");
}

TEST_F(HttpBackendTest, FC08_OneThatHasNeverBeenThereIsToldOnceWithTheCause) {
  network.RefuseConnects(true);
  Begin();
  loop.RunFor(absl::Seconds(30));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].starts_with("down: http://127.0.0.1:9401/mcp does not accept connections: "))
      << told[0];
  network.RefuseConnects(false);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(told.back(), "up");
}

TEST_F(HttpBackendTest, ProbeIsAnsweredByAnyAnswerAndNotBySilence) {
  Begin();
  std::string probes;
  const auto probe = [&] {
    backend->Probe([&](bool alive) { probes += alive ? "y" : "n"; });
    loop.RunFor(absl::Seconds(4));
  };
  probe();
  network.Clog(true);
  probe();
  EXPECT_EQ(probes, "yn");
}

TEST_F(HttpBackendTest, StopDeletesTheSession) {
  Begin();
  answer = [](Responder to) {
    to->Respond(200, {{"Content-Type", "application/json"}, {"Mcp-Session-Id", "s1"}}, "{}");
  };
  auto exchange = Post(1);
  bool done = false;
  backend->Stop([&] { done = true; });
  loop.RunFor(absl::Seconds(2));
  EXPECT_TRUE(done);
  EXPECT_EQ(requests.back().method, "DELETE");
  EXPECT_EQ(*requests.back().Header("mcp-session-id"), "s1");
}

TEST(HttpUrl, IsTakenApart) {
  EXPECT_EQ(ParseHttpUrl("http://[::1]:7/a?b")->host, "::1");
  EXPECT_EQ(ParseHttpUrl("http://[::1]:7/a?b")->port, 7);
  EXPECT_EQ(ParseHttpUrl("http://h")->path, "/");
  for (const char* url : {"https://h/", "http://:1/", "http://h:0/", "http://h:x/", "h:1"}) {
    EXPECT_FALSE(ParseHttpUrl(url).ok()) << url;
  }
}

}  // namespace
}  // namespace callboard::agent
