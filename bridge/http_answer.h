// The answer to one HTTP request as the bridge gives it: JSON with CORS headers, or a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/mcp/jsonrpc.h"
#include "net/http_server.h"

namespace callboard::bridge {

// What clients are told to wait after a 503.
net::HeaderList RetryAfter();

// A handle; copies answer the same request. Loop thread only.
class HttpAnswer {
 public:
  // `common` goes with every answer (CORS).
  HttpAnswer(std::shared_ptr<net::HttpResponder> responder, net::HeaderList common)
      : responder_(std::move(responder)), common_(std::move(common)) {}

  // From now on answers of status 200 that would be JSON go out as an event stream of one event:
  // for clients that accept nothing else.
  void AcceptOnlyEvents() { only_events_ = true; }
  bool accepts_only_events() const { return only_events_; }

  // The request is of revision 2026-07-28, in which -32000 and its like mean nothing.
  void UseModernCodes() { modern_codes_ = true; }
  // What says that the fault is not the client's.
  int server_error() const { return modern_codes_ ? core::kInternalError : core::kServerError; }
  // What says that the request cannot be taken as it is.
  int refused_request() const { return modern_codes_ ? core::kInvalidRequest : core::kServerError; }

  // `body` is one line.
  void Json(int status, std::string body, net::HeaderList extra = {}) const;
  // Without a body: 202, 204 and the like.
  void Empty(int status, net::HeaderList extra = {}) const;
  // {"error":message}: for what is not JSON-RPC.
  void Error(int status, std::string_view message, net::HeaderList extra = {}) const;
  // A JSON-RPC error response; `raw_id` may be empty.
  void RpcError(int status, std::string_view raw_id, int code, std::string_view message,
                std::string_view raw_data = {}, net::HeaderList extra = {}) const;

  // The session of the request is unknown or over: 404.
  void NoSession(std::string_view raw_id) const;
  // The control plane could not be asked, or refused; nothing was started. Says when to try again
  // where that may help.
  void Failure(std::string_view raw_id, const absl::Status& status) const;

  // JSON that follows in pieces through responder(), whatever the client accepts. nullopt: its size
  // is not known.
  void StartJson(std::optional<uint64_t> size, net::HeaderList extra = {}) const;
  // An event stream; for SseWriter.
  void StartEvents(net::HeaderList extra) const;

  net::HttpResponder& responder() const { return *responder_; }

 private:
  net::HeaderList Headers(net::HeaderList first, net::HeaderList extra) const;
  net::HeaderList EventHeaders(net::HeaderList extra) const;

  std::shared_ptr<net::HttpResponder> responder_;
  net::HeaderList common_;
  bool only_events_ = false;
  bool modern_codes_ = false;
};

}  // namespace callboard::bridge
