// The seats of the agent and what is told about them: states, catalogues, notices.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "backend_agent/agent.h"
#include "backend_agent/call_journal.h"
#include "backend_agent/frame_builder.h"
#include "core/mcp/tool_list_delta.h"

namespace callboard::agent {

// Owns the seats. Loop thread only; owned by the agent. Bounds: one state per seat waits (the
// newest wins), one catalogue at a time is written and one wish per seat waits, notices_max notices
// wait (list_changed and updated coalesced, of others the newest; what is dropped leaves a hole in
// n), as many level-triggered ones are kept until the control plane has them.
class SeatFeed final : public SeatObserver {
 public:
  // `wake` is called whenever something is ready to be written.
  SeatFeed(CallJournal& journal, const AgentLimits& limits, absl::AnyInvocable<void()> wake);

  void Add(std::unique_ptr<Seat> seat);
  // The control plane is told with the next frame if `tell`.
  void Remove(const std::string& seat_id, const std::string& reason, bool tell);
  // nullptr if there is no such seat.
  Seat* Find(const std::string& seat_id);

  void AppendInventory(std::deque<v1::AgentItem>& items);
  void OnLinked(const v1::Welcome& welcome);
  void OnUnlinked();
  // The control plane has all that was written so far.
  void OnAllReceived() { unconfirmed_.clear(); }
  void OnInterest(v1::Interest interest);
  void OnCatalogueWant(const v1::CatalogueWant& want);
  void OnSeatControl(const v1::SeatControl& control);

  void OnSeatChanged(const std::string& seat_id) override;
  void OnNotice(const std::string& seat_id, std::string method, std::string raw_params) override;

  // States of changed seats; goes before the events of calls. False: the frame is full.
  bool FillStates(FrameBuilder& frame);
  // Notices and one piece of a catalogue.
  void FillData(FrameBuilder& frame);
  size_t notices() const { return notices_.size(); }
  bool HasData() const { return !notices_.empty() || !transfers_.empty(); }
  void Beat(v1::Heartbeat& heartbeat) const;

 private:
  struct Entry {
    std::unique_ptr<Seat> seat;
    v1::Interest interest;  // the control plane's whole wish, as last sent
    uint64_t incarnation = 0;
    uint64_t last_notice_n = 0;
    uint64_t notices_lost = 0;  // since the last one that was written
    // The list the control plane was sent last on this link.
    std::string told_digest;
    Payload told_list;
  };
  struct WaitingNotice {
    std::string seat_id;
    std::string method;
    std::string params;
    bool level_triggered;  // says "look again": one waiting is enough
  };
  struct Transfer {
    std::string seat_id;
    std::string digest;
    Payload body;
    std::string base_digest;  // empty: a snapshot
    std::vector<core::ToolListChange> changes;
    uint64_t offset = 0;
    bool announced = false;
  };

  v1::SeatState StateOf(const std::string& seat_id, Entry& entry);
  // What goes to the control plane when it wants that list: what is new in it, if that is less.
  Transfer MakeTransfer(const std::string& seat_id, Entry& entry, const std::string& digest);
  void FillNotices(FrameBuilder& frame);
  void FillCatalogue(FrameBuilder& frame);

  CallJournal& journal_;
  const AgentLimits limits_;
  absl::AnyInvocable<void()> wake_;
  std::map<std::string, Entry> seats_;
  std::set<std::string> changed_;
  std::map<std::string, std::string> gone_;  // reason by seat_id
  std::deque<WaitingNotice> notices_;
  std::deque<WaitingNotice> unconfirmed_;  // level-triggered, written: said again after a cut
  std::deque<Transfer> transfers_;
  uint64_t term_ = 0;  // of the control plane linked last
};

}  // namespace callboard::agent
