// What a caller of HttpClient sees: against HttpServer and against a server that speaks raw bytes.
#include "net/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/runtime/random.h"
#include "tests/support/memory_stream.h"
#include "tests/support/virtual_loop.h"
#include "tests/unit/net/raw_peer.h"

namespace callboard::net {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using tests::RawPeer;

struct Sink final : HttpResponseSink {
  void OnSending() override { ++sendings; }
  void OnHead(HttpResponseHead response_head) override { head = std::move(response_head); }
  void OnBody(std::string_view piece) override {
    body.append(piece);
    if (on_body) on_body();
  }
  void OnEnd(absl::Status end_status, bool end_reached) override {
    ++ends;
    status = std::move(end_status);
    reached = end_reached;
  }
  int sendings = 0;
  HttpResponseHead head;
  std::string body;
  int ends = 0;
  absl::Status status;
  bool reached = false;
  std::function<void()> on_body;
};

class HttpClientTest : public testing::Test {
 protected:
  HttpClientTest() {
    client_ = std::make_unique<HttpClient>(loop_, network_.MakeConnector(), "dcc:8765",
                                           HttpClientLimits{});
  }

  // Accepts raw streams into servers_.
  void ServeRaw() {
    listener_ = network_.Listen();
    listener_->Start([this](std::unique_ptr<ByteStream> stream) {
      servers_.push_back(std::make_unique<RawPeer>(std::move(stream)));
    });
  }
  void ServeHttp(HttpServer::Handler handler) {
    server_ = std::make_unique<HttpServer>(loop_, HttpServerLimits{}, std::move(handler));
    server_->Serve(network_.Listen());
  }
  std::unique_ptr<HttpExchange> Post(Sink& sink, std::string body = "hello") {
    return client_->Send("POST", "/mcp", {{"Accept", "*/*"}}, std::move(body), &sink);
  }
  // One exchange with a raw server that sends `answer` and, if asked, closes.
  void Exchange(Sink& sink, std::string_view answer, bool close) {
    ServeRaw();
    auto exchange = Post(sink);
    loop_.RunReady();
    ASSERT_FALSE(servers_.empty());
    servers_.back()->Send(std::string(answer));
    loop_.RunReady();
    if (close) servers_.back()->Leave();
    loop_.RunReady();
  }

  tests::VirtualLoop loop_;
  core::SeededRandom random_{1};
  tests::MemoryNetwork network_{loop_, random_, {}};
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<RawPeer>> servers_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<HttpClient> client_;
};

TEST_F(HttpClientTest, SendsARequestAndReusesItsConnection) {
  ServeHttp([](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    responder->Respond(200, {{"Mcp-Session-Id", "s1"}},
                       request.body + "/" + *request.Header("Host"));
  });
  for (int i = 0; i < 3; ++i) {
    Sink sink;
    auto exchange = Post(sink);
    EXPECT_EQ(sink.sendings, 0) << "never from inside Send";
    loop_.RunReady();
    EXPECT_EQ(sink.sendings, 1);
    EXPECT_EQ(sink.ends, 1);
    EXPECT_TRUE(sink.status.ok()) << sink.status;
    EXPECT_EQ(sink.head.status, 200);
    EXPECT_EQ(*sink.head.Header("mcp-session-id"), "s1");
    EXPECT_EQ(sink.head.content_length, 14u);
    EXPECT_EQ(sink.body, "hello/dcc:8765");
  }
  EXPECT_EQ(network_.connects(), 1u);
  loop_.RunFor(absl::Seconds(4));
  EXPECT_EQ(server_->connections(), 0u) << "idle connections are dropped after 3 s";
}

TEST_F(HttpClientTest, WritesContentLengthAlsoForAnEmptyPost) {
  ServeRaw();
  Sink post, get;
  auto first = Post(post, "");
  auto second = client_->Send("GET", "/x", {}, "", &get);
  loop_.RunReady();
  ASSERT_EQ(servers_.size(), 2u);
  EXPECT_EQ(servers_[0]->received,
            "POST /mcp HTTP/1.1\r\nHost: dcc:8765\r\nAccept: */*\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(servers_[1]->received, "GET /x HTTP/1.1\r\nHost: dcc:8765\r\n\r\n");
}

TEST_F(HttpClientTest, DeliversStreamedPiecesAsTheyCome) {
  std::shared_ptr<HttpResponder> stream;
  ServeHttp([&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
    stream = std::move(responder);
    stream->StartStream(200, {{"Content-Type", "text/event-stream"}});
  });
  Sink sink;
  auto exchange = Post(sink);
  loop_.RunReady();
  EXPECT_EQ(sink.head.status, 200);
  stream->Write("data: 1\n\n", nullptr);
  loop_.RunReady();
  EXPECT_EQ(sink.body, "data: 1\n\n");
  EXPECT_EQ(sink.ends, 0);
  exchange->PauseBody(true);
  stream->Write("data: 2\n\n", nullptr);
  loop_.RunReady();
  EXPECT_EQ(sink.body, "data: 1\n\n");
  exchange->PauseBody(false);
  EXPECT_EQ(sink.body, "data: 1\n\n") << "never from inside PauseBody";
  loop_.RunReady();
  EXPECT_EQ(sink.body, "data: 1\n\ndata: 2\n\n");
  stream->End();
  loop_.RunReady();
  EXPECT_EQ(sink.ends, 1);
  EXPECT_TRUE(sink.status.ok());
}

TEST_F(HttpClientTest, DestroyingAnExchangeClosesItsConnection) {
  bool gone = false;
  std::shared_ptr<HttpResponder> stream;
  ServeHttp([&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
    stream = std::move(responder);
    stream->OnPeerGone([&] { gone = true; });
    stream->StartStream(200, {});
    stream->Write("x", nullptr);
  });
  Sink sink;
  std::unique_ptr<HttpExchange> exchange = Post(sink);
  sink.on_body = [&] { exchange.reset(); };  // from inside its own callback
  loop_.RunReady();
  EXPECT_TRUE(gone);
  EXPECT_EQ(sink.ends, 0);
  auto dropped_early = Post(sink);
  dropped_early.reset();
  loop_.RunReady();
  EXPECT_EQ(sink.sendings, 1) << "of the first";
}

TEST_F(HttpClientTest, ReadsAnswersHoweverTheyAreFramed) {
  Sink sized, chunked, until_close, interim, empty;
  Exchange(sized, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false);
  EXPECT_EQ(sized.body, "abc");
  Exchange(chunked,
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
           true);
  EXPECT_EQ(chunked.body, "abc");
  EXPECT_EQ(chunked.head.content_length, std::nullopt);
  Exchange(until_close, "HTTP/1.1 200 OK\r\n\r\nabc", true);
  EXPECT_EQ(until_close.body, "abc");
  Exchange(interim,
           "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 404 Not "
           "Found\r\nContent-Length: 3\r\n\r\nabc",
           true);
  EXPECT_EQ(interim.head.status, 404);
  EXPECT_EQ(interim.body, "abc");
  Exchange(empty, "HTTP/1.1 204 No Content\r\n\r\n", true);
  EXPECT_EQ(empty.body, "");
  for (const Sink* sink : {&sized, &chunked, &until_close, &interim, &empty}) {
    EXPECT_EQ(sink->ends, 1);
    EXPECT_TRUE(sink->status.ok()) << sink->status;
    EXPECT_TRUE(sink->reached);
  }
}

TEST_F(HttpClientTest, ReportsBrokenAnswers) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "broke off after 3 bytes"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "broke off after 3"},
      {"HTTP/1.1 200 OK\r\nConte", "gave no answer to POST /mcp"},
      {"", "it may have acted on it"},
      {"SSH-2.0-x\r\n\r\n", "malformed answer"},
      {"HTTP/1.1 000 None\r\nContent-Length: 1\r\n\r\n1", "malformed answer: bad status"},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'x'), "malformed answer: header limit"},
  };
  for (const auto& [answer, message] : cases) {
    Sink sink;
    Exchange(sink, answer, true);
    EXPECT_EQ(sink.ends, 1) << answer;
    EXPECT_EQ(sink.status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(sink.status.message()), HasSubstr(message));
    EXPECT_TRUE(sink.reached);
  }
}

TEST_F(HttpClientTest, ReportsThatNothingWasReachedWhenNoConnectionOpens) {
  Sink refused;
  auto first = Post(refused);
  loop_.RunReady();
  EXPECT_EQ(refused.ends, 1);
  EXPECT_EQ(refused.sendings, 0);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("dcc:8765: connection refused"));
  EXPECT_FALSE(refused.reached);

  network_.HangConnects(true);
  Sink hung;
  auto second = Post(hung);
  loop_.RunFor(absl::Milliseconds(2900));
  EXPECT_EQ(hung.ends, 0);
  loop_.RunFor(absl::Milliseconds(200));
  EXPECT_EQ(hung.ends, 1);
  EXPECT_THAT(std::string(hung.status.message()), HasSubstr("within 3 s"));
  EXPECT_FALSE(hung.reached);
}

TEST_F(HttpClientTest, TakesAFreshConnectionWhenTheIdleOneWasClosed) {
  Sink first, second;
  Exchange(first, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false);
  ASSERT_TRUE(first.status.ok());
  // Broken in the very moment of the next request: nothing of it is taken.
  auto exchange = Post(second);
  network_.Break();
  loop_.RunReady();
  EXPECT_EQ(second.ends, 0);
  ASSERT_EQ(servers_.size(), 2u);
  EXPECT_EQ(second.sendings, 1);
  servers_[1]->Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  loop_.RunReady();
  EXPECT_EQ(second.body, "ok");
  EXPECT_TRUE(second.status.ok());
  // Closed while idle: seen at once, the next request opens another.
  servers_[1]->Leave();
  loop_.RunReady();
  Sink third;
  auto last = Post(third);
  loop_.RunReady();
  EXPECT_EQ(servers_.size(), 3u);
}

TEST_F(HttpClientTest, NeverSendsTwice) {
  Sink first, second;
  Exchange(first, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false);
  auto exchange = Post(second);
  loop_.RunReady();  // on the kept-alive connection
  ASSERT_EQ(servers_.size(), 1u);
  servers_[0]->Leave();
  loop_.RunReady();
  EXPECT_EQ(second.ends, 1);
  EXPECT_EQ(second.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(second.reached);
  EXPECT_EQ(network_.connects(), 1u);
}

TEST_F(HttpClientTest, DropsAnIdleConnectionOnWhichTheServerTalks) {
  Sink first, second;
  Exchange(first, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false);
  servers_[0]->Send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
  loop_.RunReady();
  EXPECT_TRUE(servers_[0]->ended());
  auto exchange = Post(second);
  loop_.RunReady();
  EXPECT_EQ(servers_.size(), 2u);
  EXPECT_EQ(second.ends, 0);
}

TEST_F(HttpClientTest, ReadsAnAnswerThatComesBeforeTheUploadEnds) {
  server_ = std::make_unique<HttpServer>(
      loop_, HttpServerLimits{.body_bytes_max = 1000},
      [](HttpRequest, std::shared_ptr<HttpResponder>) { FAIL() << "refused before"; });
  server_->Serve(network_.Listen());
  Sink sink;
  auto exchange = Post(sink, std::string(5'000'000, 'x'));
  loop_.RunReady();
  EXPECT_EQ(sink.ends, 1);
  EXPECT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_EQ(sink.head.status, 413);
}

TEST_F(HttpClientTest, StaysSilentWhenTheServerIsHalfOpen) {
  ServeRaw();
  Sink sink;
  auto exchange = Post(sink);
  loop_.RunReady();
  network_.HalfOpen();
  servers_[0]->Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  loop_.RunFor(absl::Minutes(10));
  EXPECT_EQ(sink.ends, 0) << "deadlines are the caller's";
  exchange.reset();
  loop_.RunReady();
  EXPECT_EQ(sink.ends, 0);
}

TEST_F(HttpClientTest, MayBeDestroyedWithExchangesOpen) {
  ServeRaw();
  Sink sink;
  auto exchange = Post(sink);
  loop_.RunReady();
  client_.reset();
  loop_.RunReady();
  EXPECT_TRUE(servers_[0]->ended());
  EXPECT_EQ(sink.ends, 0);
  exchange->PauseBody(true);
  exchange->PauseBody(false);
}

TEST_F(HttpClientTest, CarriesManyBodiesThroughASlicedAndClumsyNetwork) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    core::SeededRandom random(seed);
    tests::MemoryNetwork sliced(
        loop_, random,
        {.latency = absl::Milliseconds(2), .slice_bytes_max = 300, .window_bytes = 1000});
    HttpServer server(loop_, {}, [](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
      responder->StartStream(200, {});
      for (size_t at = 0; at < request.body.size(); at += 777) {
        responder->Write(request.body.substr(at, 777), nullptr);
      }
      responder->End();
    });
    server.Serve(sliced.Listen());
    HttpClient client(loop_, sliced.MakeConnector(), "dcc", {});
    for (int i = 0; i < 3; ++i) {
      const std::string body = random.Hex(20'000);
      Sink sink;
      auto exchange = client.Send("POST", "/", {}, body, &sink);
      ASSERT_TRUE(loop_.RunUntil([&] { return sink.ends == 1; }, absl::Minutes(1)));
      EXPECT_TRUE(sink.status.ok()) << sink.status;
      EXPECT_EQ(sink.body, body);
    }
    EXPECT_EQ(sliced.connects(), 1u);
  }
}

}  // namespace
}  // namespace callboard::net
