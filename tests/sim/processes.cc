// Implementation of PlaneProcess and Machine.
#include "tests/sim/processes.h"

#include <fmt/format.h>

#include <utility>

#include "apps/local_control_plane_client.h"
#include "tests/sim/checked_client.h"

namespace callboard::sim {

BridgeProcess::BridgeProcess(core::EventLoop& loop, core::Random& random,
                             const SimSettings& settings,
                             std::unique_ptr<bridge::ControlPlaneClient> client,
                             tests::MemoryNetwork& http)
    : client_(std::move(client)),
      bridge_(loop, random, *client_, settings.bridge),
      http_(loop, settings.http,
            [this](net::HttpRequest request, std::shared_ptr<net::HttpResponder> responder) {
              bridge_.Handle(std::move(request), std::move(responder));
            }) {
  http_.Serve(http.Listen());
}

PlaneProcess::PlaneProcess(core::EventLoop& loop, core::Random& random, Trace& trace,
                           const SimSettings& settings, SimDisk& disk, StoreWitness& witness,
                           AgentNetwork& agents, BridgeNetwork& bridges, tests::MemoryNetwork* http)
    : loop_(loop),
      agents_(agents),
      bridges_(bridges),
      offload_(loop),
      store_(loop, disk, "sim-cluster"),
      bodies_(loop, disk),
      plane_(loop, random, offload_, store_, bodies_,
             {.control_plane_id = "sim-plane",
              .budgets = settings.budgets,
              .limits = settings.limits}) {
  agents_.Listen(
      [this, &witness](std::unique_ptr<server::AgentLink> link, server::PeerIdentity peer) {
        plane_.AttachAgent(witness.Watch(std::move(link)), std::move(peer));
      });
  bridges_.Serve(&plane_);
  if (http == nullptr) return;
  bridge_ = std::make_unique<BridgeProcess>(
      loop, random, settings,
      MakeCheckedClient(loop, trace, witness, apps::MakeLocalControlPlaneClient(plane_)), *http);
}

PlaneProcess::~PlaneProcess() {
  agents_.StopListening();
  bridges_.Serve(nullptr);
}

// ---- machine ------------------------------------------------------------------------------------

// The file in which an agent counts the processes of its seats.
class Machine::Incarnations final : public agent::IncarnationStore {
 public:
  absl::StatusOr<std::map<std::string, agent::IncarnationRecord>> Load() override {
    return records_;
  }
  absl::Status Save(const std::map<std::string, agent::IncarnationRecord>& records) override {
    records_ = records;
    return absl::OkStatus();
  }

 private:
  std::map<std::string, agent::IncarnationRecord> records_;
};

Machine::Machine(core::EventLoop& loop, core::Random& random, Trace& trace, Ledger& ledger,
                 const SimSettings& settings, AgentNetwork& network, std::string name, size_t seats)
    : loop_(loop),
      random_(random),
      trace_(trace),
      settings_(settings),
      name_(std::move(name)),
      agent_id_(random.Hex(16)),
      incarnations_(std::make_unique<Incarnations>()),
      dialer_(network.MakeDialer(name_)) {
  journal_.boot_id = fmt::format("{}-boot-1", name_);
  for (size_t i = 0; i < seats; ++i) {
    const DccKind kind = random.Below(2) == 0 ? DccKind::kStdio : DccKind::kHttp;
    places_.push_back(std::make_unique<DccPlace>(loop, random, trace, ledger,
                                                 fmt::format("{}-dcc{}", name_, i), kind));
    seat_ids_.push_back(random.Hex(16));
    places_.back()->OnChange([this, i] { OnDccChange(i); });
  }
}

Machine::~Machine() = default;

SeatName Machine::seat(size_t index) const {
  return {seat_ids_[index], "simdcc", places_[index]->name()};
}

agent::SeatDescription Machine::Describe(size_t index) const {
  const SeatName seat_name = seat(index);
  return {.seat_id = seat_name.seat_id,
          .name = seat_name.name,
          .app = seat_name.app,
          .version = "1",
          .scene = "untitled"};
}

void Machine::StartAgent() {
  if (agent_ != nullptr) return;
  trace_.Add(name_ + ": the agent starts");
  agent::AgentConfig config;
  config.agent_id = agent_id_;
  config.control_planes = {"sim-plane"};
  config.software.set_name("callboard-agent");
  config.limits = settings_.agent;
  config.backoff_max = absl::Seconds(3);
  config.permanent_refusal_wait = absl::Seconds(5);
  config.welcome_timeout = absl::Seconds(6);
  counter_ = std::make_unique<agent::IncarnationCounter>(*incarnations_);
  agent_ = std::make_unique<agent::Agent>(loop_, random_, *dialer_, journal_, spool_, config);
  if (const auto status = agent_->Recover(); !status.ok()) {
    // Serves all the same, as callboard-agent does.
    trace_.Add(fmt::format("{} begins its journal anew: {}", name_, status.ToString()));
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    DccPlace& place = *places_[i];
    const bool there = place.kind() == DccKind::kStdio || place.pid() != 0;
    auto next_incarnation = [this, id = seat_ids_[i]](int64_t pid) {
      return counter_->Next(id, {pid, static_cast<uint64_t>(pid)}, agent_->known_incarnation(id));
    };
    auto seat = std::make_unique<agent::McpSeat>(loop_, random_, spool_, agent_->call_observer(),
                                                 agent_->seat_observer(),
                                                 there ? place.MakeBackend() : nullptr, Describe(i),
                                                 std::move(next_incarnation), settings_.seat);
    mcp_seats_.push_back(seat.get());
    agent_->AddSeat(std::move(seat));
  }
  agent_->Start();
}

void Machine::KillAgent() {
  if (agent_ == nullptr) return;
  trace_.Add(name_ + ": the agent is killed");
  mcp_seats_.clear();
  agent_.reset();
  counter_.reset();
}

void Machine::Reboot() {
  trace_.Add(name_ + ": the machine reboots");
  KillAgent();
  for (const auto& place : places_) place->Kill("its machine reboots");
  journal_.boot_id = fmt::format("{}-boot-{}", name_, ++boots_);
}

size_t Machine::open_asks() const {
  size_t asks = 0;
  for (const agent::McpSeat* seat : mcp_seats_) asks += seat->open_asks();
  return asks;
}

size_t Machine::client_sessions() const {
  size_t sessions = 0;
  for (const agent::McpSeat* seat : mcp_seats_) sessions += seat->client_sessions();
  return sessions;
}

// What discovery would tell the agent about DCCs that are no children of it.
void Machine::OnDccChange(size_t index) {
  DccPlace& place = *places_[index];
  if (agent_ == nullptr || place.kind() == DccKind::kStdio) return;
  mcp_seats_[index]->ReplaceBackend(place.pid() == 0 ? nullptr : place.MakeBackend(),
                                    Describe(index));
}

}  // namespace callboard::sim
