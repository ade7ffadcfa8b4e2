// Reads server-sent events as a client does, comments included, because gaps are told in comments.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace callboard::sim {

struct SseItem {
  bool is_comment = false;
  std::string text;  // the comment, or the data
  std::string event;
  std::optional<std::string> id;
};

// Written apart from core/mcp/sse_codec, so that one error cannot hide in both.
class SseReader {
 public:
  // False once `deliver` said that it wants no more.
  bool Feed(std::string_view bytes, absl::FunctionRef<bool(SseItem)> deliver) {
    while (true) {
      const size_t end = bytes.find('\n');
      line_.append(bytes.substr(0, end));
      if (end == std::string_view::npos) return true;
      bytes.remove_prefix(end + 1);
      const std::string line = std::move(line_);
      line_.clear();
      if (line.empty()) {
        if (!begun_) continue;
        SseItem item = std::move(item_);
        item_ = {};
        begun_ = false;
        if (!deliver(std::move(item))) return false;
      } else if (line.front() == ':') {
        const size_t start = line.find_first_not_of(": ");
        if (start == std::string::npos) continue;
        if (!deliver({.is_comment = true, .text = line.substr(start)})) return false;
      } else {
        Field(line);
      }
    }
  }

 private:
  void Field(std::string_view line) {
    const size_t colon = line.find(':');
    const std::string_view name = line.substr(0, colon);
    std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    begun_ = true;
    if (name == "data") item_.text.append(value);
    if (name == "event") item_.event = std::string(value);
    if (name == "id") item_.id = std::string(value);
  }

  std::string line_;
  SseItem item_;
  bool begun_ = false;
};

}  // namespace callboard::sim
