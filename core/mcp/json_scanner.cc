// Implementation of JsonScanner.
#include "core/mcp/json_scanner.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/runtime/strings.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace callboard::core {
namespace {

bool IsStringStop(char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// The bytes at which the structure of a value may change.
constexpr std::array<bool, 256> kIsStructure = [] {
  std::array<bool, 256> table = {};
  for (const char c : {'"', '{', '}', '[', ']'}) table[static_cast<unsigned char>(c)] = true;
  return table;
}();

// Which of the open containers are objects: one bit a level.
class Nesting {
 public:
  void Open(int level, bool object) {
    uint64_t& word = words_[static_cast<size_t>(level) / 64];
    const uint64_t bit = uint64_t{1} << (level % 64);
    word = object ? word | bit : word & ~bit;
  }
  bool IsObject(int level) const {
    return (words_[static_cast<size_t>(level) / 64] >> (level % 64) & 1) != 0;
  }

 private:
  std::array<uint64_t, JsonScanner::kLevelsMax / 64> words_ = {};
};

constexpr std::string_view kTooDeep = "nested too deeply";
constexpr std::string_view kUnclosed = "the text ends inside an object or array";

}  // namespace

const char* FindStringStop(const char* begin, const char* end) {
  const char* p = begin;
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i last_control = _mm_set1_epi8(0x1f);
  for (; end - p >= 16; p += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(block, last_control), block);
    const __m128i stop = _mm_or_si128(
        control, _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash)));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(stop));
    if (mask != 0) return p + std::countr_zero(mask);
  }
#else
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kHighs = 0x8080808080808080;
  const auto has_zero = [](uint64_t x) { return (x - kOnes) & ~x & kHighs; };
  for (; end - p >= 8; p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    const uint64_t control = (word - kOnes * 0x20) & ~word & kHighs;
    if ((control | has_zero(word ^ (kOnes * '"')) | has_zero(word ^ (kOnes * '\\'))) != 0) break;
  }
#endif
  while (p != end && !IsStringStop(*p)) ++p;
  return p;
}

bool IsValidUtf8(std::string_view text) {
  return text.empty() || simdjson::validate_utf8(text.data(), text.size());
}

size_t Utf8SequenceLength(const char* begin, const char* end) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(begin[i]); };
  const auto left = static_cast<size_t>(end - begin);
  if (left == 0) return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || left < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return length;
}

absl::Status CheckUtf8(std::string_view text) {
  if (IsValidUtf8(text)) return absl::OkStatus();
  const char* p = text.data();
  const char* const end = p + text.size();
  while (const size_t length = Utf8SequenceLength(p, end)) p += length;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   fmt::format("invalid JSON at byte {}: 0x{:02x} is not valid UTF-8 here",
                               p - text.data(), static_cast<unsigned char>(*p)));
}

absl::Status JsonScanner::status() const {
  if (fault_.empty()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   fmt::format("invalid JSON at byte {}: {}", fault_at_ - begin_, fault_));
}

bool JsonScanner::CheckValue(int depth_max) {
  depth_max = std::min(depth_max, kLevelsMax);
  Nesting nesting;
  int depth = 0;
  std::string_view key;
  for (;;) {
    if (At('{') || At('[')) {
      if (depth >= depth_max) return FailHere(kTooDeep);
      const bool object = *position_ == '{';
      ++position_;
      SkipSpace();
      if (!Take(object ? '}' : ']')) {
        nesting.Open(depth++, object);
        if (object && !SkipKey(&key)) return false;
        continue;
      }
    } else if (!(At('"') ? SkipString() : SkipScalar())) {
      return false;
    }
    // A value has ended; so may the containers around it.
    for (;;) {
      if (depth == 0) return true;
      const bool object = nesting.IsObject(depth - 1);
      SkipSpace();
      if (Take(',')) {
        SkipSpace();
        if (object && !SkipKey(&key)) return false;
        break;
      }
      if (AtEnd()) return FailHere(kUnclosed);
      if (!Take(object ? '}' : ']')) {
        return FailHere(object ? "expected ',' or '}'" : "expected ',' or ']'");
      }
      --depth;
    }
  }
}

bool JsonScanner::SkipValue(int depth_max) {
  if (At('"')) return SkipString();
  if (!At('{') && !At('[')) return SkipScalar();
  depth_max = std::min(depth_max, kLevelsMax);
  Nesting nesting;
  int depth = 0;
  for (;;) {
    while (position_ != end_ && !kIsStructure[static_cast<unsigned char>(*position_)]) ++position_;
    if (AtEnd()) return FailHere(kUnclosed);
    switch (*position_) {
      case '"':
        if (!SkipString()) return false;
        break;
      case '{':
      case '[':
        if (depth >= depth_max) return FailHere(kTooDeep);
        nesting.Open(depth++, *position_++ == '{');
        break;
      case '}':
      case ']':
        if (nesting.IsObject(--depth) != (*position_ == '}')) return FailHere("wrong bracket");
        ++position_;
        if (depth == 0) return true;
        break;
      default:
        break;
    }
  }
}

bool JsonScanner::SkipString() {
  const char* const start = position_++;
  escaped_ = false;
  for (;;) {
    position_ = FindStringStop(position_, end_);
    if (AtEnd()) return Fail(start, "string without closing quote");
    if (Take('"')) return true;
    if (*position_ != '\\') return FailHere("control character in a string; escape it");
    escaped_ = true;
    if (!SkipEscape()) return false;
  }
}

bool JsonScanner::SkipEscape() {
  const char* const start = position_++;
  if (AtEnd()) return Fail(start, "the text ends inside an escape");
  const char kind = *position_++;
  if (kind != 'u') {
    if (std::memchr("\"\\/bfnrt", kind, 8) == nullptr) return Fail(start, "unknown escape");
    return true;
  }
  for (int i = 0; i < 4; ++i, ++position_) {
    if (AtEnd() || !IsHexDigit(*position_)) return Fail(start, "\\u needs four hex digits");
  }
  return true;
}

bool JsonScanner::SkipKey(std::string_view* key) {
  if (!At('"')) return FailHere("expected a key in quotes");
  const char* const start = position_ + 1;
  if (!SkipString()) return false;
  *key = {start, static_cast<size_t>(position_ - start - 1)};
  SkipSpace();
  if (!Take(':')) return FailHere("expected ':' after a key");
  SkipSpace();
  return true;
}

bool JsonScanner::SkipScalar() {
  if (AtEnd()) return FailHere("expected a value, but the text ends");
  switch (*position_) {
    case 't':
      return SkipWord("true");
    case 'f':
      return SkipWord("false");
    case 'n':
      return SkipWord("null");
    default:
      return SkipNumber();
  }
}

bool JsonScanner::SkipWord(std::string_view word) {
  if (!std::string_view(position_, static_cast<size_t>(end_ - position_)).starts_with(word)) {
    return FailHere("expected a value");
  }
  position_ += word.size();
  return true;
}

bool JsonScanner::SkipNumber() {
  if (!Take('-') && !IsDigit(*position_)) return FailHere("expected a value");
  if (!Take('0') && !SkipDigits()) return false;
  if (Take('.') && !SkipDigits()) return false;
  if (Take('e') || Take('E')) {
    if (!Take('+')) Take('-');
    return SkipDigits();
  }
  return true;
}

bool JsonScanner::SkipDigits() {
  const char* const start = position_;
  while (position_ != end_ && IsDigit(*position_)) ++position_;
  return position_ != start || FailHere("expected a digit");
}

}  // namespace callboard::core
