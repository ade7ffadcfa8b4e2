// Cuts a stream of server-sent events into JSON-RPC messages without holding a large one in memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backend_agent/payload.h"
#include "backend_agent/spool.h"

namespace callboard::agent {

// Data of events goes to a PayloadBuilder as it comes; of the other fields only short values are
// kept. CR, LF and CRLF end lines. Owned by the reader of one stream; `deliver` must not destroy
// it.
class SseMessageReader {
 public:
  SseMessageReader(Spool& spool, uint64_t message_bytes_max) : builder_(spool, message_bytes_max) {}

  // Calls `deliver` for each event that carries data. ResourceExhausted: a message is larger than
  // the limit; the reader is then of no further use.
  absl::Status Feed(std::string_view bytes, absl::FunctionRef<void(Payload)> deliver);

  // While `deliver` runs: the name of the event it is given; empty for "message".
  const std::string& event() const { return event_; }
  // Of the last event that was complete, without data too: where to go on. Empty: there is none, or
  // it is longer than 1 KiB.
  const std::string& last_id() const { return last_id_; }
  // The last `retry:` of the stream.
  std::optional<absl::Duration> retry() const { return retry_; }

 private:
  enum class Part { kName, kAfterColon, kData, kBeforeValue, kValue };

  void TakeField();

  absl::Status EndLine(absl::FunctionRef<void(Payload)> deliver);

  PayloadBuilder builder_;
  Part part_ = Part::kName;
  std::string name_;   // of the field, as far as it matters
  std::string value_;  // of a field that is no data
  bool value_cut_ = false;
  std::string event_;
  std::string last_id_;
  std::optional<std::string> next_id_;  // of the event that is not complete
  std::optional<absl::Duration> retry_;
  bool line_empty_ = true;
  bool has_data_ = false;  // the event has at least one data line
  bool after_cr_ = false;
};

}  // namespace callboard::agent
