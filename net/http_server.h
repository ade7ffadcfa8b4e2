// HTTP/1.1 server over byte streams: parses with Beast, limits everything a peer controls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/runtime/event_loop.h"
#include "net/byte_stream.h"

namespace callboard::net {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string target;  // as sent, with query
  HeaderList headers;  // names as sent; look up with Header()
  std::string body;    // decoded (chunked or Content-Length)
  std::string peer;    // ByteStream::PeerName()

  // Value of the first header of that name, ignoring case; nullopt if there is none.
  const std::string* Header(std::string_view name) const;
  // `target` without its query; the query without '?'.
  std::string_view path() const;
  std::string_view query() const;
};

// How a peer was lost before its answer was complete.
enum class PeerLoss {
  kNone,
  kClosed,       // it closed or reset the connection
  kWriteFailed,  // it refused what was written
  kSilent,       // it acknowledged nothing for TcpOptions::user_timeout
  kStalled,      // it took nothing for HttpServerLimits::write_timeout
};

// What a request is answered with. Shared by the connection and the handler; loop thread only.
// Exactly one of Respond() and StartStream() is called, once. When the peer has gone, calls do
// nothing. Dropping the last reference without having answered closes the connection.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  // A whole answer. Content-Length, Date-less; `headers` without framing fields.
  virtual void Respond(int status, HeaderList headers, std::string body) = 0;

  // An answer sent in pieces. With `content_length` it is framed by it (exactly that many bytes
  // must follow); without, chunked for HTTP/1.1 peers and until close for HTTP/1.0 ones.
  virtual void StartStream(int status, HeaderList headers,
                           std::optional<uint64_t> content_length = std::nullopt) = 0;
  // Queues a piece; `written` (may be null) runs when the kernel has taken it. Callers that must
  // bound memory wait for it.
  virtual void Write(std::string piece, absl::AnyInvocable<void()> written) = 0;
  // Ends the streamed answer; the connection serves the next request. `close` ends it too.
  virtual void End(bool close = false) = 0;
  // Drops the connection at once, mid-answer: the peer sees a broken stream.
  virtual void Abort() = 0;

  // Bytes queued and not yet taken by the kernel.
  virtual size_t unsent_bytes() const = 0;
  virtual PeerLoss peer_loss() const = 0;
  // Runs once when the peer closes, resets or stalls before the answer is complete.
  virtual void OnPeerGone(absl::AnyInvocable<void()> callback) = 0;
};

struct HttpServerLimits {
  size_t header_bytes_max = 32 * 1024;                // 431 beyond
  size_t body_bytes_max = 16 * 1024 * 1024;           // 413 beyond
  size_t connections_max = 12'000;                    // beyond: closed at accept, counted
  absl::Duration header_timeout = absl::Seconds(15);  // from first byte to end of header: 408
  absl::Duration body_timeout = absl::Seconds(60);    // no byte of a body for that long: 408
  absl::Duration idle_timeout = absl::Seconds(75);    // between requests: closed
  absl::Duration write_timeout = absl::Seconds(20);   // a write the peer does not take: closed
};

// Serves every stream of a listener. Keep-alive with one request at a time per connection (further
// pipelined bytes wait, bounded by the header limit). The handler runs on the loop thread and must
// not block. Destroying the server closes every connection.
class HttpServer {
 public:
  using Handler = absl::AnyInvocable<void(HttpRequest, std::shared_ptr<HttpResponder>)>;

  HttpServer(core::EventLoop& loop, HttpServerLimits limits, Handler handler);
  ~HttpServer();

  void Serve(std::unique_ptr<Listener> listener);
  // Stops accepting and closes idle connections; those in mid-answer go on and close after it.
  void Drain();
  size_t connections() const;
  // Streams closed at accept because of connections_max, so far.
  uint64_t connections_refused() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

std::string_view HttpReason(int status);

}  // namespace callboard::net
