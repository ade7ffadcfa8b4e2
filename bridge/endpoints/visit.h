// One HTTP request to an MCP endpoint on its way to whatever answers it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bridge/http_answer.h"
#include "bridge/routes.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/strings.h"
#include "core/telemetry/trace_context.h"
#include "net/http_server.h"

namespace callboard::bridge {

// On the heap, as messages are views into its body.
struct Visit {
  Route route;
  net::HttpRequest http;
  HttpAnswer answer;
  // What the URL selects to be shown directly, in its one spelling; empty if it says nothing.
  std::string tools;
  bool accepts_events = true;
  core::JsonRpcMessage message;
  std::vector<absl::StatusOr<core::JsonRpcMessage>> batch;

  // Of the request, for errors; empty if there is none.
  std::string raw_id() const { return std::string(message.id); }
  std::string_view HeaderText(std::string_view name) const {
    const std::string* const value = http.Header(name);
    return value == nullptr ? std::string_view() : std::string_view(*value);
  }
  // The one refusal of a bridge that ends; `code` as the request's era has it.
  void RefuseDraining(int code) const {
    answer.RpcError(503, raw_id(), code, "the server is shutting down",
                    R"({"reason":"draining","certainty":"not_started"})", RetryAfter());
  }
  // Fills `message` from the body; false: it is none, which is answered.
  bool ReadMessage() {
    auto read = core::ParseJsonRpc(http.body, /*validate=*/true);
    if (!read.ok()) {
      const bool json = read.status().code() == absl::StatusCode::kFailedPrecondition;
      answer.RpcError(400, {}, json ? core::kInvalidRequest : core::kParseError,
                      core::Message(read.status()));
      return false;
    }
    // Payloads travel as one line. In place, so that the views into the body hold.
    core::FlattenLines(http.body.data(), http.body.size());
    message = *std::move(read);
    return true;
  }
  core::TraceContext trace() const {
    return core::CheckedTraceContext(HeaderText("traceparent"), HeaderText("tracestate"),
                                     HeaderText("baggage"));
  }
};
using VisitPtr = std::shared_ptr<Visit>;

}  // namespace callboard::bridge
