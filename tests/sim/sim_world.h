// One whole Callboard with its DCCs, clients and faults, in virtual time, from one seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "core/runtime/random.h"
#include "tests/sim/dripping_client.h"
#include "tests/sim/job_agent.h"
#include "tests/sim/processes.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/trace.h"
#include "tests/support/virtual_loop.h"

namespace callboard::sim {

struct WorldOptions {
  uint64_t seed = 1;
  // How long faults happen; the calm phase that follows takes what it takes, up to its limit.
  absl::Duration faults_for = absl::Minutes(4);
  bool print = false;
};

struct WorldReport {
  bool ok = true;
  std::string violation;
  std::string failure;  // with the last events
  uint64_t hash = 0;
  uint64_t steps = 0;
  absl::Duration lasted;
  std::map<std::string, uint64_t, std::less<>> totals;
};

// Loop thread only; built, run once, destroyed.
class SimWorld {
 public:
  explicit SimWorld(const WorldOptions& options);
  ~SimWorld();

  // Two phases. Faults: everything may break, nothing may be wrong (safety). Calm: everything must
  // recover and settle (liveness). Stops at the first violation.
  WorldReport Run();

 private:
  // ---- faults (faults.cc) ----
  void NextFault();
  void Inject();
  void LinkFault(Machine& machine);
  void HttpFault();
  void ProcessFault();
  void DccFault(Machine& machine);
  void DiskFault(Machine& machine);
  void StoreFault();
  void HealAll();
  // Runs `heal` after the delay, or when all faults end.
  void HealLater(absl::Duration delay, absl::AnyInvocable<void()> heal);
  void HealLater(absl::Duration delay, Machine& machine, absl::AnyInvocable<void()> heal);
  uint64_t FaultsOfSeat(const std::string& seat_id);
  absl::Duration Span(double low_s, double high_s);
  void Disturb(const std::string& client);  // empty: all
  void TouchSeats(const Machine& machine);
  void RestartPlane();
  void StartPlane();
  void KillPlane();
  void DrainPlane();
  // ---- bridges apart from the control plane (bridges.cc) ----
  void StartBridge(size_t number);
  void BridgeFault();
  bool AllBridgesServe() const;

  // ---- running ----
  bool RunFor(absl::Duration duration);
  bool RunUntilSettled(absl::Duration limit);
  std::string Unsettled();
  std::string UnsettledCalls();
  std::string OpenAsks() const;
  void CheckBounds();
  void CheckAskBounds();
  void ProbeSeats();
  void Probe(ClientHabits habits);
  void CheckNews();
  // nullptr: the seat has none.
  const DccPlace* PlaceOf(size_t seat) const;
  ClientHabits DrawHabits(size_t number);
  Machine& AnyMachine();
  SimClient& AnyClient();

  const WorldOptions options_;
  tests::VirtualLoop loop_;
  core::SeededRandom random_;
  Trace trace_;
  Ledger ledger_;
  SimSettings settings_;
  AgentNetwork agent_network_;
  BridgeNetwork bridge_network_;
  // One a bridge: that of callboardd itself, or those of several that are processes of their own.
  std::vector<std::unique_ptr<tests::MemoryNetwork>> http_networks_;
  SimDisk disk_;
  absl::Time failing_since_;
  absl::Time ended_while_failing_ = absl::InfinitePast();  // the last control plane that did
  StoreWitness witness_;
  std::unique_ptr<PlaneProcess> plane_;
  uint64_t plane_generation_ = 0;
  std::vector<std::unique_ptr<BridgeProcess>> bridges_;  // apart; nullptr: it is down
  std::vector<std::unique_ptr<Machine>> machines_;
  std::unique_ptr<JobAgent> jobs_;
  std::unique_ptr<ClientSurroundings> surroundings_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  std::unique_ptr<DrippingClient> dripping_;
  core::Timer drain_timer_;
  std::map<std::string, absl::Time> disturbed_;  // by client
  absl::Time all_disturbed_ = absl::InfinitePast();
  int standing_http_faults_ = 0;                 // clogs, refusals, a dead control plane
  std::map<std::string, uint64_t> seat_faults_;  // by seat_id
  // By machine; the order of the addresses decides nothing.
  std::map<Machine*, int> standing_faults_;
  bool faulty_ = true;
  uint64_t last_heal_ = 0;
  std::map<uint64_t, absl::AnyInvocable<void()>> heals_;
  std::map<uint64_t, core::Timer> heal_timers_;
  core::Timer fault_timer_;
};

}  // namespace callboard::sim
