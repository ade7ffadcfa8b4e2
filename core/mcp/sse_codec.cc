// Implementation of the server-sent events codec.
#include "core/mcp/sse_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// First `c` in [begin, end), else `end`.
const char* FindByte(const char* begin, const char* end, char c) {
  const void* found = std::memchr(begin, c, static_cast<size_t>(end - begin));
  return found == nullptr ? end : static_cast<const char*>(found);
}

}  // namespace

absl::Status SseDecoder::Feed(std::string_view bytes, absl::FunctionRef<void(SseEvent)> deliver) {
  const auto alive = lifetime_.Watch();
  const char* p = bytes.data();
  const char* const end = p + bytes.size();
  const char* line_feed = nullptr;  // the first one at or after p, once looked for
  while (p != end) {
    if (std::exchange(after_cr_, false) && *p == '\n') {
      ++p;
      continue;
    }
    if (line_feed == nullptr || line_feed < p) line_feed = FindByte(p, end, '\n');
    const char* const stop = FindByte(p, line_feed, '\r');
    const std::string_view piece(p, static_cast<size_t>(stop - p));
    CALLBOARD_RETURN_IF_ERROR(CheckRoom(piece.size()));
    if (stop == end) {
      line_.append(piece);
      break;
    }
    after_cr_ = *stop == '\r';
    p = stop + 1;
    if (line_.empty()) {
      EndLine(piece, deliver);
    } else {
      // Taken out of the decoder, which `deliver` may destroy; also gives large buffers back.
      std::string line = std::exchange(line_, {});
      line.append(piece);
      EndLine(line, deliver);
    }
    if (alive.expired()) return absl::CancelledError("the SSE decoder was destroyed meanwhile");
  }
  return absl::OkStatus();
}

absl::Status SseDecoder::CheckRoom(size_t more) const {
  const size_t held =
      line_.size() + event_.data.size() + event_.event.size() + (event_.id ? event_.id->size() : 0);
  if (held + more <= event_bytes_max_) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      fmt::format("an SSE event is larger than the limit of {} bytes", event_bytes_max_));
}

void SseDecoder::EndLine(std::string_view line, absl::FunctionRef<void(SseEvent)> deliver) {
  if (std::exchange(at_start_, false) && line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  if (!line.empty()) {
    const size_t colon = std::min(line.find(':'), line.size());
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    if (value.starts_with(' ')) value.remove_prefix(1);
    TakeField(line.substr(0, colon), value);
    return;
  }
  SseEvent event = std::exchange(event_, {});
  const bool has_data = std::exchange(has_data_, false);
  if (has_data || event.id || event.retry_ms) deliver(std::move(event));
}

void SseDecoder::TakeField(std::string_view name, std::string_view value) {
  if (name == "data") {
    if (std::exchange(has_data_, true)) event_.data.push_back('\n');
    event_.data.append(value);
  } else if (name == "event") {
    event_.event = value;
  } else if (name == "id") {
    if (value.find('\0') == std::string_view::npos) event_.id = value;
  } else if (name == "retry") {
    int64_t retry_ms = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, retry_ms);
    if (error == std::errc() && stop == end && !value.starts_with('-')) event_.retry_ms = retry_ms;
  }
}

std::string EncodeSseEvent(std::string_view event, std::string_view id, std::string_view data) {
  std::string text;
  text.reserve(event.size() + id.size() + data.size() + 24);
  const auto field = [&](std::string_view name, std::string_view value) {
    text.append(name).append(value).push_back('\n');
  };
  if (!event.empty()) field("event: ", event);
  if (!id.empty()) field("id: ", id);
  field("data: ", data);
  text.push_back('\n');
  return text;
}

std::string EncodeSsePriming(std::string_view id, int64_t retry_ms) {
  return fmt::format("id: {}\nretry: {}\ndata: \n\n", id, retry_ms);
}

std::string EncodeSseComment(std::string_view text) { return fmt::format(": {}\n\n", text); }

}  // namespace callboard::core
