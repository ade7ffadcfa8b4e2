// Implementation of Agent: ties the links, the calls and the seats together.
#include "backend_agent/agent.h"

#include <utility>

#include "backend_agent/agent_metrics.h"
#include "backend_agent/call_desk.h"
#include "backend_agent/call_journal.h"
#include "backend_agent/plane_links.h"
#include "backend_agent/seat_feed.h"

namespace callboard::agent {
namespace {

constexpr absl::Duration kExpiryInterval = absl::Hours(1);

}  // namespace

struct Agent::Impl final : CallDesk::Surroundings {
  Impl(core::EventLoop& event_loop, core::Random& random, LinkDialer& dialer,
       JournalFile& journal_file, Spool& spool_folder, AgentConfig agent_config)
      : loop(event_loop),
        spool(spool_folder),
        config(std::move(agent_config)),
        journal(journal_file, spool, loop, random, config.limits),
        desk(loop, journal, spool, *this, config.limits),
        links(loop, random, dialer, config, journal, desk, seats),
        seats(journal) {
    ScheduleExpiry();
  }

  void ScheduleExpiry() {
    expiry_timer = loop.After(kExpiryInterval, [this] {
      desk.Expire();
      ScheduleExpiry();
    });
  }

  // ---- CallDesk::Surroundings ----
  Seat* FindSeat(const std::string& seat_id) override { return seats.Find(seat_id); }

  core::EventLoop& loop;
  Spool& spool;
  AgentConfig config;
  CallJournal journal;
  CallDesk desk;
  PlaneLinks links;
  SeatFeed seats;  // goes first: a seat may speak to the others until it is gone
  core::Timer expiry_timer;
};

Agent::Agent(core::EventLoop& loop, core::Random& random, LinkDialer& dialer, JournalFile& journal,
             Spool& spool, AgentConfig config)
    : impl_(std::make_unique<Impl>(loop, random, dialer, journal, spool, std::move(config))) {}

Agent::~Agent() = default;

absl::Status Agent::Recover() {
  absl::Status status = impl_->journal.Recover();
  impl_->desk.Recover();
  return status;
}

void Agent::Start() { impl_->links.Start(); }

CallObserver& Agent::call_observer() { return impl_->desk; }
SeatObserver& Agent::seat_observer() { return impl_->seats; }

void Agent::AddSeat(std::unique_ptr<Seat> seat) {
  if (impl_->desk.TakeBusySeat(seat->seat_id())) seat->AssumeBusy();
  impl_->seats.Add(std::move(seat));
}

void Agent::RemoveSeat(const std::string& seat_id, const std::string& reason) {
  impl_->desk.EndCallsOfSeat(seat_id, reason);
  impl_->seats.Remove(seat_id, reason);
}

uint64_t Agent::known_incarnation(const std::string& seat_id) const {
  return impl_->journal.known_incarnation(seat_id);
}

void Agent::Drain() { impl_->desk.Drain(); }

void Agent::Stop(absl::Duration grace, absl::AnyInvocable<void()> done) {
  Drain();
  impl_->links.Stop(grace, std::move(done));
}

AgentGauges Agent::gauges() const {
  AgentGauges gauges;
  impl_->desk.AddTo(gauges);
  impl_->seats.AddTo(gauges);
  gauges.spool_bytes = impl_->spool.bytes();
  gauges.journal_bytes = impl_->journal.bytes();
  gauges.journal_writable = impl_->journal.writable();
  impl_->links.AddTo(gauges);
  return gauges;
}

void Agent::WriteMetrics(core::MetricsText& text) const {
  agent::WriteMetrics(gauges(), impl_->seats.States(), text);
}

}  // namespace callboard::agent
