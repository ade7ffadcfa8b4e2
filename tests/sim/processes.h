// The processes of a world as objects: building one is its start, destroying it is what kill -9 is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend_agent/agent.h"
#include "backend_agent/incarnation_counter.h"
#include "backend_agent/mcp_seat.h"
#include "bridge/bridge.h"
#include "bridge/control_plane_client.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/offload.h"
#include "core/runtime/random.h"
#include "net/http_server.h"
#include "server/flows/control_plane.h"
#include "tests/sim/agent_network.h"
#include "tests/sim/bridge_network.h"
#include "tests/sim/client_surroundings.h"
#include "tests/sim/sim_bodies.h"
#include "tests/sim/sim_dcc.h"
#include "tests/sim/sim_settings.h"
#include "tests/sim/sim_store.h"
#include "tests/sim/store_witness.h"
#include "tests/support/memory_journal_file.h"
#include "tests/support/memory_spool.h"
#include "tests/support/memory_stream.h"

namespace callboard::sim {

// A bridge and its HTTP server: within callboardd, or callboard-bridge. Everything passed in
// outlives it.
class BridgeProcess {
 public:
  BridgeProcess(core::EventLoop& loop, core::Random& random, const SimSettings& settings,
                std::unique_ptr<bridge::ControlPlaneClient> client, tests::MemoryNetwork& http);

  // Answers what is under way and takes nothing new.
  void Drain(absl::Duration grace, absl::AnyInvocable<void()> done);

 private:
  std::unique_ptr<bridge::ControlPlaneClient> client_;
  bridge::Bridge bridge_;
  net::HttpServer http_;
};

// callboardd: the control plane, and its own bridge where it serves one on `http` (or nullptr).
// Everything passed in outlives it.
class PlaneProcess {
 public:
  PlaneProcess(core::EventLoop& loop, core::Random& random, Trace& trace,
               const SimSettings& settings, SimDisk& disk, StoreWitness& witness,
               AgentNetwork& agents, BridgeNetwork& bridges, tests::MemoryNetwork* http);
  ~PlaneProcess();

  // What SIGTERM asks of callboardd (drain.cc). `done` must not destroy this from inside.
  void Drain(absl::Duration grace, absl::AnyInvocable<void()> done);
  bool draining() const { return draining_; }

  server::ControlPlane& plane() { return plane_; }
  SimStore& store() { return store_; }

 private:
  core::EventLoop& loop_;
  AgentNetwork& agents_;
  BridgeNetwork& bridges_;
  core::InlineOffload offload_;
  SimStore store_;
  SimBodies bodies_;
  server::ControlPlane plane_;
  std::unique_ptr<BridgeProcess> bridge_;
  bool draining_ = false;
};

// A machine with an agent and its DCCs. The disk outlives the agent's processes.
class Machine {
 public:
  Machine(core::EventLoop& loop, core::Random& random, Trace& trace, Ledger& ledger,
          const SimSettings& settings, AgentNetwork& network, std::string name, size_t seats);
  ~Machine();

  const std::string& name() const { return name_; }
  void StartAgent();
  void KillAgent();
  bool agent_runs() const { return agent_ != nullptr; }
  // Everything ends, the disk stays, the boot id is another.
  void Reboot();

  agent::AgentGauges gauges() const { return agent_->gauges(); }
  tests::MemoryJournalFile& journal() { return journal_; }
  tests::MemorySpool& spool() { return spool_; }
  // It takes nothing, until SetSpoolFull(false).
  void SetSpoolFull(bool full) {
    spool_.set_bytes_max(full ? spool_.bytes() : 1ull << 30);
    spool_was_full_ = spool_was_full_ || full;
  }
  bool spool_was_full() const { return spool_was_full_; }
  std::vector<std::unique_ptr<DccPlace>>& places() { return places_; }
  SeatName seat(size_t index) const;
  size_t seats() const { return places_.size(); }
  // Of all its seats; only while the agent runs.
  size_t open_asks() const;
  size_t client_sessions() const;

 private:
  class Incarnations;

  agent::SeatDescription Describe(size_t index) const;
  void OnDccChange(size_t index);

  core::EventLoop& loop_;
  core::Random& random_;
  Trace& trace_;
  const SimSettings& settings_;
  const std::string name_;
  const std::string agent_id_;
  tests::MemoryJournalFile journal_;
  tests::MemorySpool spool_;
  bool spool_was_full_ = false;
  std::unique_ptr<Incarnations> incarnations_;
  std::vector<std::unique_ptr<DccPlace>> places_;
  std::vector<std::string> seat_ids_;
  std::unique_ptr<agent::LinkDialer> dialer_;
  std::unique_ptr<agent::IncarnationCounter> counter_;
  std::unique_ptr<agent::Agent> agent_;
  std::vector<agent::McpSeat*> mcp_seats_;  // owned by agent_
  uint64_t boots_ = 1;
};

}  // namespace callboard::sim
