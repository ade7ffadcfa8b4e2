// What a client of HttpServer sees, over memory streams in virtual time.
#include "net/http_server.h"

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

constexpr std::string_view kPost =
    "POST /mcp?x=1 HTTP/1.1\r\nHost: studio\r\nContent-Length: 5\r\n\r\nhello";

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { Restart({}); }

  void Restart(HttpServerLimits limits) {
    server_ = std::make_unique<HttpServer>(
        loop_, limits, [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
          requests_.push_back(request);
          handler_(requests_.back(), std::move(responder));
        });
    server_->Serve(network_.Listen());
  }
  std::unique_ptr<RawPeer> Connect(bool reads = true) {
    return tests::ConnectRaw(loop_, *connector_, reads);
  }
  // Sends on a new connection and returns all that comes back within a second.
  std::string Ask(std::string_view bytes) {
    auto peer = Connect();
    peer->Send(std::string(bytes));
    loop_.RunFor(absl::Seconds(1));
    return peer->received;
  }

  tests::VirtualLoop loop_;
  core::SeededRandom random_{1};
  tests::MemoryNetwork network_{loop_, random_, {}};
  std::unique_ptr<Connector> connector_ = network_.MakeConnector("peer");
  std::vector<HttpRequest> requests_;
  std::function<void(const HttpRequest&, std::shared_ptr<HttpResponder>)> handler_ =
      [](const HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
        responder->Respond(200, {{"Content-Type", "text/plain"}}, "got " + request.body);
      };
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAPostAndKeepsTheConnection) {
  auto peer = Connect();
  peer->Send(std::string(kPost));
  loop_.RunReady();
  const std::string answer =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\ngot hello";
  EXPECT_EQ(peer->received, answer);
  peer->Send(std::string(kPost));
  loop_.RunReady();
  EXPECT_EQ(peer->received, answer + answer);
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_EQ(requests_[0].method, "POST");
  EXPECT_EQ(requests_[0].path(), "/mcp");
  EXPECT_EQ(requests_[0].query(), "x=1");
  EXPECT_EQ(*requests_[0].Header("hOsT"), "studio");
  EXPECT_EQ(requests_[0].Header("Origin"), nullptr);
  EXPECT_THAT(requests_[0].peer, StartsWith("peer:"));
  EXPECT_EQ(network_.connects(), 1u);
}

TEST_F(HttpServerTest, UnderstandsARequestSplitAtEveryPosition) {
  const std::string chunked =
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nT: "
      "v\r\n\r\n";
  const std::string empty = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (const auto& [text, body] : {std::pair{std::string(kPost), "got hello"},
                                   std::pair{chunked, "got hello"}, std::pair{empty, "got "}}) {
    for (size_t at = 0; at <= text.size(); ++at) {
      auto peer = Connect();
      peer->Send(text.substr(0, at));
      loop_.RunReady();
      peer->Send(text.substr(at));
      loop_.RunReady();
      ASSERT_THAT(peer->received, EndsWith(body)) << "split at " << at;
    }
  }
  for (const auto& [text, body] : {std::pair{std::string(kPost), "got hello"},
                                   std::pair{chunked, "got hello"}, std::pair{empty, "got "}}) {
    auto peer = Connect();
    for (char c : text) {
      peer->Send(std::string(1, c));
      loop_.RunReady();
    }
    EXPECT_THAT(peer->received, EndsWith(body)) << "byte by byte";
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  std::vector<std::shared_ptr<HttpResponder>> waiting;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    waiting.push_back(std::move(responder));
  };
  auto peer = Connect();
  peer->Send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n");
  loop_.RunReady();
  ASSERT_EQ(waiting.size(), 1u) << "one request at a time";
  waiting[0]->Respond(200, {}, "first");
  loop_.RunReady();
  ASSERT_EQ(waiting.size(), 2u);
  waiting[1]->Respond(200, {}, "second");
  loop_.RunReady();
  EXPECT_EQ(peer->received,
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond");
}

TEST_F(HttpServerTest, RefusesWhatItCannotRead) {
  EXPECT_THAT(Ask("BLAH\r\n\r\n"), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  const std::string both =
      Ask("POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  EXPECT_THAT(both, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(both, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(both, HasSubstr("{\"error\":\"malformed HTTP request: "));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(
      Ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(70'000, 'x')),
      StartsWith("HTTP/1.1 400 "));
  EXPECT_TRUE(requests_.empty());
  loop_.RunFor(absl::Seconds(5));
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HttpServerTest, Answers431WhenTheHeadIsTooLong) {
  const std::string many = [] {
    std::string text = "GET / HTTP/1.1\r\n";
    while (text.size() < 40'000) text += "A: bbbbbbbbbbbbbbbbbbbbbbb\r\n";
    return text;
  }();
  for (const std::string& request : {"GET / HTTP/1.1\r\nX: " + std::string(40'000, 'x'),
                                     "GET /" + std::string(40'000, 'x'), many, many + "\r\n"}) {
    const std::string answer = Ask(request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
    EXPECT_THAT(answer, HasSubstr("longer than 32768 bytes"));
  }
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nX: " + std::string(30'000, 'x') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, Answers413ForABodyOverTheLimit) {
  Restart({.body_bytes_max = 1000});
  const std::string announced = Ask("POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_THAT(announced, StartsWith("HTTP/1.1 413 Content Too Large\r\n"));
  EXPECT_THAT(announced, HasSubstr("(1001 bytes) is larger than the limit of 1000 bytes"));
  const std::string chunked = Ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n");
  EXPECT_THAT(chunked, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'b')),
              StartsWith("HTTP/1.1 200 "));
  // A peer that goes on sending still gets its answer.
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nContent-Length: 900000\r\n\r\n" + std::string(900'000, 'b')),
              StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, Answers408WhenTheHeadOrTheBodyStalls) {
  auto slow = Connect();
  const std::string head = "GET / HTTP/1.1\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyy";
  for (char c : head) {  // a byte a second does not help
    slow->Send(std::string(1, c));
    loop_.RunFor(absl::Seconds(1));
    if (!slow->received.empty()) break;
  }
  EXPECT_THAT(slow->received, StartsWith("HTTP/1.1 408 Request Timeout\r\n"));
  EXPECT_THAT(slow->received, HasSubstr("within 15 s"));
  loop_.RunFor(absl::Seconds(3));
  EXPECT_EQ(slow->end.code(), absl::StatusCode::kOutOfRange);

  auto stalled = Connect();
  stalled->Send("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na");
  loop_.RunFor(absl::Seconds(50));
  stalled->Send("b");
  loop_.RunFor(absl::Seconds(50));
  EXPECT_EQ(stalled->received, "");
  loop_.RunFor(absl::Seconds(11));
  EXPECT_THAT(stalled->received, StartsWith("HTTP/1.1 408 "));
  EXPECT_TRUE(requests_.empty());
}

TEST_F(HttpServerTest, ClosesIdleConnectionsOnly) {
  auto idle = Connect();
  auto busy = Connect();
  for (int minute = 0; minute < 3; ++minute) {
    busy->Send(std::string(kPost));
    loop_.RunFor(absl::Seconds(60));
  }
  EXPECT_EQ(idle->end.code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(busy->ended());
  EXPECT_EQ(server_->connections(), 1u);
  loop_.RunFor(absl::Seconds(76));
  EXPECT_TRUE(busy->ended());
}

TEST_F(HttpServerTest, HonoursHeadAndOldVersionsAndClose) {
  EXPECT_EQ(Ask("HEAD / HTTP/1.1\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n");
  auto old = Connect();
  old->Send("GET / HTTP/1.0\r\n\r\n");
  loop_.RunReady();
  EXPECT_THAT(old->received, HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(old->ended());
  auto kept = Connect();
  kept->Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  loop_.RunReady();
  EXPECT_THAT(kept->received, HasSubstr("Connection: keep-alive\r\n"));
  EXPECT_FALSE(kept->ended());
  auto closing = Connect();
  closing->Send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  loop_.RunReady();
  EXPECT_THAT(closing->received, EndsWith("got "));
  EXPECT_TRUE(closing->ended());
  handler_ = [](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    responder->Respond(204, {}, "");
  };
  EXPECT_EQ(Ask("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 204 No Content\r\n\r\n");
}

TEST_F(HttpServerTest, AnswersExpectContinue) {
  auto peer = Connect();
  peer->Send("POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  loop_.RunReady();
  EXPECT_EQ(peer->received, "HTTP/1.1 100 Continue\r\n\r\n");
  peer->Send("hello");
  loop_.RunReady();
  EXPECT_THAT(peer->received, StartsWith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, KeepsForgedHeadersOut) {
  handler_ = [](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    responder->Respond(200, {{"X", "a\r\nSet-Cookie: b"}}, "");
  };
  EXPECT_THAT(Ask(kPost), HasSubstr("X: a  Set-Cookie: b\r\n"));
}

TEST_F(HttpServerTest, StreamsChunksAndServesTheNextRequest) {
  std::shared_ptr<HttpResponder> stream;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    stream = std::move(responder);
    stream->StartStream(200, {{"Content-Type", "text/event-stream"}});
  };
  auto peer = Connect();
  peer->Send(std::string(kPost));
  loop_.RunReady();
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(peer->received, head) << "the head goes out before the first event";
  int written = 0;
  stream->Write("data: 1\n\n", [&] { ++written; });
  EXPECT_EQ(written, 0);
  loop_.RunReady();
  EXPECT_EQ(written, 1);
  EXPECT_EQ(peer->received, head + "9\r\ndata: 1\n\n\r\n");
  stream->Write("data: 2\n\n", nullptr);
  stream->End();
  loop_.RunReady();
  EXPECT_EQ(peer->received, head + "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  EXPECT_FALSE(peer->ended());
  peer->Send(std::string(kPost));
  loop_.RunReady();
  EXPECT_EQ(requests_.size(), 2u);
}

TEST_F(HttpServerTest, StreamsWithContentLengthAndUntilCloseForOldClients) {
  handler_ = [](const HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
    std::optional<uint64_t> length;
    if (request.path() == "/sized") length = 6;
    responder->StartStream(200, {}, length);
    responder->Write("abc", nullptr);
    responder->Write("def", nullptr);
    responder->End();
  };
  EXPECT_EQ(Ask("GET /sized HTTP/1.1\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef");
  EXPECT_EQ(Ask("GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcdef");
}

TEST_F(HttpServerTest, TellsAStreamThatItsClientLeft) {
  std::shared_ptr<HttpResponder> stream;
  int gone = 0;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    stream = std::move(responder);
    stream->OnPeerGone([&] { ++gone; });
    stream->StartStream(200, {});
  };
  auto peer = Connect();
  peer->Send(std::string(kPost));
  loop_.RunReady();
  EXPECT_EQ(gone, 0);
  peer->Leave();
  loop_.RunReady();
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(stream->peer_loss(), PeerLoss::kClosed);
  EXPECT_EQ(server_->connections(), 0u);
  stream->Write("late", [] { FAIL() << "nothing was written"; });
  stream->End();
  loop_.RunReady();
  EXPECT_EQ(gone, 1);
}

TEST_F(HttpServerTest, TellsAStreamOfAResetAndOfAClientThatLeftBeforeItBegan) {
  std::vector<std::shared_ptr<HttpResponder>> streams;
  int gone = 0;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    responder->OnPeerGone([&] { ++gone; });
    streams.push_back(std::move(responder));
  };
  auto reset = Connect();
  auto early = Connect();
  reset->Send(std::string(kPost));
  early->Send(std::string(kPost));
  loop_.RunReady();
  ASSERT_EQ(streams.size(), 2u);
  early->Leave();
  loop_.RunReady();
  EXPECT_EQ(gone, 0) << "it may only have ended its own side";
  streams[1]->StartStream(200, {});
  EXPECT_EQ(gone, 0) << "never from inside";
  loop_.RunReady();
  EXPECT_EQ(gone, 1);
  network_.Break();
  loop_.RunReady();
  EXPECT_EQ(gone, 2);
  bool told_late = false;
  streams[0]->OnPeerGone([&] { told_late = true; });
  loop_.RunReady();
  EXPECT_TRUE(told_late);
}

TEST_F(HttpServerTest, RunsWrittenCallbacksAlsoWhenHeadHidesTheBody) {
  int written = 0;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    responder->StartStream(200, {}, 3);
    responder->Write("abc", [&] { ++written; });
    responder->End();
  };
  EXPECT_EQ(Ask("HEAD / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(written, 1);
}

TEST_F(HttpServerTest, BreaksAStreamThatEndsShortOfItsLength) {
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    responder->StartStream(200, {}, 10);
    responder->Write("abc", nullptr);
    responder->End();
  };
  auto peer = Connect();
  peer->Send(std::string(kPost));
  loop_.RunReady();
  EXPECT_TRUE(peer->ended());
}

TEST_F(HttpServerTest, TellsAStreamThatItsClientStalls) {
  std::shared_ptr<HttpResponder> stream;
  bool gone = false;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    stream = std::move(responder);
    stream->OnPeerGone([&] { gone = true; });
    stream->StartStream(200, {});
  };
  auto peer = Connect(/*reads=*/false);
  peer->Send(std::string(kPost));
  loop_.RunReady();
  for (int i = 0; i < 10; ++i) stream->Write(std::string(100'000, 'x'), nullptr);
  loop_.RunFor(absl::Seconds(10));
  EXPECT_GE(stream->unsent_bytes(), 400'000u);
  EXPECT_FALSE(gone);
  loop_.RunFor(absl::Seconds(31));
  EXPECT_TRUE(gone);
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HttpServerTest, TellsAStreamHowItsClientWasLost) {
  std::shared_ptr<HttpResponder> stream;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    stream = std::move(responder);
    stream->StartStream(200, {});
  };
  auto stalled = Connect();
  stalled->Send(std::string(kPost));
  loop_.RunReady();
  network_.Clog(true);
  stream->Write("never taken", nullptr);
  loop_.RunFor(absl::Seconds(21));
  EXPECT_EQ(stream->peer_loss(), PeerLoss::kStalled);
  network_.Clog(false);
  auto reset = Connect();
  reset->Send(std::string(kPost));
  loop_.RunReady();
  network_.Break();
  loop_.RunReady();
  EXPECT_EQ(stream->peer_loss(), PeerLoss::kClosed);
}

TEST_F(HttpServerTest, AbortBreaksTheStreamAndADroppedResponderClosesIt) {
  std::shared_ptr<HttpResponder> stream;
  handler_ = [&](const HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
    if (request.path() == "/drop") return;
    stream = std::move(responder);
    stream->StartStream(200, {});
  };
  auto peer = Connect();
  peer->Send(std::string(kPost));
  loop_.RunReady();
  stream->Write("part", nullptr);
  loop_.RunReady();
  stream->Abort();
  loop_.RunReady();
  EXPECT_TRUE(peer->ended());
  EXPECT_THAT(peer->received, EndsWith("4\r\npart\r\n"));
  EXPECT_EQ(stream->peer_loss(), PeerLoss::kNone);
  auto dropped = Connect();
  dropped->Send("GET /drop HTTP/1.1\r\n\r\n");
  loop_.RunReady();
  EXPECT_EQ(dropped->received, "");
  EXPECT_TRUE(dropped->ended());
}

TEST_F(HttpServerTest, DrainClosesIdleConnectionsAndFinishesTheOthers) {
  std::shared_ptr<HttpResponder> open;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    open = std::move(responder);
  };
  auto idle = Connect();
  auto busy = Connect();
  busy->Send(std::string(kPost));
  loop_.RunReady();
  server_->Drain();
  loop_.RunReady();
  EXPECT_TRUE(idle->ended());
  EXPECT_FALSE(busy->ended());
  EXPECT_EQ(Connect(), nullptr) << "nobody listens any more";
  open->Respond(200, {}, "done");
  loop_.RunReady();
  EXPECT_THAT(busy->received, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(busy->received, EndsWith("done"));
  EXPECT_TRUE(busy->ended());
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HttpServerTest, ForgetsAClientThatLeavesDuringItsUpload) {
  auto peer = Connect();
  peer->Send("POST / HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + std::string(1000, 'b'));
  loop_.RunReady();
  EXPECT_EQ(server_->connections(), 1u);
  peer->Leave();
  loop_.RunReady();
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(HttpServerTest, ClosesConnectionsBeyondItsLimit) {
  Restart({.connections_max = 2});
  auto first = Connect();
  auto second = Connect();
  auto third = Connect();
  loop_.RunReady();
  EXPECT_FALSE(first->ended());
  EXPECT_FALSE(second->ended());
  EXPECT_TRUE(third->ended());
  EXPECT_EQ(server_->connections_refused(), 1u);
}

TEST_F(HttpServerTest, MayBeDestroyedFromItsHandlerAndWithOpenStreams) {
  std::shared_ptr<HttpResponder> kept;
  handler_ = [&](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    kept = std::move(responder);
    kept->OnPeerGone([] { FAIL() << "the server went, not the peer"; });
    kept->StartStream(200, {});
    server_.reset();
    kept->Write("late", nullptr);
  };
  auto peer = Connect();
  peer->Send(std::string(kPost));
  loop_.RunReady();
  EXPECT_TRUE(peer->ended());
  EXPECT_EQ(kept->peer_loss(), PeerLoss::kNone);
  EXPECT_EQ(kept->unsent_bytes(), 0u);
}

TEST_F(HttpServerTest, GivesTheSameAnswerHoweverTheNetworkSlices) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    core::SeededRandom random(seed);
    tests::MemoryNetwork sliced(loop_, random,
                                {.latency = absl::Milliseconds(3), .slice_bytes_max = 7});
    server_->Serve(sliced.Listen());
    auto connector = sliced.MakeConnector();
    std::unique_ptr<RawPeer> peer;
    connector->Connect([&](absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
      peer = std::make_unique<RawPeer>(*std::move(stream));
    });
    loop_.RunFor(absl::Milliseconds(10));
    peer->Send(std::string(kPost) + std::string(kPost));
    loop_.RunFor(absl::Milliseconds(100));
    EXPECT_EQ(peer->received,
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\ngot hello"
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\ngot hello");
  }
}

}  // namespace
}  // namespace callboard::net
