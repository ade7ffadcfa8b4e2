// Tests of HTTP+SSE (2024-11-05), and of finding out which transport a URL speaks.
#include "backend_agent/backends/sse_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "backend_agent/backends/http_backend.h"
#include "backend_agent/backends/url_backend.h"
#include "core/runtime/strings.h"
#include "net/http_server.h"
#include "tests/support/memory_spool.h"
#include "tests/support/memory_stream.h"
#include "tests/support/virtual_loop.h"
#include "tests/unit/agent_seats/http_backend_fixture.h"

namespace callboard::agent {
namespace {

class SseBackendTest : public testing::Test, public Backend::Events {
 protected:
  using Responder = std::shared_ptr<net::HttpResponder>;

  SseBackendTest()
      : server(loop, {}, [this](net::HttpRequest request, Responder to) {
          if (request.target == "/health") return to->Respond(404, {}, "");
          requests.push_back(request);
          if (request.method == "GET") return get(to);
          post(to);
        }) {
    server.Serve(network.Listen());
    backend = MakeSse();
  }
  std::unique_ptr<Backend> MakeSse() {
    SseBackendConfig config;
    config.url = *ParseHttpUrl("http://127.0.0.1:9401/sse");
    config.name = "old";
    config.pid = 42;
    return std::make_unique<SseBackend>(loop, random, spool, network.MakeConnector(), &watcher,
                                        config);
  }
  std::unique_ptr<Backend> MakeHttp() {
    HttpBackendConfig config;
    config.url = *ParseHttpUrl("http://127.0.0.1:9401/sse");
    return std::make_unique<HttpBackend>(loop, random, spool, network.MakeConnector(), nullptr,
                                         config);
  }
  void Begin() {
    backend->Start(this);
    loop.RunFor(absl::Milliseconds(10));
  }
  // The backend finds out by itself which transport is spoken there.
  void BeginAtUrl() {
    backend = std::make_unique<UrlBackend>(
        loop, [this] { return MakeHttp(); }, [this] { return MakeSse(); });
    Begin();
  }
  std::unique_ptr<BackendExchange> Send(uint64_t id, bool expects_reply = true,
                                        const core::TraceContext& trace = {}) {
    auto exchange =
        backend->Send(id, R"({"jsonrpc":"2.0","id":)" + std::to_string(id) + R"(,"method":"x"})",
                      expects_reply, trace);
    loop.RunFor(absl::Milliseconds(10));
    return exchange;
  }
  void Say(const std::string& text) {
    stream->Write(text, nullptr);
    loop.RunFor(absl::Milliseconds(10));
  }
  size_t Count(const std::string& method) const {
    size_t count = 0;
    for (const auto& request : requests) count += request.method == method ? 1 : 0;
    return count;
  }

  void OnUp() override { told.push_back("up"); }
  void OnRejoined() override { told.push_back("rejoined"); }
  void OnSessionForgotten() override { told.push_back("session forgotten"); }
  void OnDown(BackendExit exit) override { told.push_back("down: " + exit.detail); }
  void OnMessage(Payload message, uint64_t) override { told.emplace_back(message.view()); }
  void OnExchangeEnd(uint64_t id, absl::Status status, bool reached) override {
    told.push_back(std::to_string(id) + (reached ? " " : " unreached ") +
                   std::string(status.ok() ? "OK" : core::Message(status)));
  }

  tests::VirtualLoop loop;
  core::SeededRandom random{1};
  tests::MemorySpool spool;
  tests::MemoryNetwork network{loop, random, {.slice_bytes_max = 5'000}};
  PlayedWatcher watcher;
  std::string endpoint = "/messages?sessionId=a";
  std::function<void(Responder)> get = [this](Responder to) {
    stream = to;
    to->StartStream(200, {{"Content-Type", "text/event-stream"}});
    to->Write("event: endpoint\ndata: " + endpoint + "\n\n", nullptr);
  };
  std::function<void(Responder)> post = [](Responder to) { to->Respond(202, {}, "Accepted"); };
  Responder stream;
  std::vector<net::HttpRequest> requests;
  std::vector<std::string> told;
  net::HttpServer server;
  std::unique_ptr<Backend> backend;
};

TEST_F(SseBackendTest, PostsWhereTheStreamSaysAndHearsTheAnswerOnTheStream) {
  Begin();
  EXPECT_EQ(told, (Told{"up"}));
  EXPECT_EQ(*requests[0].Header("accept"), "text/event-stream");
  auto request = Send(1);
  auto notification = Send(2, false);
  EXPECT_EQ(requests[1].target, "/messages?sessionId=a");
  EXPECT_EQ(told, (Told{"up", "2 OK"}));
  Say("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n");
  EXPECT_EQ(told.back(), R"({"jsonrpc":"2.0","id":1,"result":{}})");
  Say("event: ping\ndata: 2026-11-30\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n");
  EXPECT_EQ(told.size(), 4u);
}

TEST_F(SseBackendTest, CarriesTheTraceOfACallInItsHeaders) {
  Begin();
  auto traced = Send(1, true, {.traceparent = "00-1"});
  auto plain = Send(2);
  EXPECT_EQ(*requests[1].Header("traceparent"), "00-1");
  EXPECT_EQ(requests[1].Header("tracestate"), nullptr);
  EXPECT_EQ(requests[2].Header("traceparent"), nullptr);
}

TEST_F(SseBackendTest, TheEndOfTheStreamIsTheEndOfItsRequestsAndTheNextIsANewSession) {
  Begin();
  auto request = Send(1);
  endpoint = "http://127.0.0.1:9401/messages?sessionId=b";
  stream->End();
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(told, (Told{"up", "1 the backend ended the event stream /sse",
                        "down: the backend ended the event stream /sse", "up"}));
  request = Send(2);
  EXPECT_EQ(requests.back().target, "/messages?sessionId=b");
  EXPECT_EQ(requests[2].Header("last-event-id"), nullptr);
}

TEST_F(SseBackendTest, DeathOfTheProcessIsToldAtOnceAlsoWhenTheStreamIsSilent) {
  Begin();
  auto exchange = Send(1);
  told.clear();
  watcher.on_end({.exit_signal = 9});
  loop.RunReady();
  EXPECT_EQ(told, (Told{"1 old (pid 42) was killed by signal 9 (SIGKILL)",
                        "down: old (pid 42) was killed by signal 9 (SIGKILL)"}));
  const size_t asked = Count("GET");
  loop.RunFor(absl::Minutes(5));
  EXPECT_EQ(Count("GET"), asked) << "its port may be another's now";
}

TEST_F(SseBackendTest, AnEndpointOnAnotherOriginIsRefused) {
  endpoint = "http://127.0.0.1:9402/messages";
  Begin();
  EXPECT_EQ(told, (Told{"down: http://127.0.0.1:9401/sse (HTTP+SSE) wants its messages at "
                        "'http://127.0.0.1:9402/messages', which is not on the same origin"}));
  auto request = Send(1);
  EXPECT_EQ(told.back(), "1 unreached the event stream is not there");
  EXPECT_EQ(Count("POST"), 0u);
  endpoint = "/messages";
  loop.RunFor(absl::Seconds(11));
  EXPECT_EQ(told.back(), "up");
}

TEST_F(SseBackendTest, ARefusedMessageWasNotActedUponAndAForgottenSessionBeginsAnew) {
  Begin();
  post = [](Responder to) { to->Respond(404, {}, "no session"); };
  auto request = Send(1);
  EXPECT_EQ(told[1], "1 unreached the backend answered HTTP 404 Not Found: no session");
  EXPECT_EQ(told[2], "down: the backend does not know the session any more");
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(told.back(), "up");
}

TEST_F(SseBackendTest, AServerThatIsNotThereIsAskedAgainWithGrowingWaits) {
  network.RefuseConnects(true);
  Begin();
  EXPECT_EQ(told.size(), 1u);
  const uint64_t before = network.connects();
  loop.RunFor(absl::Minutes(2));
  EXPECT_LE(network.connects() - before, 25u);
  network.RefuseConnects(false);
  loop.RunFor(absl::Seconds(13));
  EXPECT_EQ(told.back(), "up");
}

TEST_F(SseBackendTest, AStreamThatNamesNoEndpointIsGivenUp) {
  get = [this](Responder to) {
    stream = to;
    to->StartStream(200, {{"Content-Type", "text/event-stream"}});
    to->Write(": nothing\n\n", nullptr);
  };
  Begin();
  loop.RunFor(absl::Seconds(31));
  EXPECT_EQ(told,
            (Told{"down: http://127.0.0.1:9401/sse (HTTP+SSE) named no endpoint within 30 s"}));
  EXPECT_EQ(Count("GET"), 2u);
}

TEST_F(SseBackendTest, UrlThatRefusesThePostOfInitializeIsTakenAsEventStream) {
  for (int status : {400, 404, 405}) {
    requests.clear();
    told.clear();
    post = [&](Responder to) {
      if (requests.back().target == "/sse") return to->Respond(status, {}, "no");
      to->Respond(202, {}, "");
    };
    backend = std::make_unique<UrlBackend>(
        loop, [this] { return MakeHttp(); }, [this] { return MakeSse(); });
    Begin();
    backend->SetRevision("");
    auto initialize = Send(1);
    ASSERT_EQ(told.size(), 4u) << status;
    EXPECT_EQ(told[1].substr(0, 33), "1 the backend answered HTTP " + std::to_string(status) + " " +
                                         (status == 400   ? "B"
                                          : status == 404 ? "N"
                                                          : "M"));
    EXPECT_EQ(told[2].substr(0, 5), "down:");
    EXPECT_EQ(told[3], "up");
    initialize = Send(2);
    EXPECT_EQ(requests.back().target, "/messages?sessionId=a");
    EXPECT_EQ(backend->description(), "http://127.0.0.1:9401/sse (HTTP+SSE)");
  }
}

TEST_F(SseBackendTest, UrlWhoseStreamStaysAwayIsPostedToAgain) {
  post = [&](Responder to) { to->Respond(405, {}, "no"); };
  BeginAtUrl();
  auto initialize = Send(1);
  ASSERT_EQ(told.back(), "up");
  get = [](Responder to) { to->Respond(405, {}, ""); };
  stream->End();
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(told.back(), "up");
  EXPECT_EQ(backend->description(), "http://127.0.0.1:9401/sse");
}

TEST_F(SseBackendTest, WhatAUrlSpeaksIsBelievedForADayAndThenLookedAtAnew) {
  post = [&](Responder to) {
    if (requests.back().target == "/sse") return to->Respond(405, {}, "no");
    to->Respond(202, {}, "");
  };
  BeginAtUrl();
  auto initialize = Send(1);
  ASSERT_EQ(told.back(), "up");
  const auto posted_to_url = [this] {
    return std::ranges::count_if(requests, [](const net::HttpRequest& request) {
      return request.method == "POST" && request.target == "/sse";
    });
  };
  EXPECT_EQ(posted_to_url(), 1);
  loop.RunFor(absl::Hours(23));
  stream->End();
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(told.back(), "up");
  EXPECT_EQ(backend->description(), "http://127.0.0.1:9401/sse (HTTP+SSE)") << "without a POST";
  EXPECT_EQ(posted_to_url(), 1);
  loop.RunFor(absl::Hours(1));
  stream->End();
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(told.back(), "up");
  EXPECT_EQ(backend->description(), "http://127.0.0.1:9401/sse") << "until POST is refused again";
  initialize = Send(2);
  EXPECT_EQ(posted_to_url(), 2);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(told.back(), "up");
  EXPECT_EQ(backend->description(), "http://127.0.0.1:9401/sse (HTTP+SSE)");
}

TEST_F(SseBackendTest, SessionThatAUrlsServerHasForgottenIsOpenedAnewOnTheSameTransport) {
  bool forgotten = false;
  post = [&](Responder to) {
    if (requests.back().target == "/sse") return to->Respond(405, {}, "no");
    if (forgotten) return to->Respond(404, {}, "no session");
    to->Respond(202, {}, "");
  };
  BeginAtUrl();
  auto initialize = Send(1);
  ASSERT_EQ(told.back(), "up");
  forgotten = true;
  auto request = Send(2);
  EXPECT_EQ(told[told.size() - 2],
            "2 unreached the backend answered HTTP 404 Not Found: no session");
  EXPECT_EQ(told.back(), "down: the backend does not know the session any more");
  forgotten = false;
  endpoint = "/messages?sessionId=b";
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(told.back(), "up");
  request = Send(3);
  EXPECT_EQ(requests.back().target, "/messages?sessionId=b");
}

}  // namespace
}  // namespace callboard::agent
