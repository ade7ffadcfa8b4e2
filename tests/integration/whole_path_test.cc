// A call through the real parts in one process: HTTP, bridge, control plane, gRPC, agent, HTTP
// backend.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "apps/local_control_plane_client.h"
#include "backend_agent/agent.h"
#include "backend_agent/backends/http_backend.h"
#include "backend_agent/grpc_link/grpc_dialer.h"
#include "backend_agent/mcp_seat.h"
#include "backend_agent/seat_allocator.h"
#include "backend_agent/storage/posix_journal_file.h"
#include "backend_agent/storage/posix_spool.h"
#include "bridge/bridge.h"
#include "core/runtime/offload.h"
#include "core/runtime/random.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/tcp.h"
#include "server/flows/control_plane.h"
#include "server/rpc/grpc_server.h"
#include "server/store/memory_bodies.h"
#include "server/store/memory_store.h"
#include "tests/integration/loop_thread.h"
#include "tests/integration/mcp_backend.h"
#include "tests/support/temporary_folder.h"

namespace callboard {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using tests::LoopThread;

constexpr char kAgentId[] = "0123456789abcdef0123456789abcdef";

// What callboardd is, on a thread of its own.
class Daemon {
 public:
  // Ports 0: free ones.
  Daemon(uint16_t http_port, uint16_t grpc_port) {
    thread_.Call([&] {
      auto& loop = thread_.loop();
      offload_ = core::MakeThreadOffload(loop);
      store_ = std::make_unique<server::MemoryStore>(loop, "cluster");
      plane_ = std::make_unique<server::ControlPlane>(loop, random_, *offload_, *store_, bodies_,
                                                      server::ControlPlaneConfig{"plane", {}, {}});
      client_ = apps::MakeLocalControlPlaneClient(*plane_);
      // Answers are plain on a slow machine too.
      bridge::BridgeConfig config;
      config.open_stream_after = absl::Seconds(20);
      bridge_ = std::make_unique<bridge::Bridge>(loop, random_, *client_, std::move(config));
      http_ = std::make_unique<net::HttpServer>(
          loop, net::HttpServerLimits{},
          [this](net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
            bridge_->Handle(std::move(request), std::move(responder));
          });
      auto listener = net::ListenTcp(loop, "127.0.0.1", http_port);
      if (!listener.ok()) return;
      http_port_ = listener->port;
      http_->Serve(std::move(listener->listener));
    });
    auto grpc = server::GrpcServer::Start(thread_.loop(), *plane_, {"127.0.0.1", grpc_port});
    if (grpc.ok()) grpc_ = *std::move(grpc);
  }

  ~Daemon() {
    // What a kill does to it, in the order that gRPC allows.
    thread_.Call([this] {
      http_.reset();
      bridge_.reset();
    });
    grpc_->Shutdown(absl::ZeroDuration());
    thread_.Call([this] {
      client_.reset();
      plane_.reset();
      store_.reset();
    });
    offload_.reset();
  }

  bool ok() const { return grpc_ != nullptr && http_port_ != 0; }
  uint16_t http_port() const { return http_port_; }
  uint16_t grpc_port() const { return grpc_->port(); }
  size_t seats() {
    return thread_.Call([this] {
      const v1::ListInstancesResponse response = plane_->ListInstances({});
      size_t usable = 0;
      for (const auto& row : response.instances()) {
        usable += row.advice() == "route" && row.tools() > 0;
      }
      return usable;
    });
  }
  server::ControlPlaneGauges gauges() {
    return thread_.Call([this] { return plane_->gauges(); });
  }

 private:
  LoopThread thread_;
  core::SecureRandom random_;
  std::unique_ptr<core::Offload> offload_;
  std::unique_ptr<server::MemoryStore> store_;
  server::MemoryBodies bodies_;
  std::unique_ptr<server::ControlPlane> plane_;
  std::unique_ptr<bridge::ControlPlaneClient> client_;
  std::unique_ptr<bridge::Bridge> bridge_;
  std::unique_ptr<net::HttpServer> http_;
  std::unique_ptr<server::GrpcServer> grpc_;
  uint16_t http_port_ = 0;
};

// What callboard-agent is, serving one HTTP backend.
class AgentProcess {
 public:
  AgentProcess(const std::string& folder, uint16_t grpc_port, uint16_t backend_port) {
    thread_.Call([&] {
      auto& loop = thread_.loop();
      journal_ = *agent::PosixJournalFile::Open(folder + "/journal");
      spool_ = *agent::PosixSpool::Open(folder + "/spool");
      dialer_ = agent::MakeGrpcDialer(loop, {});
      agent::AgentConfig config;
      config.agent_id = kAgentId;
      config.control_planes = {fmt::format("127.0.0.1:{}", grpc_port)};
      agent_ = std::make_unique<agent::Agent>(loop, random_, *dialer_, *journal_, *spool_, config);
      agent_->Recover().IgnoreError();
      agent::HttpBackendConfig backend_config;
      backend_config.url = {"127.0.0.1", backend_port, "/mcp"};
      backend_config.name = "t";
      auto backend = std::make_unique<agent::HttpBackend>(
          loop, random_, *spool_, net::MakeTcpConnector(loop, "127.0.0.1", backend_port), nullptr,
          backend_config);
      agent::SeatDescription description;
      description.seat_id = agent::SeatAllocator::SeatId(kAgentId, "t", "t");
      description.name = "t";
      description.app = "t";
      agent_->AddSeat(std::make_unique<agent::McpSeat>(
          loop, random_, *spool_, agent_->call_observer(), agent_->seat_observer(),
          std::move(backend), std::move(description), [](int64_t) -> uint64_t { return 1; }));
      agent_->Start();
    });
  }

  ~AgentProcess() {
    thread_.Call([this] {
      agent_.reset();
      dialer_.reset();
      spool_.reset();
      journal_.reset();
    });
  }

  agent::AgentGauges gauges() {
    return thread_.Call([this] { return agent_->gauges(); });
  }

 private:
  LoopThread thread_;
  core::SecureRandom random_;
  std::unique_ptr<agent::PosixJournalFile> journal_;
  std::unique_ptr<agent::PosixSpool> spool_;
  std::unique_ptr<agent::LinkDialer> dialer_;
  std::unique_ptr<agent::Agent> agent_;
};

// One HTTP client with a blocking Post.
class Client {
 public:
  explicit Client(uint16_t port) {
    thread_.Call([this, port] {
      client_ = std::make_unique<net::HttpClient>(
          thread_.loop(), net::MakeTcpConnector(thread_.loop(), "127.0.0.1", port),
          fmt::format("127.0.0.1:{}", port), net::HttpClientLimits{});
    });
  }
  ~Client() {
    thread_.Call([this] { client_.reset(); });
  }

  struct Answer final : net::HttpResponseSink {
    void OnHead(net::HttpResponseHead h) override { head = std::move(h); }
    void OnBody(std::string_view piece) override { body.append(piece); }
    void OnEnd(absl::Status s, bool) override {
      status = std::move(s);
      ended.set_value();
    }
    net::HttpResponseHead head;
    std::string body;
    absl::Status status;
    std::promise<void> ended;
    std::unique_ptr<net::HttpExchange> exchange;
  };

  std::unique_ptr<Answer> Begin(std::string body) {
    auto answer = std::make_unique<Answer>();
    thread_.Call([this, &answer, &body] {
      net::HeaderList headers = {{"Content-Type", "application/json"},
                                 {"Accept", "application/json, text/event-stream"}};
      if (!session_.empty()) headers.emplace_back("Mcp-Session-Id", session_);
      answer->exchange =
          client_->Send("POST", "/mcp/t", std::move(headers), std::move(body), answer.get());
    });
    return answer;
  }

  std::unique_ptr<Answer> Finish(std::unique_ptr<Answer> answer) {
    EXPECT_EQ(answer->ended.get_future().wait_for(30s), std::future_status::ready);
    thread_.Call([&answer] { answer->exchange.reset(); });
    return answer;
  }

  std::string Post(std::string body) { return Finish(Begin(std::move(body)))->body; }

  int Initialize() {
    session_.clear();
    auto answer = Finish(Begin(
        R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",)"
        R"("capabilities":{},"clientInfo":{"name":"test","version":"1"}}})"));
    if (const auto* id = answer->head.Header("Mcp-Session-Id")) session_ = *id;
    return answer->head.status;
  }

  static std::string Call(int id, std::string_view tool, std::string_view arguments) {
    return fmt::format(
        R"({{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"{}","arguments":{}}}}})",
        id, tool, arguments);
  }

 private:
  LoopThread thread_;
  std::unique_ptr<net::HttpClient> client_;
  std::string session_;
};

class WholePathTest : public testing::Test {
 protected:
  WholePathTest() {
    daemon_.emplace(uint16_t{0}, uint16_t{0});
    agent_.emplace(folder_.path(), daemon_->grpc_port(), backend_.port());
  }
  ~WholePathTest() override {
    agent_.reset();
    daemon_.reset();
  }

  template <class Fn>
  static bool Eventually(Fn condition, std::chrono::seconds limit = 20s) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }
  bool SeatIsUp() {
    return Eventually([this] { return daemon_->seats() == 1; });
  }

  tests::TemporaryFolder folder_;
  tests::McpBackend backend_;
  std::optional<Daemon> daemon_;
  std::optional<AgentProcess> agent_;
};

TEST_F(WholePathTest, ACallGoesThroughAndIsSettled) {
  ASSERT_TRUE(SeatIsUp());
  Client client(daemon_->http_port());
  ASSERT_EQ(client.Initialize(), 200);
  for (int i = 1; i <= 50; ++i) {
    EXPECT_EQ(
        client.Post(Client::Call(i, "echo", R"({"text":"hello"})")),
        fmt::format(
            R"({{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":"hello"}}]}}}})",
            i));
  }
  EXPECT_TRUE(Eventually([this] { return agent_->gauges().calls == 0; }));
  EXPECT_EQ(daemon_->gauges().open_executions, 0u);
}

TEST_F(WholePathTest, FiveMegabytesArriveByteForByteAndLeaveTheSpoolEmpty) {
  ASSERT_TRUE(SeatIsUp());
  Client client(daemon_->http_port());
  ASSERT_EQ(client.Initialize(), 200);
  std::string expected(5'000'000, 'x');
  for (size_t i = 0; i < expected.size(); i += 97) expected[i] = static_cast<char>('a' + i % 23);
  const std::string body = client.Post(Client::Call(1, "big", R"({"bytes":5000000})"));
  const std::string whole =
      R"({"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":")" + expected +
      R"("}]}})";
  EXPECT_TRUE(body == whole) << body.size() << " bytes, expected " << whole.size();
  EXPECT_TRUE(Eventually([this] { return agent_->gauges().spool_bytes == 0; }));
}

TEST_F(WholePathTest, ARestartedControlPlaneSettlesWhatItFindsAndServesNewSessions) {
  ASSERT_TRUE(SeatIsUp());
  const uint16_t http_port = daemon_->http_port();
  const uint16_t grpc_port = daemon_->grpc_port();
  Client client(http_port);
  ASSERT_EQ(client.Initialize(), 200);
  auto answer = client.Begin(Client::Call(1, "slow", R"({"ms":1500})"));
  ASSERT_TRUE(Eventually([this] { return backend_.runs() == 1; }));

  daemon_.reset();
  EXPECT_FALSE(client.Finish(std::move(answer))->status.ok()) << "the kill breaks the connection";
  daemon_.emplace(http_port, grpc_port);
  ASSERT_TRUE(daemon_->ok()) << "the ports are free again at once";
  EXPECT_THAT(client.Post(Client::Call(2, "echo", "{}")), HasSubstr("-32001"))
      << "the old session is told to initialize again";
  ASSERT_TRUE(SeatIsUp());
  ASSERT_EQ(client.Initialize(), 200);
  EXPECT_THAT(client.Post(Client::Call(3, "echo", R"({"text":"again"})")), HasSubstr("again"));
  EXPECT_TRUE(Eventually([this] { return agent_->gauges().calls == 0; }))
      << "the call of the former control plane is settled";
  EXPECT_EQ(backend_.runs(), 1);
}

TEST_F(WholePathTest, ARestartedAgentTellsThatARunningCallMayHaveRun) {
  ASSERT_TRUE(SeatIsUp());
  Client client(daemon_->http_port());
  ASSERT_EQ(client.Initialize(), 200);
  auto answer = client.Begin(Client::Call(1, "slow", R"({"ms":3000})"));
  ASSERT_TRUE(Eventually([this] { return backend_.runs() == 1; }));
  const uint16_t grpc_port = daemon_->grpc_port();
  agent_.reset();
  agent_.emplace(folder_.path(), grpc_port, backend_.port());
  const std::string body = client.Finish(std::move(answer))->body;
  EXPECT_THAT(body, HasSubstr("\"certainty\":\"unknown\""));
  EXPECT_THAT(body, HasSubstr("agent_restarted"));
  EXPECT_EQ(backend_.runs(), 1) << "it is not run again";
}

}  // namespace
}  // namespace callboard
