// Cuts a stream of server-sent events into JSON-RPC messages without holding a large one in memory.
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "backend_agent/payload.h"
#include "backend_agent/spool.h"

namespace callboard::agent {

// Data of events goes to a PayloadBuilder as it comes; event names, ids, retry times and comments
// are of no use here (a reply stream is not resumed). CR, LF and CRLF end lines. Owned by the
// reader of one stream; `deliver` must not destroy it.
class SseMessageReader {
 public:
  SseMessageReader(Spool& spool, uint64_t message_bytes_max) : builder_(spool, message_bytes_max) {}

  // Calls `deliver` for each event that carries data. ResourceExhausted: a message is larger than
  // the limit; the reader is then of no further use.
  absl::Status Feed(std::string_view bytes, absl::FunctionRef<void(Payload)> deliver);

 private:
  enum class Part { kName, kAfterColon, kData, kIgnored };

  absl::Status EndLine(absl::FunctionRef<void(Payload)> deliver);

  PayloadBuilder builder_;
  Part part_ = Part::kName;
  std::string name_;  // of the field, as far as it matters
  bool line_empty_ = true;
  bool has_data_ = false;  // the event has at least one data line
  bool after_cr_ = false;
};

}  // namespace callboard::agent
