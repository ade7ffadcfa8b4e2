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
#include "backend_agent/notice_queue.h"
#include "backend_agent/session_asks.h"
#include "core/mcp/tool_list_delta.h"

namespace callboard::agent {

// Owns the seats. Loop thread only; owned by the agent. Bounds, for each control plane: one state
// per seat waits (the newest wins), one catalogue at a time is written and one wish per seat waits,
// notices as NoticeQueue says, requests to clients as SessionAsks.
class SeatFeed final : public SeatObserver {
  struct Entry {
    std::unique_ptr<Seat> seat;
    uint64_t incarnation = 0;
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
    explicit Port(const AgentLimits& limits) : notices_(limits.notices_max) {}
    virtual ~Port() = default;
    // Something is ready to be written.
    virtual void Wake() = 0;

   private:
    friend class SeatFeed;
    struct Told {
      v1::Interest interest;  // the control plane's whole wish, as last sent
      // The list it was sent last on this link.
      std::string digest;
      Payload list;
    };

    bool linked_ = false;
    uint64_t term_ = 0;                 // of the control plane linked last
    std::map<std::string, Told> told_;  // by seat
    std::set<std::string> changed_;
    std::map<std::string, std::string> gone_;  // reason by seat_id
    NoticeQueue notices_;
    SessionAsks::Port asks_;
    std::deque<Transfer> transfers_;
  };

  explicit SeatFeed(CallJournal& journal)
      : journal_(journal), asks_([this](const std::string& seat_id) { return Find(seat_id); }) {}

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
  static void OnAllReceived(Port& port) { port.notices_.OnAllReceived(); }
  static void OnNoticeAck(Port& port, const v1::NoticeAck& ack) {
    port.notices_.OnAck(ack.seat_id(), ack.n());
  }
  void OnSessionAnswer(Port& port, v1::SessionAnswer answer) {
    asks_.OnAnswer(port.asks_, std::move(answer));
  }
  void OnInterest(Port& port, v1::Interest interest);
  void OnCatalogueWant(Port& port, const v1::CatalogueWant& want);
  void OnSeatControl(const v1::SeatControl& control);

  void OnSeatChanged(const std::string& seat_id) override;
  void OnNotice(const std::string& seat_id, std::string method, std::string raw_params) override;
  void OnSessionAsk(const std::string& seat_id, SeatAsk ask) override;
  void OnSessionAskOver(const std::string& seat_id, uint64_t ask, std::string raw_params) override;

  // States of changed seats; goes before the events of calls. False: the frame is full.
  bool FillStates(Port& port, FrameBuilder& frame);
  // Notices, requests to clients and one piece of a catalogue.
  void FillData(Port& port, FrameBuilder& frame);
  static bool HasData(const Port& port) {
    return port.notices_.waiting() > 0 || SessionAsks::HasData(port.asks_) ||
           !port.transfers_.empty();
  }
  void Beat(v1::Heartbeat& heartbeat) const;
  // Notices that wait, of all control planes, and how many were given up.
  void AddTo(AgentGauges& gauges) const;
  std::vector<v1::SeatState> States() const;

 private:
  v1::SeatState StateOf(const std::string& seat_id, Entry& entry);
  // What all control planes together want of a seat.
  void ApplyInterests(const std::string& seat_id);
  // What goes to the control plane when it wants that list: what is new in it, if that is less.
  static Transfer MakeTransfer(Port& port, const std::string& seat_id, const Seat& seat,
                               const std::string& digest);
  static void FillCatalogue(Port& port, FrameBuilder& frame);

  CallJournal& journal_;
  std::vector<Port*> ports_;
  SessionAsks asks_;
  // By seat, of those that have gone too: numbers are not used again.
  std::map<std::string, uint64_t> last_notice_n_;
  std::map<std::string, Entry> seats_;  // goes first: a seat may speak until it is gone
};

}  // namespace callboard::agent
