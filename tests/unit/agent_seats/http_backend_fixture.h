// An HttpBackend before a real HTTP server over streams in memory, and a record of what was told.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend_agent/backends/http_backend.h"
#include "core/runtime/strings.h"
#include "net/http_server.h"
#include "tests/support/memory_spool.h"
#include "tests/support/memory_stream.h"
#include "tests/support/virtual_loop.h"

namespace callboard::agent {

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
    backend = std::make_unique<HttpBackend>(loop, random, spool, network.MakeConnector(), &watcher,
                                            config);
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
  std::unique_ptr<BackendExchange> Post(uint64_t id, const core::TraceContext& trace = {}) {
    auto exchange = backend->Send(
        id, R"({"jsonrpc":"2.0","id":)" + std::to_string(id) + R"(,"method":"x"})", true, trace);
    loop.RunFor(absl::Milliseconds(10));
    return exchange;
  }
  static net::HeaderList Json() { return {{"Content-Type", "application/json"}}; }

  void OnUp() override { told.push_back("up"); }
  void OnRejoined() override { told.push_back("rejoined"); }
  void OnSessionForgotten() override { told.push_back("session forgotten"); }
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

}  // namespace callboard::agent
