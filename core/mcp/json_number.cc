// Implementation of CompareNumbers.
#include "core/mcp/json_number.h"

#include <charconv>
#include <cstdint>
#include <optional>

namespace callboard::core {
namespace {

template <class Number>
std::optional<Number> ParseAll(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::partial_ordering CompareNumbers(std::string_view a, std::string_view b) {
  const auto whole_a = ParseAll<int64_t>(a);
  const auto whole_b = ParseAll<int64_t>(b);
  if (whole_a && whole_b) return *whole_a <=> *whole_b;
  const auto real_a = ParseAll<double>(a);
  const auto real_b = ParseAll<double>(b);
  if (!real_a || !real_b) return std::partial_ordering::unordered;
  return *real_a <=> *real_b;
}

}  // namespace callboard::core
