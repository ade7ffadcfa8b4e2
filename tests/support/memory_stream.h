// A place reachable over byte streams in memory, with latency, slicing and faults on demand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"
#include "net/byte_stream.h"

namespace callboard::tests {

class MemoryConversation;

// One address: a listener and any number of connectors to it. Behaves like TCP: closing ends the
// peer's reading in order, closing with unread bytes resets it, writing to a closed end breaks the
// writer, a reader that does not read stops the writer after `window_bytes`.
// Loop thread only. Streams may outlive the network. Faults act on every open stream, or only on
// those of one client (the name given to MakeConnector).
class MemoryNetwork {
 public:
  struct Options {
    absl::Duration latency = absl::ZeroDuration();
    // Each Read gets 1 .. slice_bytes_max bytes, drawn from the random source; 0: all there is.
    size_t slice_bytes_max = 0;
    size_t window_bytes = 256 * 1024;
  };

  MemoryNetwork(core::EventLoop& loop, core::Random& random, Options options);
  ~MemoryNetwork();

  // At most one listener at a time; without one connects are refused.
  std::unique_ptr<net::Listener> Listen();
  std::unique_ptr<net::Connector> MakeConnector(std::string client = "client");

  // Both sides of every open stream see Unavailable.
  void Break(std::string_view client = {});
  // Open streams lose all bytes, ends included, from now on, and nobody is told.
  void HalfOpen(std::string_view client = {});
  // Nothing moves and no Write completes, on open and new streams, until unclogged.
  void Clog(bool clogged);
  void RefuseConnects(bool refuse);
  // Connects neither succeed nor fail.
  void HangConnects(bool hang);

  size_t open_streams() const;
  uint64_t connects() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace callboard::tests
