// One numbered stream of a session: what may be replayed to a client that comes back.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/replay_log.h"

namespace callboard::server {

// One event of a stream, with its id in place. A body over 64 KiB is not in here: its outcome has
// a size and the body is asked of the agent anew.
struct StreamItem {
  std::variant<v1::StreamEvent, v1::AskEvent, v1::CallOutcome> event;
  uint64_t call_n = 0;  // number of the agent's event it came from; 0 if it was made here
};

// Who reads a stream at the moment. Never called from inside a method that the reader called.
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  // Something was appended.
  virtual void Wake() = 0;
  // The stream goes on without this reader: "taken_over", "session_ended", "drain".
  virtual void EndReading(const char* reason) = 0;
  // Number of the newest item the reader has done with.
  virtual uint64_t consumed() const = 0;
};

// Owned by its session (or by its call if there is no session), shared with the call and reader.
struct Stream {
  explicit Stream(core::ReplayLog<StreamItem>::Limits limits) : log(limits) {}

  uint64_t number = 0;     // 0: the session's own (GET) stream
  std::string session_id;  // empty: the events have no ids and nothing is replayed
  std::string call_id;     // of streams other than 0
  core::ReplayLog<StreamItem> log;
  bool finished = false;  // the outcome is in the log
  StreamReader* reader = nullptr;
  absl::Time idle_since;  // when the reader left or the outcome came, whichever was later
};

}  // namespace callboard::server
