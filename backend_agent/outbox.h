// The events of one call on their way to the control plane.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backend_agent/frame_builder.h"
#include "backend_agent/payload.h"
#include "callboard/v1/agent.pb.h"

namespace callboard::agent {

// Numbers events when they are first written, keeps them until they are acknowledged (an outcome:
// as long as the outbox lives), and stops at the call's window. Loop thread only; owned by a Call.
//
// Bounds: what has no window is coalesced: of Queued and Progress only the newest waits, of logs
// and other notifications logs_max, after which the oldest are counted and reported as one log.
class Outbox final {
 public:
  // `window` bounds what waits until Attach() gives the agreed one.
  Outbox(uint32_t window, size_t logs_max) : window_(window), logs_max_(logs_max) {}

  void AddQueued(uint32_t ahead);
  void AddStarted(uint64_t incarnation);
  void AddProgress(Payload params);
  void AddLog(Payload params);
  void AddNotification(std::string method, Payload params);
  // `ask`: the seat's number of it.
  void AddAsk(uint64_t ask, std::string method, Payload params);
  // An answer is no longer wanted. One that has not been written is never sent.
  void CancelAsk(uint64_t ask, Payload params);
  // The seat's number of the ask that was written as event `n`; nullopt: there is none, or it has
  // been answered. It counts as answered from now on.
  std::optional<uint64_t> TakeAsk(uint64_t n);
  // `outcome.body` is ignored: the text is `body`.
  void AddOutcome(v1::Outcome outcome, Payload body);
  // While detached, or when all has been written: lets the body of the outcome go, and says that
  // it is lost to whoever asks for it from now on. False: there is none.
  bool LoseBody();
  // Of the outcome; empty before there is one.
  const Payload& body() const;
  // The same text in another place.
  void MoveBody(Payload body) { events_.back().body = std::move(body); }

  // The control plane takes events from now on. It holds all events up to `have_n` and
  // `have_offset` bytes of the body of the next; the event whose body is continued begins with its
  // header again. `window` is the first window; one that has been raised meanwhile stays if already
  // attached.
  void Attach(uint64_t have_n, uint64_t have_offset, uint32_t window);
  // Events wait from now on.
  void Detach() { attached_ = false; }
  bool attached() const { return attached_; }

  // Consumed up to here. `window` replaces the present one unless it is 0.
  void Acknowledge(uint64_t n, uint64_t offset, uint32_t window);

  // Some window is left and something waits for it.
  bool CanSend() const { return attached_ && cursor_ < events_.size() && in_flight_ < window_; }
  // Everything has been written.
  bool drained() const { return cursor_ == events_.size(); }
  // Writes what may go, in order, about `turn` bytes. False: the frame is full.
  bool Fill(FrameBuilder& frame, const std::string& call_id, uint32_t attempt, size_t turn);

  // Number of the newest event ever written.
  uint64_t last_n() const { return last_n_; }
  size_t size() const { return events_.size(); }
  uint64_t coalesced() const { return coalesced_; }

 private:
  enum class Kind : uint8_t {
    kQueued,
    kStarted,
    kProgress,
    kLog,
    kNotification,
    kAsk,
    kAskCancelled,
    kLogsLost,
    kOutcome
  };

  struct Event {
    Kind kind;
    uint64_t n = 0;          // 0: not written yet
    uint64_t value = 0;      // ahead, incarnation, the number of lost logs, the ask, the n of one
    uint64_t sent_to = 0;    // bytes of the body written since Attach, from its beginning
    uint64_t in_flight = 0;  // of these, not acknowledged
    Payload body;
    std::string method;
    std::unique_ptr<v1::Outcome> outcome;
  };

  void Append(Event event);
  bool OverWindow() const { return in_flight_ + waiting_bytes_ >= window_; }
  void AddBounded(Event event);
  void EraseUnwritten(size_t index);
  void Advance();
  void FillHeader(Event& event, v1::CallEvent& item);
  void CountSent(Event& event, uint64_t bytes);

  std::deque<Event> events_;
  std::map<uint64_t, uint64_t> asks_;  // written and not answered: the seat's numbers by n
  size_t cursor_ = 0;                  // the event that is written next
  uint64_t offset_ = 0;
  bool header_written_ = false;
  uint64_t last_n_ = 0;
  bool attached_ = false;
  bool ended_ = false;
  uint64_t window_;
  uint64_t in_flight_ = 0;      // body bytes written and not acknowledged
  uint64_t waiting_bytes_ = 0;  // body bytes of events that have no number yet
  size_t logs_max_;
  size_t logs_waiting_ = 0;
  uint64_t coalesced_ = 0;
};

}  // namespace callboard::agent
