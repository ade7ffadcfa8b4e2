// Every call the agent has not been told to forget: taking it, running it at a seat, its end.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend_agent/agent.h"
#include "backend_agent/call_journal.h"
#include "backend_agent/frame_builder.h"
#include "backend_agent/outbox.h"
#include "core/runtime/strings.h"

namespace callboard::agent {

// The calls between the links and the seats. Loop thread only; owned by the agent, and all that is
// passed in outlives it. Bounds: open_calls_max calls that wait or run, queued_bytes_max of
// parameters that have not been started, ended_calls_max calls that wait to be settled (and as many
// more as were open then), ended_bytes_max of their results in memory (beyond any: REJECTED, "queue
// full"), and each outbox its own. When the results in memory are too many the oldest go to the
// spool. Bodies that have been sent, then those whose owner is away, leave the spool when it is
// three quarters full, and memory when the spool takes nothing: BODY_LOST.
//
// A call is known by its id. It leaves the table when the control plane has settled it and the DCC
// is done with it. Without a verdict after a cut it runs on and says nothing.
//
// A call has one owner: the control plane that dispatched it, or the one whose verdict took it over
// with a higher term. Its events go to the owner's link, and only the owner may command it.
class CallDesk final : public CallObserver {
  struct Call;

 public:
  // A link as the desk sees it: how it is reached and what waits for it. Forgotten by OnUnlinked().
  class Port {
   public:
    virtual ~Port() = default;
    // For an item that needs no credit and does not wait in a table.
    virtual void SendControl(v1::AgentItem item) = 0;
    // Something is ready to be written.
    virtual void Wake() = 0;
    // The same for news that may wait a moment for what most likely follows at once.
    virtual void WakeSoon() = 0;

   private:
    friend class CallDesk;
    std::string plane_;    // control plane at the other end
    uint32_t window_ = 0;  // first window of a call, as agreed
    uint64_t result_bytes_max_ = 0;
    std::deque<Call*> ready_;
    std::vector<std::string> acks_due_;
  };

  class Surroundings {
   public:
    virtual ~Surroundings() = default;
    // nullptr if there is no such seat.
    virtual Seat* FindSeat(const std::string& seat_id) = 0;
  };

  CallDesk(core::EventLoop& loop, CallJournal& journal, Spool& spool, Surroundings& surroundings,
           const AgentLimits& limits);

  // Takes over what the journal holds of the former run.
  void Recover();
  // True once for a seat at which the former run may have left a call at work.
  bool TakeBusySeat(const std::string& seat_id) { return busy_seats_.erase(seat_id) > 0; }

  // ---- the links ----
  void AppendInventory(std::deque<v1::AgentItem>& items) const;
  void OnLinked(Port& port, const v1::Welcome& welcome);
  // The other control planes are told which calls have lost their owner.
  void OnUnlinked(Port& port);
  void OnSettings(Port& port, const v1::LinkLimits& limits);
  void OnDispatch(Port& port, v1::Dispatch dispatch);
  void OnChunk(Port& port, const v1::Chunk& chunk);
  void OnCancel(Port& port, const v1::Cancel& cancel);
  void OnAnswer(Port& port, v1::Answer answer);
  void OnAck(Port& port, const v1::Ack& ack);
  void OnSettle(Port& port, const v1::Settle& settle);
  void OnVerdict(Port& port, const v1::Verdict& verdict);
  // No further calls are taken: REJECTED, "draining". Those that wait are forgotten.
  void Drain();

  // What parameters have been consumed; then events, round robin over the calls.
  void FillAcks(Port& port, FrameBuilder& frame);
  void FillEvents(Port& port, FrameBuilder& frame);
  static bool HasEvents(const Port& port) { return !port.ready_.empty(); }
  // Calls that tell their events there and have not been settled.
  bool HasCalls(const Port& port) const;
  // Ids of the calls at work. Once a heartbeat: also forgets what has waited long enough.
  void Beat(Port& port, v1::Heartbeat& heartbeat);
  // Once an hour: forgets finished calls nobody asked for in a day.
  void Expire();

  // ---- the seats ----
  void EndCallsOfSeat(const std::string& seat_id, const std::string& reason);
  void OnQueued(const std::string& call_id, uint32_t ahead) override;
  bool OnStarting(const std::string& call_id, uint64_t incarnation) override;
  void OnProgress(const std::string& call_id, std::string raw_params) override;
  void OnLog(const std::string& call_id, std::string raw_params) override;
  void OnNotification(const std::string& call_id, std::string method,
                      std::string raw_params) override;
  void OnAsk(const std::string& call_id, uint64_t ask, std::string method,
             std::string raw_params) override;
  void OnAskCancelled(const std::string& call_id, uint64_t ask, std::string raw_params) override;
  void OnEnd(const std::string& call_id, CallEnd end) override;
  void OnLateEnd(const std::string& call_id, CallEnd end) override;

  void AddTo(AgentGauges& gauges) const;

 private:
  static void LogEnd(std::string_view event, const Call& call, const CallEnd& end);
  void CountEnd(const CallEnd& end);

  // Parameters that arrive in chunks.
  struct Collecting {
    Collecting(Spool& spool, uint64_t bytes_max, uint64_t size_announced, uint32_t first_window)
        : builder(spool, bytes_max), size(size_announced), window(first_window) {}
    PayloadBuilder builder;
    uint64_t size;
    uint64_t acknowledged = 0;
    uint32_t window;
  };

  // An answer to a request of the backend that arrives in chunks.
  struct AnswerInPieces {
    bool is_error;
    uint64_t size;
    PayloadBuilder builder;
  };

  struct Call {
    Call(uint32_t window, size_t logs_max) : outbox(window, logs_max) {}
    bool over() const { return ended && !late_pending; }

    std::string call_id;
    uint32_t attempt = 1;
    std::string seat_id;
    std::string session_id;  // for the log, as is trace_id
    std::string trace_id;
    std::string owner_plane;
    uint64_t owner_term = 0;
    uint64_t incarnation = 0;
    uint64_t sequence = 0;
    uint64_t queued_bytes = 0;  // counted in queued_bytes_ until the call starts
    uint64_t params_size = 0;
    uint32_t params_crc = 0;
    std::string backend_job;
    uint64_t result_bytes_max = UINT64_MAX;  // that its owner takes
    CallSpec spec;                           // until it is submitted
    std::unique_ptr<Collecting> collecting;
    std::map<uint64_t, AnswerInPieces> answers;  // by ask_n
    bool started = false;
    bool ended = false;
    bool late_pending = false;  // told RUNNING: the DCC is still at it
    bool settled = false;       // forgotten as soon as it is over
    bool held = false;          // it is over, and counted in held_
    int beats_after_late_end = 0;
    v1::OutcomeClass outcome_class = v1::OUTCOME_CLASS_UNSPECIFIED;
    v1::Certainty certainty = v1::CERTAINTY_UNSPECIFIED;
    bool ack_due = false;
    bool in_ready = false;
    Port* port = nullptr;  // the owner's link, if it takes the call's events
    Outbox outbox;
  };

  Call* Find(std::string_view call_id);
  // nullptr unless the call is known and that port's control plane owns it.
  Call* FindOwned(const Port& port, std::string_view call_id);
  static v1::CallState StateOf(const Call& call);
  // The call's events go there from now on.
  // Whether a word of that control plane with that term counts: it is the owner, or takes over.
  static bool MayOwn(const Port& port, const Call& call, uint64_t term);
  void Bind(Call& call, Port& port, uint64_t have_n, uint64_t have_offset);
  void Unbind(Call& call);
  std::vector<Call*> InOrder() const;
  // Does something with a Dispatch whose call is known; true: take it as a new attempt.
  bool AcceptKnown(Port& port, Call& call, const v1::Dispatch& dispatch);
  // True: the call may run.
  bool CheckTombstone(Port& port, const v1::Dispatch& dispatch);
  void Reject(Port& port, const v1::Dispatch& dispatch, v1::OutcomeClass outcome_class,
              v1::Reason reason, v1::Certainty certainty, std::string detail);
  void TakeAnswer(Call& call, uint64_t ask_n, bool is_error, Payload text);
  void OnAnswerChunk(Port& port, Call& call, const v1::Chunk& chunk);
  void Submit(Call& call, Payload params);
  v1::CancelAck::Effect CancelCall(Call& call, v1::Cancel::Why why);
  static void CheckSize(const Call& call, CallEnd& end);
  void AddOutcome(Call& call, CallEnd end);
  // The call is over; its result may be in memory until it is settled.
  void Hold(Call& call);
  // Its result is no longer in memory.
  void Release(const Call& call);
  // Moves results from memory to the spool, or lets them go if it takes none.
  void MakeRoomInMemory();
  // Lets bodies go when the spool is nearly full, the oldest first: of those that have been sent,
  // then of those whose owner is away.
  void MakeRoomInSpool();
  // False: there is none, or it has an owner that waits for it (`written`: that has not got it).
  void GiveUpBody(Call& call, bool written, std::string_view why);
  // Why no further call of that size can be taken; empty if it can.
  std::string Fullness(uint64_t params_size) const;
  void EndHere(Call& call, v1::OutcomeClass outcome_class, v1::Reason reason,
               v1::Certainty certainty, std::string detail);
  void SettleCall(Port& port, Call& call, std::vector<Settlement>& settlements);
  void Forget(Call& call);
  void ForgetSettled(Call& call);
  void ReleaseQueuedBytes(Call& call);
  void MakeReady(Call& call);
  void MakeReadySoon(Call& call);
  // Puts the call in line for its turn; false if it has nothing to send.
  bool Line(Call& call);
  void OweAck(Call& call);

  core::EventLoop& loop_;
  CallJournal& journal_;
  Spool& spool_;
  Surroundings& surroundings_;
  const AgentLimits limits_;

  core::StringMap<std::unique_ptr<Call>> calls_;
  uint64_t next_sequence_ = 1;
  uint64_t queued_bytes_ = 0;
  size_t held_ = 0;                      // of calls_: those that are over
  std::map<uint64_t, Call*> in_memory_;  // by sequence: of these, those with a result in memory
  uint64_t in_memory_bytes_ = 0;
  uint64_t bodies_lost_ = 0;
  uint64_t coalesced_ = 0;  // in outboxes that are no more
  uint64_t started_ = 0;
  uint64_t tool_errors_ = 0;
  std::map<std::pair<v1::OutcomeClass, v1::Reason>, uint64_t> ended_;
  size_t collecting_count_ = 0;
  std::vector<Port*> linked_;
  core::StringSet busy_seats_;
  bool draining_ = false;
};

}  // namespace callboard::agent
