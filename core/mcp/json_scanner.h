// Reads JSON text token by token: the strict RFC 8259 grammar under core/mcp/json.h.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace callboard::core {

// First byte in [begin, end) that ends a run of plain string characters: a quote, a backslash or
// a control character; `end` if there is none.
const char* FindStringStop(const char* begin, const char* end);

bool IsValidUtf8(std::string_view text);
// Length of the UTF-8 sequence at `begin`; 0 if it is malformed or cut off.
size_t Utf8SequenceLength(const char* begin, const char* end);
// InvalidArgument naming the first byte that is not UTF-8.
absl::Status CheckUtf8(std::string_view text);

// A cursor over one text, which must outlive it. Methods that return bool return false at the
// first fault, which status() then describes; the scanner is of no further use. Iterative: the
// depth of nesting costs no stack. Knows nothing of UTF-8.
class JsonScanner {
 public:
  // No depth_max allows more than this.
  static constexpr int kLevelsMax = 1024;

  explicit JsonScanner(std::string_view text)
      : begin_(text.data()), position_(begin_), end_(begin_ + text.size()) {}

  void SkipSpace() {
    while (position_ != end_ &&
           (*position_ == ' ' || *position_ == '\n' || *position_ == '\r' || *position_ == '\t')) {
      ++position_;
    }
  }
  bool AtEnd() const { return position_ == end_; }
  bool At(char c) const { return position_ != end_ && *position_ == c; }
  // Consumes `c` if it stands here; else nothing happens.
  bool Take(char c) {
    if (!At(c)) return false;
    ++position_;
    return true;
  }
  const char* position() const { return position_; }

  // One value, its grammar checked throughout, with at most `depth_max` containers in each other.
  bool CheckValue(int depth_max);
  // One value; inside a container only strings, brackets and depth are checked.
  bool SkipValue(int depth_max);
  // One string; escaped() then says whether it holds escapes.
  bool SkipString();
  bool escaped() const { return escaped_; }
  // The key of a member up to the start of its value. `key` is its inner text.
  bool SkipKey(std::string_view* key);

  bool Fail(const char* at, std::string_view what) {
    fault_at_ = at;
    fault_ = what;
    return false;
  }
  bool FailHere(std::string_view what) { return Fail(position_, what); }
  absl::Status status() const;

 private:
  bool SkipEscape();
  bool SkipScalar();
  bool SkipNumber();
  bool SkipDigits();
  bool SkipWord(std::string_view word);

  const char* begin_;
  const char* position_;
  const char* end_;
  bool escaped_ = false;
  const char* fault_at_ = nullptr;
  std::string_view fault_;
};

}  // namespace callboard::core
