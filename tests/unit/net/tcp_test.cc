// HTTP and raw streams over real loopback TCP.
#include "net/tcp.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>

#include "core/runtime/asio_event_loop.h"
#include "core/runtime/random.h"
#include "net/http_client.h"
#include "net/http_server.h"

namespace callboard::net {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

struct StoppingSink final : HttpResponseSink {
  explicit StoppingSink(core::AsioEventLoop& event_loop) : loop(event_loop) {}
  void OnHead(HttpResponseHead response_head) override { head = std::move(response_head); }
  void OnBody(std::string_view piece) override { body.append(piece); }
  void OnEnd(absl::Status end_status, bool end_reached) override {
    status = std::move(end_status);
    reached = end_reached;
    loop.Stop();
  }
  core::AsioEventLoop& loop;
  HttpResponseHead head;
  std::string body;
  absl::Status status = absl::UnknownError("not ended");
  bool reached = false;
};

class TcpTest : public testing::Test {
 protected:
  void Serve(HttpServerLimits limits, HttpServer::Handler handler) {
    auto tcp = ListenTcp(loop_, "127.0.0.1", 0);
    ASSERT_TRUE(tcp.ok()) << tcp.status();
    port_ = tcp->port;
    server_ = std::make_unique<HttpServer>(loop_, limits, std::move(handler));
    server_->Serve(std::move(tcp->listener));
  }
  // Runs until Stop(), at most 30 s.
  void Run() {
    bool late = false;
    auto limit = loop_.After(absl::Seconds(30), [&] {
      late = true;
      loop_.Stop();
    });
    loop_.Run();
    EXPECT_FALSE(late) << "not finished within 30 s";
  }

  core::AsioEventLoop loop_;
  core::SeededRandom random_{7};
  uint16_t port_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(TcpTest, Carries50MegabytesBothWays) {
  const std::string block = random_.Bytes(1024 * 1024 - 1);
  std::string upload;
  while (upload.size() < 50'000'000) upload += block;
  // Answers with the upload itself, in pieces, one outstanding at a time.
  struct Echo {
    std::string body;
    size_t at = 0;
    std::shared_ptr<HttpResponder> responder;
    void Next() {
      if (at == body.size()) return responder->End();
      std::string piece = body.substr(at, 100'000);
      at += piece.size();
      responder->Write(std::move(piece), [this] { Next(); });
    }
  } echo;
  Serve({.body_bytes_max = 64 * 1024 * 1024},
        [&](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
          echo.body = std::move(request.body);
          echo.responder = std::move(responder);
          echo.responder->StartStream(200, {}, echo.body.size());
          echo.Next();
        });
  HttpClient client(loop_, MakeTcpConnector(loop_, "localhost", port_), "localhost", {});
  StoppingSink sink(loop_);
  auto exchange = client.Send("POST", "/", {}, upload, &sink);
  Run();
  EXPECT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_EQ(sink.head.content_length, upload.size());
  EXPECT_TRUE(sink.body == upload);
}

TEST_F(TcpTest, SendsALargePieceAsOneChunk) {
  const std::string large = random_.Bytes(20'000'000);
  Serve({}, [&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
    responder->StartStream(200, {});
    responder->Write(large, nullptr);
    responder->End();
  });
  HttpClient client(loop_, MakeTcpConnector(loop_, "127.0.0.1", port_), "localhost", {});
  StoppingSink sink(loop_);
  auto exchange = client.Send("GET", "/", {}, "", &sink);
  Run();
  EXPECT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_TRUE(sink.body == large);
}

TEST_F(TcpTest, TheKernelHoldsLittleForAPeerThatDoesNotRead) {
  // A write() to loopback would swallow megabytes: the reader looked quick, and memory was gone.
  std::shared_ptr<HttpResponder> stream;
  size_t taken = 0;
  std::function<void()> next = [&] {
    taken += 16 * 1024;
    stream->Write(std::string(16 * 1024, 'x'), [&] { next(); });
  };
  Serve({}, [&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
    stream = std::move(responder);
    stream->StartStream(200, {});
    next();
  });
  const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int receive_bytes = 16 * 1024;
  setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(peer, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(send(peer, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  auto later = loop_.After(absl::Milliseconds(500), [&] { loop_.Stop(); });
  Run();
  EXPECT_GT(taken, 64u * 1024);
  EXPECT_LT(taken, 256u * 1024);
  close(peer);
}

TEST_F(TcpTest, ReportsARefusedConnect) {
  auto tcp = ListenTcp(loop_, "127.0.0.1", 0);
  ASSERT_TRUE(tcp.ok());
  const uint16_t port = tcp->port;
  tcp->listener.reset();
  HttpClient client(loop_, MakeTcpConnector(loop_, "127.0.0.1", port), "dcc", {});
  StoppingSink sink(loop_);
  auto exchange = client.Send("POST", "/", {}, "x", &sink);
  Run();
  EXPECT_EQ(sink.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(sink.status.message()), HasSubstr("Connection refused"));
  EXPECT_FALSE(sink.reached);
}

TEST_F(TcpTest, NamesAPortInUse) {
  auto first = ListenTcp(loop_, "127.0.0.1", 0);
  ASSERT_TRUE(first.ok());
  auto second = ListenTcp(loop_, "127.0.0.1", first->port);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("127.0.0.1:" + std::to_string(first->port)));
  EXPECT_EQ(ListenTcp(loop_, "here", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TcpTest, AnswersAClientThatEndedItsOwnSide) {
  std::shared_ptr<HttpResponder> open;
  core::Timer answer;
  Serve({}, [&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
    open = std::move(responder);
    answer = loop_.After(absl::Milliseconds(20), [&] {
      open->Respond(200, {}, "still here");
      answer = loop_.After(absl::Milliseconds(20), [&] { loop_.Stop(); });
    });
  });
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(send(client, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  shutdown(client, SHUT_WR);
  Run();
  std::string received;
  char buffer[1000];
  for (ssize_t count; (count = recv(client, buffer, sizeof(buffer), 0)) > 0;) {
    received.append(buffer, static_cast<size_t>(count));
  }
  close(client);
  EXPECT_THAT(received, EndsWith("still here"));
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(TcpTest, ClosingAStreamEndsItsOperationsWithCancelled) {
  std::unique_ptr<ByteStream> accepted;
  auto tcp = ListenTcp(loop_, "127.0.0.1", 0);
  ASSERT_TRUE(tcp.ok());
  tcp->listener->Start([&](std::unique_ptr<ByteStream> stream) { accepted = std::move(stream); });
  auto connector = MakeTcpConnector(loop_, "127.0.0.1", tcp->port);
  std::unique_ptr<ByteStream> connected;
  char buffer[10];
  absl::Status read;
  connector->Connect([&](absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
    connected = *std::move(stream);
    connected->Read(buffer, [&](absl::StatusOr<size_t> count) {
      read = count.status();
      loop_.Stop();
    });
    connected->Close();
    EXPECT_TRUE(read.ok()) << "never from inside";
  });
  Run();
  EXPECT_EQ(read.code(), absl::StatusCode::kCancelled);
}

TEST_F(TcpTest, AnswersTenThousandRequestsOnOneConnection) {
  Serve({}, [](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    responder->Respond(200, {}, std::move(request.body));
  });
  struct Loop final : HttpResponseSink {
    void OnHead(HttpResponseHead) override {}
    void OnBody(std::string_view) override {}
    void OnEnd(absl::Status status, bool) override {
      ASSERT_TRUE(status.ok()) << status;
      if (--left == 0) return loop->Stop();
      loop->Post([this] { Next(); });
    }
    void Next() { exchange = client->Send("POST", "/", {}, "small", this); }
    int left = 10'000;
    core::AsioEventLoop* loop;
    HttpClient* client;
    std::unique_ptr<HttpExchange> exchange;
  } sink;
  HttpClient client(loop_, MakeTcpConnector(loop_, "127.0.0.1", port_), "localhost", {});
  sink.loop = &loop_;
  sink.client = &client;
  sink.Next();
  const absl::Time start = loop_.Now();
  Run();
  RecordProperty("micros_per_request",
                 static_cast<int>(absl::ToInt64Microseconds(loop_.Now() - start) / 10'000));
  EXPECT_EQ(sink.left, 0);
  EXPECT_EQ(server_->connections(), 1u);
  sink.exchange.reset();
}

}  // namespace
}  // namespace callboard::net
