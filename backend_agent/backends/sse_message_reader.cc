// Implementation of SseMessageReader.
#include "backend_agent/backends/sse_message_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace callboard::agent {

namespace {

constexpr std::string_view kData = "data";
// "\xEF\xBB\xBFdata": with the byte order mark a stream may begin with.
constexpr size_t kNameBytesMax = 8;
constexpr size_t kValueBytesMax = 1024;

// Up to the end of the line, if it is there. find_first_of would cost a call for each byte.
size_t LineBytes(std::string_view bytes) {
  const auto end =
      std::find_if(bytes.begin(), bytes.end(), [](char c) { return c == '\n' || c == '\r'; });
  return static_cast<size_t>(end - bytes.begin());
}

}  // namespace

absl::Status SseMessageReader::Feed(std::string_view bytes,
                                    absl::FunctionRef<void(Payload)> deliver) {
  while (!bytes.empty()) {
    const char c = bytes.front();
    if (after_cr_) {
      after_cr_ = false;
      if (c == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    if (c == '\r' || c == '\n') {
      after_cr_ = c == '\r';
      bytes.remove_prefix(1);
      if (absl::Status status = EndLine(deliver); !status.ok()) return status;
      continue;
    }
    line_empty_ = false;
    switch (part_) {
      case Part::kName:
        bytes.remove_prefix(1);
        if (c == ':') {
          if (name_.starts_with("\xEF\xBB\xBF")) name_.erase(0, 3);
          part_ = name_ == kData ? Part::kAfterColon : Part::kBeforeValue;
          if (part_ == Part::kAfterColon) {
            if (has_data_) {
              if (absl::Status status = builder_.Append("\n"); !status.ok()) return status;
            }
            has_data_ = true;
          }
        } else if (name_.size() < kNameBytesMax) {
          name_.push_back(c);
        }
        break;
      case Part::kAfterColon:
        part_ = Part::kData;
        if (c == ' ') bytes.remove_prefix(1);
        break;
      case Part::kData: {
        const size_t end = LineBytes(bytes);
        if (absl::Status status = builder_.Append(bytes.substr(0, end)); !status.ok()) {
          return status;
        }
        bytes.remove_prefix(end);
        break;
      }
      case Part::kBeforeValue:
        part_ = Part::kValue;
        if (c == ' ') bytes.remove_prefix(1);
        break;
      case Part::kValue: {
        const size_t end = LineBytes(bytes);
        const size_t room = kValueBytesMax - value_.size();
        value_cut_ = value_cut_ || end > room;
        value_.append(bytes.substr(0, std::min(end, room)));
        bytes.remove_prefix(end);
        break;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status SseMessageReader::EndLine(absl::FunctionRef<void(Payload)> deliver) {
  part_ = Part::kName;
  if (!line_empty_) {
    line_empty_ = true;
    TakeField();
    name_.clear();
    value_.clear();
    value_cut_ = false;
    return absl::OkStatus();
  }
  has_data_ = false;
  if (next_id_) last_id_ = *std::exchange(next_id_, std::nullopt);
  // Without data, or with empty data: a priming event.
  if (!builder_.empty()) deliver(builder_.Take());
  event_.clear();
  return absl::OkStatus();
}

void SseMessageReader::TakeField() {
  if (name_ == "id") {
    if (value_.find('\0') == std::string::npos) next_id_ = value_cut_ ? "" : value_;
  } else if (name_ == "event") {
    event_ = value_;
  } else if (name_ == "retry") {
    int64_t ms = 0;
    const char* const end = value_.data() + value_.size();
    const auto [stop, error] = std::from_chars(value_.data(), end, ms);
    if (error == std::errc() && stop == end && ms >= 0) retry_ = absl::Milliseconds(ms);
  }
}

}  // namespace callboard::agent
