// Tests of the stdio face's HTTP, before a real HTTP server over streams in memory.
#include "apps/stdio/http_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/random.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"
#include "net/http_server.h"
#include "tests/support/memory_stream.h"
#include "tests/support/virtual_loop.h"

namespace callboard::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = McpTransport::Kind;

class TransportTest : public testing::Test, public AnswerSink {
 protected:
  using Responder = std::shared_ptr<net::HttpResponder>;

  void OnHead(const AnswerHead& head) override {
    told.push_back(fmt::format("head {} {}{}", head.http_status, head.session,
                               head.is_stream ? "stream" : ""));
  }
  void OnEvent(AnswerEvent event) override {
    told.push_back(fmt::format("event '{}' {}{}", event.id, event.text,
                               event.retry ? " " + absl::FormatDuration(*event.retry) : ""));
    if (drop_at_event) exchange.reset();
  }
  void OnEnd(AnswerEnd end) override {
    told.push_back(fmt::format("end {} {}{} {}", end.http_status,
                               end.status.ok() ? "OK" : core::Message(end.status),
                               end.reached ? "" : " unreached", end.refusal));
  }
  void Stream(std::string bytes) {
    responder->Write(std::move(bytes), nullptr);
    Run();
  }
  void Run(absl::Duration time = absl::Milliseconds(10)) { loop.RunFor(time); }
  // A stream of events that the server keeps open.
  void OpenStream() {
    answer = [this](Responder open) {
      responder = std::move(open);
      responder->StartStream(200, {{"Content-Type", "text/event-stream"}});
    };
    exchange = transport.Post({"s1", "2025-11-25"}, Kind::kRelayed, "k", "{}", this);
    Run();
  }

  tests::VirtualLoop loop;
  core::SeededRandom random{1};
  tests::MemoryNetwork network{loop, random, {.slice_bytes_max = 500}};
  std::function<void(Responder)> answer;
  std::vector<net::HttpRequest> requests;
  Responder responder;
  net::HttpServer server{loop, {}, [this](net::HttpRequest request, Responder open) {
                           requests.push_back(std::move(request));
                           answer(std::move(open));
                         }};
  HttpTransport transport{loop,
                          network.MakeConnector(),
                          {"127.0.0.1:9765",
                           "/mcp?tools=a",
                           {{"Authorization", "Bearer t"}},
                           /*message_bytes_max=*/10'000}};
  std::vector<std::string> told;
  bool drop_at_event = false;
  std::unique_ptr<TransportExchange> exchange;

  void SetUp() override { server.Serve(network.Listen()); }
};

TEST_F(TransportTest, PostsAMessageAndHearsADocument) {
  answer = [](const Responder& open) {
    open->Respond(200, {{"Content-Type", "application/json"}, {"Mcp-Session-Id", "s1"}},
                  "{\n  \"a\": 1\r\n}");
  };
  exchange = transport.Post({}, Kind::kOwn, {}, R"({"m":1})", this);
  Run();
  EXPECT_THAT(told, ElementsAre("head 200 s1", "event '' {   \"a\": 1  }", "end 200 OK "));
  const net::HttpRequest& request = requests.at(0);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/mcp?tools=a");
  EXPECT_EQ(request.body, R"({"m":1})");
  EXPECT_EQ(*request.Header("Authorization"), "Bearer t");
  EXPECT_EQ(*request.Header("Accept"), "application/json, text/event-stream");
  EXPECT_EQ(request.Header("Mcp-Session-Id"), nullptr);
  EXPECT_EQ(request.Header("Idempotency-Key"), nullptr);
}

TEST_F(TransportTest, HearsEventsAndTheirPlaces) {
  OpenStream();
  EXPECT_EQ(*requests.at(0).Header("Mcp-Session-Id"), "s1");
  EXPECT_EQ(*requests.at(0).Header("MCP-Protocol-Version"), "2025-11-25");
  EXPECT_EQ(*requests.at(0).Header("Idempotency-Key"), "k");
  Stream("id: 7.1.0\nretry: 3000\ndata: \n\n: ping\n\nid: 7.1.1\nda");
  Stream(
      "ta: {\"x\":1}\n\nevent: x-agent-status\ndata: {}\n\nevent: close\nid: 7.1.2\ndata: bye\n\n");
  responder->End();
  Run();
  EXPECT_THAT(told, ElementsAre("head 200 stream", "event '7.1.0'  3s", "event '7.1.1' {\"x\":1}",
                                "event '' ", "event '7.1.2' ", "end 200 OK "));
}

TEST_F(TransportTest, EndsAStreamWithoutHeartbeats) {
  OpenStream();
  for (int i = 0; i < 10; ++i) {
    Run(absl::Seconds(15));
    Stream(": ping\n\n");
  }
  EXPECT_EQ(told.size(), 1u);
  Run(absl::Seconds(46));
  EXPECT_THAT(told.back(), HasSubstr("nothing came for 45s"));
}

TEST_F(TransportTest, ReadsNothingWhilePaused) {
  OpenStream();
  transport.PauseRelayed(true);
  Stream("id: 1\ndata: {}\n\n");
  Run(absl::Minutes(5));
  EXPECT_EQ(told.size(), 1u) << "and a reader that waits misses no heartbeat";
  transport.PauseRelayed(false);
  Run();
  EXPECT_EQ(told.back(), "event '1' {}");
}

TEST_F(TransportTest, TellsWhatARefusalSays) {
  answer = [](const Responder& open) { open->Respond(403, {}, "not you"); };
  exchange = transport.Listen({"s1", ""}, "0.1.7", this);
  Run();
  EXPECT_EQ(*requests.at(0).Header("Last-Event-ID"), "0.1.7");
  EXPECT_EQ(requests.at(0).method, "GET");
  EXPECT_THAT(told, ElementsAre("head 403 ", "end 403 OK not you"));
}

TEST_F(TransportTest, TellsWhetherAnythingArrived) {
  network.RefuseConnects(true);
  exchange = transport.Delete({"s1", ""}, this);
  Run();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], testing::AllOf(HasSubstr("end 0 "), HasSubstr("unreached")));
  network.RefuseConnects(false);
  OpenStream();
  network.Break();
  Run();
  EXPECT_THAT(told.back(),
              testing::AllOf(HasSubstr("end 200 "), testing::Not(HasSubstr("unreached"))));
}

TEST_F(TransportTest, BoundsOneMessage) {
  OpenStream();
  Stream("data: " + std::string(20'000, 'x'));
  EXPECT_THAT(told.back(), HasSubstr("larger than the limit of 10000 bytes"));
}

TEST_F(TransportTest, MayBeDroppedByWhatItTells) {
  OpenStream();
  drop_at_event = true;
  Stream("data: 1\n\ndata: 2\n\n");
  EXPECT_EQ(told.back(), "event '' 1");
}

}  // namespace
}  // namespace callboard::apps
