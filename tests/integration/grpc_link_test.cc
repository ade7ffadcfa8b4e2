// The real gRPC stream under both ends of a link: order, ends, cancellation, rejection.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend_agent/grpc_link/grpc_dialer.h"
#include "server/rpc/link_service.h"
#include "tests/integration/loop_thread.h"

namespace callboard {
namespace {

using namespace std::chrono_literals;
using tests::LoopThread;

// Records what one end of a link is told; lives on the loop.
template <class Link, class In>
class Recorder final : public Link::Handler {
 public:
  void OnMessage(In message) override {
    messages.push_back(std::move(message));
    if (on_message) on_message();
  }
  void OnWritten() override { ++written; }
  void OnClosed(absl::Status status) override { closed = std::move(status); }

  std::vector<In> messages;
  int written = 0;
  std::optional<absl::Status> closed;
  std::function<void()> on_message;
};

using ServerEnd = Recorder<server::AgentLink, v1::AgentFrame>;
using AgentEnd = Recorder<agent::ControlPlaneLink, v1::ServerFrame>;

class GrpcLinkTest : public testing::Test {
 protected:
  GrpcLinkTest()
      : service_(server_thread_.loop(),
                 [this](std::unique_ptr<server::AgentLink> link, server::PeerIdentity peer) {
                   peer_ = std::move(peer);
                   server_link_ = std::move(link);
                   server_link_->Open(&server_end_);
                 }) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service_.service());
    server_ = builder.BuildAndStart();
    dialer_ = agent::MakeGrpcDialer(agent_thread_.loop(), {});
  }

  ~GrpcLinkTest() override {
    agent_thread_.Call([this] { agent_link_.reset(); });
    server_thread_.Call([this] { server_link_.reset(); });
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + 2s);
    // Reactors that ended have posted to the loops; let those posts run.
    agent_thread_.Call([] {});
    server_thread_.Call([] {});
  }

  void Dial() {
    agent_thread_.Call([this] {
      agent_link_ = dialer_->Dial(fmt::format("127.0.0.1:{}", port_));
      agent_link_->Open(&agent_end_);
    });
  }

  // Asks `condition` on the loop's thread until it holds or the time has passed.
  template <class Fn>
  bool Eventually(LoopThread& thread, Fn condition, std::chrono::seconds time = 5s) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (!thread.Call(condition)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  LoopThread server_thread_;
  LoopThread agent_thread_;
  ServerEnd server_end_;
  AgentEnd agent_end_;
  server::PeerIdentity peer_;
  server::LinkService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<agent::LinkDialer> dialer_;
  std::unique_ptr<server::AgentLink> server_link_;
  std::unique_ptr<agent::ControlPlaneLink> agent_link_;
};

v1::AgentFrame Numbered(uint64_t number) {
  v1::AgentFrame frame;
  frame.set_received(number);
  return frame;
}

TEST_F(GrpcLinkTest, FramesArriveInOrderAndAWriteIsConfirmedToWhoeverAsks) {
  Dial();
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_link_ != nullptr; }));
  for (uint64_t i = 1; i <= 200; ++i) {
    // Either it is over by the time of asking, or OnWritten tells, once.
    const int told = agent_thread_.Call([this] { return agent_end_.written; });
    const bool over = agent_thread_.Call([this, i] {
      agent_link_->Write(Numbered(i));
      return agent_link_->TakeWritten();
    });
    if (over) continue;
    ASSERT_TRUE(Eventually(agent_thread_, [this, told] { return agent_end_.written == told + 1; }));
  }
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_end_.messages.size() == 200; }));
  for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(server_end_.messages[i].received(), i + 1);
  EXPECT_EQ(peer_.transport_agent, "");
  EXPECT_TRUE(peer_.address.starts_with("ipv4:127.0.0.1:")) << peer_.address;
}

TEST_F(GrpcLinkTest, WhoDoesNotAskIsNotWokenByItsWrites) {
  Dial();
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_link_ != nullptr; }));
  agent_thread_.Call([this] { agent_link_->Write(Numbered(1)); });
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_end_.messages.size() == 1; }));
  server_thread_.Call([this] { server_link_->Write(v1::ServerFrame()); });
  ASSERT_TRUE(Eventually(agent_thread_, [this] { return agent_end_.messages.size() == 1; }));
  EXPECT_EQ(agent_thread_.Call([this] { return agent_end_.written; }), 0);
  EXPECT_TRUE(Eventually(agent_thread_, [this] { return agent_link_->TakeWritten(); }));
}

// Writes as the product's owners do: as soon as it knows, from asking or from being told, that the
// former write is over.
class EagerWriter final : public agent::ControlPlaneLink::Handler {
 public:
  EagerWriter(core::EventLoop& loop, uint64_t frames) : loop_(loop), frames_(frames) {}

  void OnMessage(v1::ServerFrame) override {}
  void OnWritten() override {
    if (!writing_) ++stale_;
    writing_ = false;
    Go();
  }
  void OnClosed(absl::Status) override {}

  void Go() {
    if (writing_ && link_->TakeWritten()) writing_ = false;
    if (!writing_ && sent_ < frames_) {
      writing_ = true;
      link_->Write(Numbered(++sent_));
    }
    // Asks again and again, as other events of a busy loop would make it do.
    if (sent_ < frames_) loop_.Post([this] { Go(); });
  }

  agent::ControlPlaneLink* link_ = nullptr;
  int stale_ = 0;
  uint64_t sent_ = 0;

 private:
  core::EventLoop& loop_;
  const uint64_t frames_;
  bool writing_ = false;
};

TEST_F(GrpcLinkTest, AConfirmationThatTheOwnerHasAnticipatedIsNotDelivered) {
  EagerWriter writer(agent_thread_.loop(), 3'000);
  agent_thread_.Call([this, &writer] {
    agent_link_ = dialer_->Dial(fmt::format("127.0.0.1:{}", port_));
    writer.link_ = agent_link_.get();
    agent_link_->Open(&writer);
    writer.Go();
  });
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_end_.messages.size() == 3'000; }));
  for (uint64_t i = 0; i < 3'000; ++i) EXPECT_EQ(server_end_.messages[i].received(), i + 1);
  EXPECT_EQ(agent_thread_.Call([&writer] { return writer.stale_; }), 0);
  agent_thread_.Call([this] { agent_link_.reset(); });
}

TEST_F(GrpcLinkTest, TheServerAnswersOnTheSameStream) {
  Dial();
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_link_ != nullptr; }));
  server_thread_.Call([this] {
    v1::ServerFrame frame;
    frame.add_items()->mutable_welcome()->set_cluster_id("c1");
    server_link_->Write(std::move(frame));
  });
  ASSERT_TRUE(Eventually(agent_thread_, [this] { return agent_end_.messages.size() == 1; }));
  EXPECT_EQ(agent_end_.messages[0].items(0).welcome().cluster_id(), "c1");
}

TEST_F(GrpcLinkTest, ClosingTheServersEndTellsTheAgentWhy) {
  Dial();
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_link_ != nullptr; }));
  server_thread_.Call(
      [this] { server_link_->Close(absl::FailedPreconditionError("identity in use")); });
  ASSERT_TRUE(Eventually(agent_thread_, [this] { return agent_end_.closed.has_value(); }));
  EXPECT_EQ(*agent_end_.closed, absl::FailedPreconditionError("identity in use"));
}

TEST_F(GrpcLinkTest, DestroyingTheAgentsEndIsNoticedByTheServer) {
  Dial();
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_link_ != nullptr; }));
  agent_thread_.Call([this] { agent_link_.reset(); });
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_end_.closed.has_value(); }));
  EXPECT_EQ(server_end_.closed->code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcLinkTest, DialingAPortWithoutAServerFailsWithUnavailable) {
  server_->Shutdown();
  server_.reset();
  Dial();
  ASSERT_TRUE(Eventually(agent_thread_, [this] { return agent_end_.closed.has_value(); }));
  EXPECT_EQ(agent_end_.closed->code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcLinkTest, ALinkDestroyedBeforeItWasOpenedDoesNothing) {
  agent_thread_.Call([this] { dialer_->Dial(fmt::format("127.0.0.1:{}", port_)); });
  EXPECT_FALSE(server_thread_.Call([this] { return server_link_ != nullptr; }));
}

TEST_F(GrpcLinkTest, WritesAfterTheStreamHasEndedAreDropped) {
  Dial();
  ASSERT_TRUE(Eventually(server_thread_, [this] { return server_link_ != nullptr; }));
  server_thread_.Call([this] { server_link_->Close(absl::OkStatus()); });
  ASSERT_TRUE(Eventually(agent_thread_, [this] { return agent_end_.closed.has_value(); }));
  agent_thread_.Call([this] { agent_link_->Write(Numbered(1)); });
  EXPECT_EQ(agent_thread_.Call([this] { return agent_end_.written; }), 0);
}

// The fixture's server has gRPC's own idea of "too many": pings less than five minutes apart.
TEST_F(GrpcLinkTest, FC16_AServerThatComplainsOfPingsIsPingedHalfAsOften) {
  dialer_ = agent::MakeGrpcDialer(agent_thread_.loop(), {.keepalive_interval = absl::Seconds(1)});
  const auto life = [this] {
    agent_thread_.Call([this] {
      agent_link_.reset();
      agent_end_.closed.reset();
    });
    const auto begin = std::chrono::steady_clock::now();
    Dial();
    EXPECT_TRUE(Eventually(agent_thread_, [this] { return agent_end_.closed.has_value(); }, 20s));
    return std::chrono::steady_clock::now() - begin;
  };
  const auto first = life();
  const auto second = life();
  EXPECT_GT(second, first * 3 / 2);
}

}  // namespace
}  // namespace callboard
