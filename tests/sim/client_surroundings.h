// What a simulated client knows of its world.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"
#include "net/byte_stream.h"
#include "tests/sim/ledger.h"
#include "tests/sim/trace.h"

namespace callboard::sim {

struct SeatName {
  std::string seat_id;
  std::string app;
  std::string name;
  bool jobs_only = false;  // its one tool starts jobs; there is nothing to hear of it
};

// Owned by the world, outlives the clients.
struct ClientSurroundings {
  core::EventLoop& loop;
  core::Random& random;
  Trace& trace;
  Ledger& ledger;
  std::vector<SeatName> seats;
  std::function<std::unique_ptr<net::Connector>(const std::string& client)> connect;
  // Grows with each start of the control plane.
  std::function<uint64_t()> plane_generation;
  // When something last stood between this client and the control plane.
  std::function<absl::Time(const std::string& client)> last_disturbance;
  // It has been told to end with its control plane, and has not ended yet.
  std::function<bool()> bridge_drains;
  // The control plane ended while its store failed, at that time or later, and the call of that
  // stream was never stored: it is not known any more, and nobody can tell its client.
  std::function<bool(absl::Time sent, const std::string& session, const std::string& event_id)>
      is_forgotten;
  // What is confirmed meanwhile a kill may undo.
  std::function<bool()> store_fails;
  // Raw ids of requests to clients of late, of whatever session.
  std::deque<std::string> asks;
  // Grows with each fault and each restart of what stands between control plane and that seat.
  std::function<uint64_t(const std::string& seat_id)> seat_faults;
  // From sending a call, or from the last disturbance, to its end.
  absl::Duration call_budget;
  // No byte for that long: the client takes the connection for dead.
  absl::Duration read_idle;
  size_t big_bytes_max = 3 << 20;
};

}  // namespace callboard::sim
