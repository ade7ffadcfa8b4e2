// The seats of the agent and what control planes are told about them: states, catalogues, notices.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend_agent/agent.h"
#include "backend_agent/call_journal.h"
#include "backend_agent/frame_builder.h"
#include "core/mcp/tool_list_delta.h"

namespace callboard::agent {

// Owns the seats. Loop thread only; owned by the agent. Bounds, for each control plane: one state
// per seat waits (the newest wins), one catalogue at a time is written and one wish per seat waits,
// notices_max notices wait (list_changed and updated coalesced, of others the newest; what is
// dropped leaves a hole in n), as many level-triggered ones are kept until it has them.
class SeatFeed final : public SeatObserver {
  struct Entry {
    std::unique_ptr<Seat> seat;
    uint64_t incarnation = 0;
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

 public:
  // A control plane as the feed sees it: what it wants, what it has been told and what waits for
  // it. Its notices are kept through cuts of the link.
  class Port {
   public:
    virtual ~Port() = default;
    // Something is ready to be written.
    virtual void Wake() = 0;

   private:
    friend class SeatFeed;
    struct Told {
      v1::Interest interest;  // the control plane's whole wish, as last sent
      uint64_t last_notice_n = 0;
      uint64_t notices_lost = 0;  // since the last one that was written
      // The list it was sent last on this link.
      std::string digest;
      Payload list;
    };

    bool linked_ = false;
    uint64_t term_ = 0;                 // of the control plane linked last
    std::map<std::string, Told> told_;  // by seat
    std::set<std::string> changed_;
    std::map<std::string, std::string> gone_;  // reason by seat_id
    std::deque<WaitingNotice> notices_;
    std::deque<WaitingNotice> unconfirmed_;  // level-triggered, written: said again after a cut
    std::deque<Transfer> transfers_;
  };

  SeatFeed(CallJournal& journal, const AgentLimits& limits) : journal_(journal), limits_(limits) {}

  void Add(std::unique_ptr<Seat> seat);
  // Linked control planes are told with the next frame.
  void Remove(const std::string& seat_id, const std::string& reason);
  // nullptr if there is no such seat.
  Seat* Find(const std::string& seat_id);

  // A port must be removed before it goes.
  void AddPort(Port& port) { ports_.push_back(&port); }
  void RemovePort(Port& port);
  void AppendInventory(Port& port, std::deque<v1::AgentItem>& items);
  void OnLinked(Port& port, const v1::Welcome& welcome);
  void OnUnlinked(Port& port);
  // The control plane has all that was written so far.
  static void OnAllReceived(Port& port) { port.unconfirmed_.clear(); }
  void OnInterest(Port& port, v1::Interest interest);
  void OnCatalogueWant(Port& port, const v1::CatalogueWant& want);
  void OnSeatControl(const v1::SeatControl& control);

  void OnSeatChanged(const std::string& seat_id) override;
  void OnNotice(const std::string& seat_id, std::string method, std::string raw_params) override;

  // States of changed seats; goes before the events of calls. False: the frame is full.
  bool FillStates(Port& port, FrameBuilder& frame);
  // Notices and one piece of a catalogue.
  void FillData(Port& port, FrameBuilder& frame);
  static bool HasData(const Port& port) {
    return !port.notices_.empty() || !port.transfers_.empty();
  }
  void Beat(v1::Heartbeat& heartbeat) const;
  // That wait, of all control planes.
  size_t notices() const;
  std::vector<v1::SeatState> States() const;

 private:
  v1::SeatState StateOf(const std::string& seat_id, Entry& entry);
  // What all control planes together want of a seat.
  void ApplyInterests(const std::string& seat_id);
  void QueueNotice(Port& port, WaitingNotice notice);
  // What goes to the control plane when it wants that list: what is new in it, if that is less.
  static Transfer MakeTransfer(Port& port, const std::string& seat_id, const Seat& seat,
                               const std::string& digest);
  void FillNotices(Port& port, FrameBuilder& frame);
  static void FillCatalogue(Port& port, FrameBuilder& frame);

  CallJournal& journal_;
  const AgentLimits limits_;
  std::vector<Port*> ports_;
  std::map<std::string, Entry> seats_;  // goes first: a seat may speak until it is gone
};

}  // namespace callboard::agent
