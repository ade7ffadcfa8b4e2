// Implementation of Agent: ties the link, the calls and the seats together.
#include "backend_agent/agent.h"

#include <utility>

#include "backend_agent/call_desk.h"
#include "backend_agent/call_journal.h"
#include "backend_agent/seat_feed.h"
#include "backend_agent/uplink.h"

namespace callboard::agent {
namespace {

constexpr absl::Duration kExpiryInterval = absl::Hours(1);

}  // namespace

struct Agent::Impl final : Uplink::Owner, CallDesk::Surroundings {
  Impl(core::EventLoop& event_loop, core::Random& random, LinkDialer& dialer,
       JournalFile& journal_file, Spool& spool_folder, AgentConfig agent_config)
      : loop(event_loop),
        spool(spool_folder),
        config(std::move(agent_config)),
        journal(journal_file, spool, loop, random, config.limits),
        uplink(loop, random, dialer, config, *this),
        desk(loop, journal, spool, *this, config.limits),
        seats(journal, config.limits, [this] { uplink.Wake(); }) {
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
  void SendControl(v1::AgentItem item) override { uplink.SendControl(std::move(item)); }
  void Wake() override { uplink.Wake(); }
  void WakeSoon() override { uplink.WakeSoon(); }

  // ---- Uplink::Owner ----
  std::string journal_id() override { return journal.id(); }
  void AppendInventory(std::deque<v1::AgentItem>& items) override {
    seats.AppendInventory(items);
    desk.AppendInventory(items);
  }
  void OnLinked(const v1::Welcome& welcome) override {
    seats.OnLinked(welcome);
    desk.OnLinked(welcome);
  }
  void OnUnlinked() override {
    seats.OnUnlinked();
    desk.OnUnlinked();
  }
  void OnAllReceived() override { seats.OnAllReceived(); }
  void OnItem(v1::ServerItem item) override {
    switch (item.item_case()) {
      case v1::ServerItem::kDispatch:
        return desk.OnDispatch(std::move(*item.mutable_dispatch()));
      case v1::ServerItem::kChunk:
        return desk.OnChunk(item.chunk());
      case v1::ServerItem::kCancel:
        return desk.OnCancel(item.cancel());
      case v1::ServerItem::kAnswer:
        return desk.OnAnswer(std::move(*item.mutable_answer()));
      case v1::ServerItem::kAck:
        return desk.OnAck(item.ack());
      case v1::ServerItem::kSettle:
        return desk.OnSettle(item.settle());
      case v1::ServerItem::kVerdict:
        return desk.OnVerdict(item.verdict());
      case v1::ServerItem::kInterest:
        return seats.OnInterest(std::move(*item.mutable_interest()));
      case v1::ServerItem::kCatalogueWant:
        return seats.OnCatalogueWant(item.catalogue_want());
      case v1::ServerItem::kSeatControl:
        return seats.OnSeatControl(item.seat_control());
      case v1::ServerItem::kSettings:
        return desk.OnSettings(item.settings().limits());
      default:
        ++ignored_items;
    }
  }
  void MakeHeartbeat(v1::Heartbeat& heartbeat) override {
    seats.Beat(heartbeat);
    desk.Beat(heartbeat);
  }
  bool FillControl(FrameBuilder& frame) override {
    desk.FillAcks(frame);
    return seats.FillStates(frame);
  }
  void FillData(FrameBuilder& frame) override {
    seats.FillData(frame);
    desk.FillEvents(frame);
  }
  bool HasData() override { return seats.HasData() || desk.HasEvents(); }

  core::EventLoop& loop;
  Spool& spool;
  AgentConfig config;
  CallJournal journal;
  Uplink uplink;
  CallDesk desk;
  SeatFeed seats;  // goes first: a seat may speak to the others until it is gone
  uint64_t ignored_items = 0;
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

void Agent::Start() { impl_->uplink.Start(); }

CallObserver& Agent::call_observer() { return impl_->desk; }
SeatObserver& Agent::seat_observer() { return impl_->seats; }

void Agent::AddSeat(std::unique_ptr<Seat> seat) {
  if (impl_->desk.TakeBusySeat(seat->seat_id())) seat->AssumeBusy();
  impl_->seats.Add(std::move(seat));
}

void Agent::RemoveSeat(const std::string& seat_id, const std::string& reason) {
  impl_->desk.EndCallsOfSeat(seat_id, reason);
  impl_->seats.Remove(seat_id, reason, impl_->uplink.linked());
}

uint64_t Agent::known_incarnation(const std::string& seat_id) const {
  return impl_->journal.known_incarnation(seat_id);
}

void Agent::Stop(absl::Duration grace, absl::AnyInvocable<void()> done) {
  impl_->desk.Drain();
  impl_->uplink.Stop(grace, std::move(done));
}

AgentGauges Agent::gauges() const {
  AgentGauges gauges;
  impl_->desk.AddTo(gauges);
  gauges.notices = impl_->seats.notices();
  gauges.spool_bytes = impl_->spool.bytes();
  gauges.journal_bytes = impl_->journal.bytes();
  gauges.linked = impl_->uplink.linked();
  gauges.ignored_items = impl_->ignored_items;
  gauges.attaches = impl_->uplink.attaches();
  return gauges;
}

}  // namespace callboard::agent
