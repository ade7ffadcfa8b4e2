// Server-sent events (WHATWG HTML, "Server-sent events"): decoder of a byte stream and encoder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/runtime/lifetime.h"

namespace callboard::core {

struct SseEvent {
  std::string event;              // empty: "message"
  std::string data;               // lines joined by LF
  std::optional<std::string> id;  // set only if the event had an id field (may be empty)
  std::optional<int64_t> retry_ms;
};

// Decodes events from pieces of any size. CR, LF and CRLF end lines; a byte order mark at the very
// beginning is skipped; comments and unknown fields are ignored. An event without data is delivered
// too if it has an id or a retry time (priming and "come back later" of MCP 2025-11-25); comments
// never are. Where the bytes are cut changes nothing. Loop thread only; owned by the reader
// of the stream and may be destroyed by `deliver`.
class SseDecoder {
 public:
  explicit SseDecoder(size_t event_bytes_max) : event_bytes_max_(event_bytes_max) {}

  // Calls `deliver` for each event completed by `bytes`. ResourceExhausted if one event grows
  // beyond event_bytes_max (unfinished line included): the decoder is then of no further use.
  // Cancelled if `deliver` destroyed the decoder; no event is delivered after that.
  absl::Status Feed(std::string_view bytes, absl::FunctionRef<void(SseEvent)> deliver);

 private:
  // Checks that the event may grow by `more` bytes.
  absl::Status CheckRoom(size_t more) const;
  void EndLine(std::string_view line, absl::FunctionRef<void(SseEvent)> deliver);
  void TakeField(std::string_view name, std::string_view value);

  size_t event_bytes_max_;
  // What has come of a line that is not complete.
  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool after_cr_ = false;
  bool at_start_ = true;
  Lifetime lifetime_;
};

// One event as bytes, with its blank line. `data` must be one line (see FlattenLines); `id` and
// `event` may be empty (left out).
std::string EncodeSseEvent(std::string_view event, std::string_view id, std::string_view data);
// A priming event: id, retry and empty data (MCP 2025-11-25, "Resumability").
std::string EncodeSsePriming(std::string_view id, int64_t retry_ms);
// A comment line with its blank line.
std::string EncodeSseComment(std::string_view text);

}  // namespace callboard::core
