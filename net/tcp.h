// TCP as byte streams: listener and connector on the production loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/runtime/asio_event_loop.h"
#include "net/byte_stream.h"

namespace callboard::net {

struct TcpOptions {
  // A written byte that the peer does not acknowledge for this long breaks the stream
  // (TCP_USER_TIMEOUT, RFC 5482).
  int user_timeout_ms = 20'000;
  // Unsent bytes kept by the kernel before a stream counts as not writable (TCP_NOTSENT_LOWAT).
  int notsent_lowat_bytes = 64 * 1024;
};

// Listens on address:port (port 0: a free one) with SO_REUSEADDR, TCP_NODELAY on what it accepts.
// The error of a port in use names address and port.
struct TcpListener {
  std::unique_ptr<Listener> listener;
  uint16_t port = 0;
};
absl::StatusOr<TcpListener> ListenTcp(core::AsioEventLoop& loop, const std::string& address,
                                      uint16_t port, TcpOptions options = {});

// Connects to host:port; names are resolved at each connect; `localhost` is 127.0.0.1, else ::1.
std::unique_ptr<Connector> MakeTcpConnector(core::AsioEventLoop& loop, std::string host,
                                            uint16_t port, TcpOptions options = {});

}  // namespace callboard::net
