// A client that sends a byte a second, to see that nobody else waits for it and that it is shown
// the door.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "net/byte_stream.h"
#include "net/http_server.h"
#include "tests/sim/client_surroundings.h"

namespace callboard::sim {

// Loop thread only. Connects again and again. Every other connection drips its header and must be
// ended by the server within header_timeout; the others drip a body, which is only slow.
class DrippingClient {
 public:
  DrippingClient(ClientSurroundings& world, const net::HttpServerLimits& limits);
  ~DrippingClient();

 private:
  void Connect();
  void Drip();
  void Read();
  void OnEnd();

  ClientSurroundings& world_;
  const absl::Duration header_timeout_;
  std::unique_ptr<net::Connector> connector_;
  std::unique_ptr<net::ByteStream> stream_;
  uint64_t connections_ = 0;
  std::string text_;
  size_t sent_ = 0;
  bool in_header_ = false;
  absl::Time first_byte_;
  std::vector<char> buffer_;
  core::Timer timer_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::sim
