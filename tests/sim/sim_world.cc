// Implementation of SimWorld.
#include "tests/sim/sim_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"

namespace callboard::sim {
namespace {

// After the last fault all is settled within this.
constexpr absl::Duration kSettleLimit = absl::Minutes(3);
// New calls still come for so long after the last fault.
constexpr absl::Duration kBusyCalm = absl::Seconds(10);
constexpr uint64_t kStepsMax = 200'000'000;
constexpr uint64_t kBoundsEvery = 64;

tests::MemoryNetwork::Options DrawHttpOptions(core::Random& random) {
  tests::MemoryNetwork::Options options;
  options.latency = absl::Microseconds(20 + static_cast<int64_t>(random.Below(5'000)));
  constexpr size_t kSlices[] = {0, 0, 64 * 1024, 4 * 1024, 700};
  options.slice_bytes_max = kSlices[random.Below(5)];
  return options;
}

// Each connection goes to another of them, as behind a balancer that knows nothing of sessions.
class AnyBridge final : public net::Connector {
 public:
  AnyBridge(core::Random& random,
            const std::vector<std::unique_ptr<tests::MemoryNetwork>>& networks,
            const std::string& client)
      : random_(random) {
    for (const auto& network : networks) bridges_.push_back(network->MakeConnector(client));
  }
  void Connect(absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<net::ByteStream>>)> callback)
      override {
    const size_t one = bridges_.size() == 1 ? 0 : random_.Below(bridges_.size());
    bridges_[one]->Connect(std::move(callback));
  }

 private:
  core::Random& random_;
  std::vector<std::unique_ptr<net::Connector>> bridges_;
};

}  // namespace

SimWorld::SimWorld(const WorldOptions& options)
    : options_(options),
      random_(options.seed),
      trace_(loop_, options.seed, options.print),
      ledger_(trace_),
      settings_(DrawSettings(random_)),
      agent_network_(loop_, random_, trace_),
      bridge_network_(loop_, random_),
      witness_(loop_, trace_, disk_) {
  const size_t apart = random_.Below(2) == 0 ? 0 : 1 + random_.Below(3);
  for (size_t i = 0; i < std::max<size_t>(apart, 1); ++i) {
    http_networks_.push_back(
        std::make_unique<tests::MemoryNetwork>(loop_, random_, DrawHttpOptions(random_)));
  }
  bridges_.resize(apart);
  StartPlane();
  for (size_t i = 0; i < apart; ++i) StartBridge(i);
  const size_t machines = 2 + random_.Below(4);
  surroundings_ = std::make_unique<ClientSurroundings>(
      ClientSurroundings{.loop = loop_, .random = random_, .trace = trace_, .ledger = ledger_});
  surroundings_->connect = [this](const std::string& client) {
    return std::make_unique<AnyBridge>(random_, http_networks_, client);
  };
  surroundings_->plane_generation = [this] { return plane_generation_; };
  surroundings_->last_disturbance = [this](const std::string& client) {
    const bool serves = plane_ != nullptr && !plane_->draining() && AllBridgesServe();
    if (!serves || standing_http_faults_ > 0) return loop_.Now();
    const auto at = disturbed_.find(client);
    return at == disturbed_.end() ? all_disturbed_ : std::max(all_disturbed_, at->second);
  };
  surroundings_->seat_faults = [this](const std::string& seat) { return FaultsOfSeat(seat); };
  surroundings_->bridge_drains = [this] {
    return bridges_.empty() && plane_ != nullptr && plane_->draining();
  };
  surroundings_->is_forgotten = [this](absl::Time sent, const std::string& session,
                                       const std::string& event_id) {
    return ended_while_failing_ >= sent && !witness_.HasHeld(session, event_id);
  };
  surroundings_->store_fails = [this] { return disk_.failing; };
  surroundings_->call_budget = settings_.call_budget;
  surroundings_->read_idle = absl::Seconds(16);

  for (size_t i = 0; i < machines; ++i) {
    machines_.push_back(std::make_unique<Machine>(loop_, random_, trace_, ledger_, settings_,
                                                  agent_network_, fmt::format("agent{}", i),
                                                  1 + random_.Below(2)));
    Machine& machine = *machines_.back();
    for (size_t seat = 0; seat < machine.seats(); ++seat) {
      surroundings_->seats.push_back(machine.seat(seat));
      DccPlace& place = *machine.places()[seat];
      if (place.kind() == DccKind::kHttp) place.Start();
    }
    machine.StartAgent();
  }
  if (random_.Below(2) == 0) {
    jobs_ = std::make_unique<JobAgent>(loop_, random_, trace_, ledger_, agent_network_);
    surroundings_->seats.push_back(jobs_->seat());
  }

  const size_t clients = 3 + random_.Below(8);
  for (size_t i = 0; i < clients; ++i) {
    clients_.push_back(std::make_unique<SimClient>(*surroundings_, DrawHabits(i)));
    clients_.back()->Start();
  }
  if (random_.Below(2) == 0) {
    dripping_ = std::make_unique<DrippingClient>(*surroundings_, settings_.http);
  }
}

ClientHabits SimWorld::DrawHabits(size_t number) {
  constexpr std::string_view kRevisions[] = {"2025-03-26", "2025-06-18", "2025-11-25",
                                             "2025-11-25"};
  constexpr std::string_view kCapabilities[] = {
      "{}", R"({"sampling":{}})", R"({"elicitation":{},"roots":{"listChanged":true}})",
      R"({"sampling":{},"elicitation":{},"roots":{}})"};
  ClientHabits habits;
  habits.rude = number > 0 && random_.Below(4) == 0;
  habits.name = fmt::format("{}{}", habits.rude ? "rude" : "client", number);
  habits.revision = kRevisions[random_.Below(4)];
  habits.calls_max = 1 + static_cast<int>(random_.Below(4));
  habits.listens = random_.Below(4) != 0;
  habits.capabilities = kCapabilities[random_.Below(4)];
  habits.wishes = random_.Below(2) == 0;
  habits.batches = habits.revision == "2025-03-26";
  habits.reads_slowly = random_.Below(6) == 0;
  if (random_.Below(2) == 0) {
    habits.seat = static_cast<int>(random_.Below(surroundings_->seats.size()));
  }
  habits.selects = habits.seat < 0 && number % 3 == 1;
  return habits;
}

SimWorld::~SimWorld() = default;

WorldReport SimWorld::Run() {
  const absl::Time begin = loop_.Now();
  NextFault();
  if (RunFor(options_.faults_for)) {
    trace_.Add("calm: no more faults");
    HealAll();
    dripping_.reset();
    Disturb("");
    RunFor(kBusyCalm);
    for (const auto& client : clients_) {
      client->StopCalling();
      if (client->name().starts_with("rude")) client->Vanish();
    }
    if (RunUntilSettled(kSettleLimit)) ProbeSeats();
    if (!trace_.violated()) CheckNews();
  }
  WorldReport report;
  report.ok = !trace_.violated();
  report.violation = trace_.violation();
  report.failure = trace_.Failure();
  report.hash = trace_.hash();
  report.steps = loop_.steps();
  report.lasted = loop_.Now() - begin;
  report.totals = trace_.totals();
  return report;
}

bool SimWorld::RunFor(absl::Duration duration) {
  const absl::Time until = loop_.Now() + duration;
  while (!trace_.violated() && loop_.Step(until)) {
    if (loop_.steps() % kBoundsEvery == 0) CheckBounds();
  }
  return !trace_.violated();
}

bool SimWorld::RunUntilSettled(absl::Duration limit) {
  const absl::Time until = loop_.Now() + limit;
  std::string left;
  do {
    if (!RunFor(absl::Seconds(1))) return false;
    left = Unsettled();
  } while (!left.empty() && loop_.Now() < until);
  if (!left.empty()) {
    trace_.Violate("after the faults all settles in time", left + UnsettledCalls());
  }
  trace_.Add("settled");
  return !trace_.violated();
}

// What the control plane knows of calls that are not settled.
std::string SimWorld::UnsettledCalls() {
  std::string text;
  const v1::ListCallsResponse calls = plane_->plane().ListCalls({});
  for (const v1::Call& call : calls.calls()) {
    if (call.settled() && call.phase() >= v1::CALL_SUCCEEDED) continue;
    text.append(fmt::format("; {}: {} {} {} {} {} attempt {}, {} ms old{}, '{}'",
                            call.settled() ? "settled but not ended" : "not settled",
                            absl::BytesToHexString(call.call_id()), call.tool(),
                            v1::CallPhase_Name(call.phase()), v1::Certainty_Name(call.certainty()),
                            v1::Reason_Name(call.reason()), call.attempt(), call.age_ms(),
                            call.orphan() ? ", orphan" : "", call.message()));
  }
  return text;
}

// What is not yet as it must be when nothing goes wrong and nobody calls; empty if all is.
std::string SimWorld::Unsettled() {
  for (const auto& client : clients_) {
    if (!client->quiet()) {
      return fmt::format("{} still waits: {}", client->name(), client->OpenCalls());
    }
  }
  for (const auto& machine : machines_) {
    const agent::AgentGauges gauges = machine->gauges();
    if (!gauges.linked) return machine->name() + " has no link";
    if (gauges.calls != 0 || gauges.running != 0 || gauges.outbox_events != 0) {
      return fmt::format("{} holds {} calls, {} running, {} events", machine->name(), gauges.calls,
                         gauges.running, gauges.outbox_events);
    }
    if (machine->spool().bytes() != 0) {
      return fmt::format("the spool of {} holds {} bytes in {} files", machine->name(),
                         machine->spool().bytes(), machine->spool().file_count());
    }
  }
  if (jobs_ != nullptr && jobs_->calls() > 0) {
    return fmt::format("{} jobs are not settled", jobs_->calls());
  }
  if (const std::string open = OpenAsks(); !open.empty()) return "asks are open: " + open;
  if (plane_ == nullptr || plane_->draining()) return "the control plane is not there yet";
  const server::ControlPlaneGauges gauges = plane_->plane().gauges();
  const size_t agents = machines_.size() + (jobs_ != nullptr ? 1 : 0);
  if (gauges.agents != agents || gauges.open_executions != 0 || gauges.requests != 0 ||
      gauges.pending_settles != 0 || gauges.bodies_coming != 0) {
    return fmt::format(
        "the control plane has {} agents, {} open executions, {} requests, {} "
        "settles to send, {} results on their way",
        gauges.agents, gauges.open_executions, gauges.requests, gauges.pending_settles,
        gauges.bodies_coming);
  }
  if (gauges.seats != surroundings_->seats.size()) {
    return fmt::format("the control plane knows {} of {} seats", gauges.seats,
                       surroundings_->seats.size());
  }
  v1::ListInstancesRequest request;
  request.set_include_stale(true);
  request.set_include_dead(true);
  const v1::ListInstancesResponse rows = plane_->plane().ListInstances(request);
  for (const v1::InstanceRow& row : rows.instances()) {
    if (row.status() != "available" || row.queue_depth() != 0) {
      return fmt::format("{} is {} with {} queued calls", row.name(), row.status(),
                         row.queue_depth());
    }
  }
  return {};
}

void SimWorld::CheckBounds() {
  if (loop_.steps() > kStepsMax) trace_.Violate("the world comes to an end", "too many steps");
  for (const auto& machine : machines_) {
    if (!machine->agent_runs()) continue;
    const agent::AgentGauges gauges = machine->gauges();
    const agent::AgentLimits& limits = settings_.agent;
    // Ended calls are refused nothing: those that were open when their bound was reached come on
    // top. A result on its way to its owner is not given up, so a full spool leaves it in memory.
    if (gauges.calls - gauges.held > limits.open_calls_max ||
        gauges.held > limits.ended_calls_max + limits.open_calls_max ||
        (gauges.held_bytes > limits.ended_bytes_max && !machine->spool_was_full()) ||
        gauges.journal_bytes > limits.journal_bytes_max + (64u << 10)) {
      trace_.Violate("every table is within its bounds",
                     fmt::format("{}: {} calls, {} of them ended with {} bytes in memory, journal "
                                 "of {} bytes",
                                 machine->name(), gauges.calls, gauges.held, gauges.held_bytes,
                                 gauges.journal_bytes));
    }
  }
  CheckAskBounds();
  if (plane_ == nullptr) return;
  const server::ControlPlaneGauges gauges = plane_->plane().gauges();
  const server::Limits& limits = settings_.limits;
  const bool within =
      gauges.agents <= limits.agents_max && gauges.sessions <= limits.sessions_max &&
      gauges.open_executions <= limits.open_executions_max &&
      gauges.requests <= gauges.open_executions && gauges.ended_executions <= limits.receipts_max &&
      gauges.streams <= gauges.sessions * (limits.streams_per_session_max + 1) &&
      // One item may be larger than its stream's bound, and is kept alone then.
      gauges.replay_bytes <= gauges.streams * (limits.replay_bytes_max + (128u << 10));
  if (!within) {
    trace_.Violate("every table is within its bounds",
                   fmt::format("control plane: {} sessions, {} streams, {} replay bytes, {} open "
                               "and {} ended executions, {} requests",
                               gauges.sessions, gauges.streams, gauges.replay_bytes,
                               gauges.open_executions, gauges.ended_executions, gauges.requests));
  }
}

// A fresh call to every seat succeeds, by slug and by name.
void SimWorld::ProbeSeats() {
  Probe({.name = "probe", .listens = false});
  Probe({.name = "probe by name", .selects = true, .listens = false});
}

void SimWorld::Probe(ClientHabits habits) {
  SimClient probe(*surroundings_, std::move(habits));
  const size_t seats = surroundings_->seats.size();
  size_t answered = 0;
  for (size_t i = 0; i < seats; ++i) {
    probe.Ask(static_cast<int>(i), [this, i, &answered](bool ok) {
      ++answered;
      if (!ok) {
        trace_.Violate("after the faults a call to every seat succeeds",
                       surroundings_->seats[i].name);
      }
    });
  }
  RunFor(absl::Seconds(10));
  if (answered != seats) {
    trace_.Violate("after the faults a call to every seat succeeds",
                   fmt::format("{} of {} answers", answered, seats));
  }
  RunUntilSettled(kSettleLimit);
}

}  // namespace callboard::sim
