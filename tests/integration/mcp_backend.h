// A small stateless MCP server over HTTP, as a backend for tests of the whole path.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "net/http_server.h"
#include "net/tcp.h"
#include "tests/integration/loop_thread.h"

namespace callboard::tests {

// Tools: echo {text}; big {bytes}, an answer of that many bytes of text; slow {ms}, which counts
// its runs. Lives on a loop thread of its own.
class McpBackend {
 public:
  McpBackend() {
    thread_.Call([this] {
      auto listener = net::ListenTcp(thread_.loop(), "127.0.0.1", 0);
      port_ = listener->port;
      server_ = std::make_unique<net::HttpServer>(
          thread_.loop(), net::HttpServerLimits{},
          [this](net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
            Answer(request, std::move(responder));
          });
      server_->Serve(std::move(listener->listener));
    });
  }
  ~McpBackend() {
    thread_.Call([this] {
      timers_.clear();
      server_.reset();
    });
  }

  uint16_t port() const { return port_; }
  int runs() const { return runs_; }

 private:
  static constexpr std::string_view kTools =
      R"({"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}},)"
      R"("annotations":{"readOnlyHint":true}},{"name":"big","inputSchema":{"type":"object"}},)"
      R"({"name":"slow","inputSchema":{"type":"object"}}]})";

  void Answer(const net::HttpRequest& request, std::shared_ptr<net::HttpResponder> responder) {
    if (request.method != "POST") return responder->Respond(200, {}, "{}");
    const auto message = core::ParseJsonRpc(request.body, true);
    if (!message.ok()) return responder->Respond(400, {}, "");
    if (message->kind == core::JsonRpcMessage::Kind::kNotification) {
      return responder->Respond(202, {}, "");
    }
    const std::string id(message->id);
    const auto reply = [responder, id](std::string_view result) {
      responder->Respond(200, {{"Content-Type", "application/json"}}, core::MakeResult(id, result));
    };
    if (message->method == "initialize") {
      return reply(
          R"({"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}})");
    }
    if (message->method == "tools/list") return reply(kTools);
    if (message->method != "tools/call") return reply("{}");
    const std::string name = core::FindString(message->params, "name").value_or("");
    const std::string arguments(core::FindMember(message->params, "arguments").value_or("{}"));
    const auto text_result = [](std::string_view text) {
      return R"({"content":[{"type":"text","text":)" + core::QuoteJson(text) + "}]}";
    };
    if (name == "echo") {
      return reply(text_result(core::FindString(arguments, "text").value_or("")));
    }
    if (name == "big") {
      const auto bytes = core::FindInteger(arguments, "bytes").value_or(0);
      std::string text(static_cast<size_t>(bytes), 'x');
      for (size_t i = 0; i < text.size(); i += 97) text[i] = static_cast<char>('a' + i % 23);
      return reply(text_result(text));
    }
    ++runs_;
    const auto ms = core::FindInteger(arguments, "ms").value_or(0);
    timers_.push_back(thread_.loop().After(
        absl::Milliseconds(ms), [reply, text_result] { reply(text_result("slow is done")); }));
  }

  LoopThread thread_;
  uint16_t port_ = 0;
  std::atomic<int> runs_{0};
  std::unique_ptr<net::HttpServer> server_;
  std::vector<core::Timer> timers_;
};

}  // namespace callboard::tests
