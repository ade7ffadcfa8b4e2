// HTTP/1.1 client to one origin, with a pool of kept-alive connections and streamed answers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/runtime/event_loop.h"
#include "net/byte_stream.h"
#include "net/http_server.h"

namespace callboard::net {

struct HttpResponseHead {
  int status = 0;
  HeaderList headers;
  std::optional<uint64_t> content_length;
  const std::string* Header(std::string_view name) const;
};

// Receives one answer. All calls are on the loop thread, never from inside Send().
class HttpResponseSink {
 public:
  virtual ~HttpResponseSink() = default;
  // The request is about to be written: from here on the server may act on it.
  virtual void OnSending() {}
  virtual void OnHead(HttpResponseHead head) = 0;
  virtual void OnBody(std::string_view piece) = 0;
  // The end, exactly once. OK: complete. Otherwise `reached` tells whether any byte of the request
  // may have reached the server (then it may have acted).
  virtual void OnEnd(absl::Status status, bool reached) = 0;
};

// A request under way. Destroying it aborts: the connection closes and no callback follows.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // Back-pressure: while paused no OnBody comes and the connection is not read.
  virtual void PauseBody(bool paused) = 0;
};

struct HttpClientLimits {
  size_t header_bytes_max = 64 * 1024;
  // As many as requests run at once at a busy backend: each beyond it costs a new connection.
  size_t idle_connections_max = 128;
  absl::Duration connect_timeout = absl::Seconds(3);
  // Idle connections are dropped after this, well before servers do, to keep clear of the race
  // between their close and our next request. An idle connection that becomes readable is dropped.
  absl::Duration idle_max = absl::Seconds(3);
};

struct HttpClientState;

// Any number of requests at once; each has a connection to itself. Has no time-outs but that of the
// connect: callers own their deadlines. A request is never sent twice: if a kept-alive connection
// fails, OnEnd says so.
class HttpClient {
 public:
  // `host` is the Host header. The connector opens connections to the origin.
  HttpClient(core::EventLoop& loop, std::unique_ptr<Connector> connector, std::string host,
             HttpClientLimits limits);
  // Open exchanges are aborted: no callback follows.
  ~HttpClient();

  // `body` is sent with Content-Length (also for POST with an empty one). The sink must outlive the
  // exchange.
  std::unique_ptr<HttpExchange> Send(std::string method, std::string target, HeaderList headers,
                                     std::string body, HttpResponseSink* sink);

 private:
  std::shared_ptr<HttpClientState> state_;
};

}  // namespace callboard::net
