// SimWorld: asks within their bounds and ended, and news told at last.
#include <fmt/format.h>

#include "tests/sim/sim_world.h"

namespace callboard::sim {
namespace {

// From a change to the moment when all who want to know have been told.
constexpr absl::Duration kNewsWithin = absl::Seconds(10);

}  // namespace

const DccPlace* SimWorld::PlaceOf(size_t seat) const {
  for (const auto& machine : machines_) {
    if (seat < machine->seats()) return machine->places()[seat].get();
    seat -= machine->seats();
  }
  return nullptr;
}

std::string SimWorld::OpenAsks() const {
  std::string text;
  for (const auto& machine : machines_) {
    for (const auto& place : machine->places()) text.append(place->OpenAsks());
    if (machine->agent_runs() && machine->open_asks() > 0) {
      text.append(fmt::format("{} at {} ", machine->open_asks(), machine->name()));
    }
  }
  if (plane_ != nullptr && plane_->plane().gauges().open_asks > 0) {
    text.append(fmt::format("{} at the control plane", plane_->plane().gauges().open_asks));
  }
  return text;
}

void SimWorld::CheckAskBounds() {
  for (const auto& machine : machines_) {
    if (!machine->agent_runs()) continue;
    const size_t asks_max = machine->seats() * settings_.seat.asks_max;
    const size_t sessions_max = machine->seats() * settings_.seat.client_sessions.sessions_max;
    const agent::AgentGauges gauges = machine->gauges();
    if (machine->open_asks() > asks_max || machine->client_sessions() > sessions_max ||
        gauges.notices > 2 * settings_.agent.notices_max) {
      trace_.Violate("every table is within its bounds",
                     fmt::format("{}: {} asks, {} client sessions, {} notices", machine->name(),
                                 machine->open_asks(), machine->client_sessions(), gauges.notices));
    }
  }
}

// First what changed while there were faults, then one change more.
void SimWorld::CheckNews() {
  for (int round = 0; round < 2; ++round) {
    for (const auto& client : clients_) {
      if (client->seat() < 0 || client->vanished()) continue;
      const DccPlace* place = PlaceOf(static_cast<size_t>(client->seat()));
      if (place != nullptr) client->CheckNews(*place);
    }
    if (round == 1) break;
    for (const auto& machine : machines_) {
      for (const auto& place : machine->places()) place->ChangeAll();
    }
    if (!RunFor(kNewsWithin)) return;
  }
}

}  // namespace callboard::sim
