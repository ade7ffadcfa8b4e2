// SimWorld: everything that goes wrong, and how it is healed.
#include <fmt/format.h>

#include <utility>

#include "tests/sim/sim_world.h"

namespace callboard::sim {

absl::Duration SimWorld::Span(double low_s, double high_s) {
  return absl::Seconds(low_s + (high_s - low_s) * random_.Unit());
}

Machine& SimWorld::AnyMachine() { return *machines_[random_.Below(machines_.size())]; }
SimClient& SimWorld::AnyClient() { return *clients_[random_.Below(clients_.size())]; }

void SimWorld::Disturb(const std::string& client) {
  if (client.empty()) {
    all_disturbed_ = loop_.Now();
  } else {
    disturbed_[client] = loop_.Now();
  }
}

void SimWorld::TouchSeats(const Machine& machine) {
  for (size_t i = 0; i < machine.seats(); ++i) ++seat_faults_[machine.seat(i).seat_id];
}

void SimWorld::HealLater(absl::Duration delay, absl::AnyInvocable<void()> heal) {
  const uint64_t key = ++last_heal_;
  heals_[key] = std::move(heal);
  heal_timers_[key] = loop_.After(delay, [this, key] {
    auto node = heals_.extract(key);
    if (!node.empty()) node.mapped()();
    heal_timers_.erase(key);
  });
}

// The same for a fault that stands between the control plane and the seats of a machine.
void SimWorld::HealLater(absl::Duration delay, Machine& machine, absl::AnyInvocable<void()> heal) {
  TouchSeats(machine);
  ++standing_faults_[&machine];
  HealLater(delay, [this, &machine, heal = std::move(heal)]() mutable {
    --standing_faults_[&machine];
    TouchSeats(machine);
    heal();
  });
}

uint64_t SimWorld::FaultsOfSeat(const std::string& seat_id) {
  // While one stands no two moments are alike.
  for (const auto& [machine, standing] : standing_faults_) {
    if (standing > 0) TouchSeats(*machine);
  }
  return seat_faults_[seat_id];
}

void SimWorld::HealAll() {
  faulty_ = false;
  fault_timer_.Cancel();
  heal_timers_.clear();
  while (!heals_.empty()) {
    auto node = heals_.extract(heals_.begin());
    node.mapped()();
  }
  disk_.delay = absl::ZeroDuration();
  for (const auto& machine : machines_) {
    for (const auto& place : machine->places()) place->StopChanging();
  }
}

void SimWorld::NextFault() {
  fault_timer_ = loop_.After(Span(0.2, 8), [this] {
    Inject();
    if (faulty_) NextFault();
  });
}

void SimWorld::Inject() {
  trace_.Total("faults");
  if (jobs_ != nullptr && random_.Below(10) == 0) {
    trace_.Add("fault: the link of the jobs' agent breaks");
    return agent_network_.Break(std::string(JobAgent::kName));
  }
  const uint64_t dice = random_.Below(100);
  if (dice < 32) return LinkFault(AnyMachine());
  if (dice < 55) return HttpFault();
  if (dice < 70) return ProcessFault();
  if (dice < 90) return DccFault(AnyMachine());
  if (dice < 93) return DiskFault(AnyMachine());
  StoreFault();
}

void SimWorld::StoreFault() {
  if (disk_.failing || disk_.delay > absl::ZeroDuration()) return;
  if (random_.Below(3) != 0) {
    disk_.delay = Span(0.01, 1.5);
    trace_.Add("the store is slow");
    HealLater(Span(1, 20), [this] { disk_.delay = absl::ZeroDuration(); });
    if (random_.Below(2) == 0) return;
    // The moment that costs what is not durable.
    return HealLater(Span(0.5, 5), [this] {
      if (faulty_) RestartPlane();
    });
  }
  if (plane_ == nullptr || plane_->draining()) return;
  trace_.Add("fault: the store fails");
  disk_.failing = true;
  failing_since_ = loop_.Now();
  plane_->store().OnDiskChanged();
  HealLater(Span(0.5, 8), [this] {
    trace_.Add("healed: the store works");
    disk_.failing = false;
    disk_.sound_since = loop_.Now();
    if (plane_ != nullptr) plane_->store().OnDiskChanged();
  });
  if (random_.Below(3) == 0) return;
  // The end of a process whose store fails, in order or not.
  HealLater(Span(0.2, 6), [this] {
    if (!faulty_ || !disk_.failing || plane_ == nullptr || plane_->draining()) return;
    if (random_.Below(2) == 0) {
      RestartPlane();
    } else {
      DrainPlane();
    }
  });
}

void SimWorld::LinkFault(Machine& machine) {
  const std::string& name = machine.name();
  TouchSeats(machine);
  switch (random_.Below(6)) {
    case 0:
    case 1:
      trace_.Add(fmt::format("fault: the link of {} breaks", name));
      return agent_network_.Break(name);
    case 2:
      trace_.Add(fmt::format("fault: the link of {} goes half-open", name));
      agent_network_.HalfOpen(name);
      // Until both sides have found out by their heartbeats.
      return HealLater(2 * settings_.budgets.link_read_idle, machine, [] {});
    case 3:
      trace_.Add(fmt::format("fault: the link of {} is clogged", name));
      agent_network_.Clog(name, true);
      return HealLater(Span(0.5, 8), machine, [this, &machine] {
        trace_.Add(fmt::format("healed: the link of {} flows", machine.name()));
        agent_network_.Clog(machine.name(), false);
      });
    default: {
      const bool swallow = random_.Below(2) == 0;
      trace_.Add(fmt::format("fault: the link of {} breaks, dials are {}", name,
                             swallow ? "swallowed" : "refused"));
      agent_network_.SetDials(
          name, swallow ? AgentNetwork::Dials::kSwallowed : AgentNetwork::Dials::kRefused);
      agent_network_.Break(name);
      return HealLater(Span(0.5, 15), machine, [this, &machine] {
        trace_.Add(fmt::format("healed: {} can dial", machine.name()));
        agent_network_.SetDials(machine.name(), AgentNetwork::Dials::kAccepted);
      });
    }
  }
}

void SimWorld::HttpFault() {
  const std::string client = AnyClient().name();
  const uint64_t kind = random_.Below(6);
  if (kind < 2) {
    trace_.Add(fmt::format("fault: the connections of {} break", client));
    Disturb(client);
    for (const auto& network : http_networks_) network->Break(client);
    return;
  }
  if (kind == 2) {
    trace_.Add(fmt::format("fault: the connections of {} go half-open", client));
    Disturb(client);
    for (const auto& network : http_networks_) network->HalfOpen(client);
    return;
  }
  ++standing_http_faults_;
  if (kind == 3) {
    trace_.Add("fault: HTTP is clogged");
    for (const auto& network : http_networks_) network->Clog(true);
  } else if (kind == 4) {
    trace_.Add("fault: HTTP connections are refused");
    for (const auto& network : http_networks_) network->RefuseConnects(true);
  } else {
    trace_.Add("fault: HTTP connections hang");
    for (const auto& network : http_networks_) network->HangConnects(true);
  }
  HealLater(Span(0.3, 5), [this, kind] {
    trace_.Add("healed: HTTP");
    --standing_http_faults_;
    Disturb("");
    for (const auto& network : http_networks_) {
      if (kind == 3) network->Clog(false);
      if (kind == 4) network->RefuseConnects(false);
      if (kind == 5) network->HangConnects(false);
    }
  });
}

void SimWorld::ProcessFault() {
  if (!bridges_.empty() && random_.Below(4) == 0) return BridgeFault();
  Machine& machine = AnyMachine();
  const uint64_t kind = random_.Below(13);
  if (kind == 12) {
    if (plane_ != nullptr && !plane_->draining()) DrainPlane();
    return;
  }
  if (kind < 4) {
    return RestartPlane();
  }
  if (!machine.agent_runs()) return;
  TouchSeats(machine);
  if (kind == 4) {
    machine.Reboot();
    return HealLater(Span(3, 8), machine, [this, &machine] { machine.StartAgent(); });
  }
  machine.KillAgent();
  HealLater(Span(0.1, 8), machine, [this, &machine] { machine.StartAgent(); });
}

void SimWorld::DccFault(Machine& machine) {
  DccPlace& place = *machine.places()[random_.Below(machine.seats())];
  TouchSeats(machine);
  switch (random_.Below(4)) {
    case 0:
      if (place.kind() == DccKind::kHttp) {
        place.BreakExchanges();
        trace_.Add(fmt::format("fault: the exchanges with {} break", place.name()));
      }
      return;
    case 1:
      return place.Freeze(Span(0.5, 12));
    default:
      return place.Kill("fault: killed");
  }
}

void SimWorld::DiskFault(Machine& machine) {
  TouchSeats(machine);
  if (random_.Below(2) == 0) {
    trace_.Add(fmt::format("fault: {} cannot write its journal", machine.name()));
    machine.journal().disk_full = true;
  } else {
    trace_.Add(fmt::format("fault: the spool of {} is full", machine.name()));
    machine.SetSpoolFull(true);
  }
  HealLater(Span(0.5, 6), machine, [this, &machine] {
    trace_.Add(fmt::format("healed: the disk of {}", machine.name()));
    machine.journal().disk_full = false;
    machine.SetSpoolFull(false);
  });
}

void SimWorld::RestartPlane() {
  if (plane_ == nullptr || plane_->draining()) return;
  if (disk_.failing) trace_.Total("kills while the store fails");
  KillPlane();
  HealLater(Span(0.1, 4), [this] { StartPlane(); });
}

void SimWorld::StartPlane() {
  if (disk_.failing) {
    trace_.Add("the control plane cannot open its store");
    return HealLater(Span(0.2, 1), [this] { StartPlane(); });
  }
  ++plane_generation_;
  trace_.Add("the control plane starts");
  Disturb("");
  plane_ = std::make_unique<PlaneProcess>(loop_, random_, trace_, settings_, disk_, witness_,
                                          agent_network_, bridge_network_,
                                          bridges_.empty() ? http_networks_[0].get() : nullptr);
}

void SimWorld::KillPlane() {
  trace_.Add("the control plane is killed");
  Disturb("");
  if (disk_.failing) {
    ended_while_failing_ = loop_.Now();
    for (const auto& client : clients_) client->DoubtWishesSince(failing_since_);
  }
  // Of what waits for the disk anything may have reached it, in order.
  disk_.torn_after = random_.Below(2) == 0 ? 0 : random_.Below(20);
  plane_.reset();
}

}  // namespace callboard::sim
