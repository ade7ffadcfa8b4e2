// One numbered stream of a session: what may be replayed to a client that comes back.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/replay_log.h"

namespace callboard::server {

// The place of an event within its stream. A term begins at n = 1; an older one ended somewhere.
struct StreamPosition {
  uint64_t term = 0;
  uint64_t n = 0;
  auto operator<=>(const StreamPosition&) const = default;
};

// One event of a stream, with its id in place. A body over 64 KiB is not in here: its outcome has
// a size and the body is asked of the agent anew.
struct StreamItem {
  std::variant<v1::StreamEvent, v1::AskEvent, v1::CallOutcome> event;
  uint64_t call_n = 0;   // number of the agent's event it came from; 0 if it was made here
  uint32_t attempt = 0;  // of the call, that call_n belongs to
};

inline StreamPosition PositionOf(const StreamItem& item) {
  return std::visit(
      [](const auto& event) { return StreamPosition{event.id().term(), event.id().n()}; },
      item.event);
}

// Who reads a stream at the moment. Never called from inside a method that the reader called.
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  // Something was appended.
  virtual void Wake() = 0;
  // The stream goes on without this reader: "taken_over", "session_ended", "drain".
  virtual void EndReading(const char* reason) = 0;
  // The newest item the reader has done with.
  virtual StreamPosition consumed() const = 0;
  // Whether it is told the states of the stream's call. Only the newest waits.
  virtual bool wants_status() const { return false; }
  virtual void SetStatus(v1::CallStatus) {}
};

// Events of one term that the store holds, without a hole.
struct StoredRange {
  uint64_t term = 0;
  uint64_t first = 0;
  uint64_t last = 0;
  size_t bytes = 0;
  uint64_t age = 0;   // grows from range to range over all streams
  absl::Time stored;  // the newest of them
  // It is the outcome alone, in the record of the stream's call.
  bool in_record = false;
};

// Owned by its session (or by its call if there is no session), shared with the call and reader.
//
// `log` holds the newest events of this term. What is older has left memory and is read from the
// store: ranges of `stored` below the log's floor, and all of former terms.
struct Stream : std::enable_shared_from_this<Stream> {
  explicit Stream(core::ReplayLog<StreamItem>::Limits limits) : log(limits) {}

  static constexpr int64_t kUnannounced = -1;

  uint64_t number = 0;  // 0: the session's own (GET) stream
  // In which it was opened; 0: not known. What a failing store has lost may have had its number.
  uint64_t first_term = 0;
  std::string session_id;  // empty: the events have no ids and nothing is replayed
  std::string call_id;     // of streams other than 0
  core::ReplayLog<StreamItem> log;
  bool finished = false;  // the outcome is in the log
  StreamReader* reader = nullptr;
  absl::Time idle_since;  // when the reader left or the outcome came, whichever was later
  // Former readers were given this term's events up to here: who names none goes on behind it.
  StreamPosition read_to;

  // Readers are shown this term's items up to here; kUnannounced: not even that there is a stream.
  int64_t readable = 0;
  uint64_t barrier = 0;    // the newest item that must be durable before it is shown
  uint64_t stored_to = 0;  // this term's items up to here have been given to the store
  bool recorded = false;   // so has a record of its own
  std::deque<StoredRange> stored;
  StreamPosition former_last;  // newest event of former terms; {0, 0}: none
  // What the bounds have cost: all up to this event, and how many.
  StreamPosition dropped_through;
  uint64_t dropped = 0;

  // Events that can be replayed.
  uint64_t kept() const {
    uint64_t events = log.last() - std::max(stored_to, log.floor());
    for (const StoredRange& range : stored) events += range.last - range.first + 1;
    return events;
  }
  StreamPosition last(uint64_t term) const {
    return log.last() > 0 ? StreamPosition{term, log.last()} : former_last;
  }
};

}  // namespace callboard::server
