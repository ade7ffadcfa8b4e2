// Tests of Streamable HTTP against a real HTTP server over streams in memory.
#include "backend_agent/backends/http_backend.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core/runtime/strings.h"
#include "net/http_server.h"
#include "tests/support/memory_spool.h"
#include "tests/support/memory_stream.h"
#include "tests/support/virtual_loop.h"

namespace callboard::agent {
namespace {

// A process that ends when the test says so.
class PlayedWatcher final : public ProcessWatcher {
 public:
  std::unique_ptr<ProcessWatch> Watch(int64_t, absl::AnyInvocable<void(ProcessEnd)> end) override {
    on_end = std::move(end);
    return nullptr;
  }
  absl::AnyInvocable<void(ProcessEnd)> on_end;
};

class HttpBackendTest : public testing::Test, public Backend::Events {
 protected:
  using Responder = std::shared_ptr<net::HttpResponder>;

  HttpBackendTest() {
    StartServer();
    HttpBackendConfig config;
    config.url = *ParseHttpUrl("http://127.0.0.1:9401/mcp");
    config.pid = 42;
    config.name = "blender";
    config.result_bytes_max = 300'000;
    backend = std::make_unique<HttpBackend>(loop, spool, network.MakeConnector(), &watcher, config);
  }
  void StartServer() {
    server = std::make_unique<net::HttpServer>(
        loop, net::HttpServerLimits{}, [this](net::HttpRequest request, Responder responder) {
          if (request.target == "/health") {
            responder->Respond(200, {}, "{}");
            return;
          }
          requests.push_back(request);
          answer(responder);
        });
    server->Serve(network.Listen());
  }
  void Begin() {
    backend->Start(this);
    loop.RunFor(absl::Milliseconds(10));
  }
  std::unique_ptr<BackendExchange> Post(uint64_t id) {
    auto exchange = backend->Send(
        id, R"({"jsonrpc":"2.0","id":)" + std::to_string(id) + R"(,"method":"x"})", true);
    loop.RunFor(absl::Milliseconds(10));
    return exchange;
  }
  static net::HeaderList Json() { return {{"Content-Type", "application/json"}}; }

  void OnUp() override { told.push_back("up"); }
  void OnDown(BackendExit exit) override { told.push_back("down: " + exit.detail); }
  void OnMessage(Payload message, uint64_t) override {
    told.push_back(message.size() < 200 ? std::string(message.view())
                                        : std::to_string(message.size()) + " bytes");
  }
  void OnExchangeEnd(uint64_t id, absl::Status status, bool reached) override {
    told.push_back(std::to_string(id) + (reached ? " " : " unreached ") +
                   std::string(status.ok() ? "OK" : core::Message(status)));
    code = status.code();
  }

  tests::VirtualLoop loop;
  core::SeededRandom random{1};
  tests::MemorySpool spool;
  tests::MemoryNetwork network{loop, random, {.slice_bytes_max = 5'000}};
  PlayedWatcher watcher;
  std::function<void(Responder)> answer;
  std::vector<net::HttpRequest> requests;
  std::vector<std::string> told;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::unique_ptr<net::HttpServer> server;
  std::unique_ptr<HttpBackend> backend;
};

using Told = std::vector<std::string>;

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

TEST_F(HttpBackendTest, TakesMessagesFromAnEventStreamAsTheyCome) {
  Begin();
  Responder open;
  answer = [&](Responder to) {
    open = to;
    to->StartStream(200, {{"Content-Type", "text/event-stream"}});
    to->Write("id: 1\ndata:\n\nevent: message\ndata: {\"progress\":1}\n\n", nullptr);
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
  EXPECT_TRUE(open->peer_gone());
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
  EXPECT_EQ(told[2], "down: http://127.0.0.1:9401/mcp does not accept connections any more");
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
