// Numbers in text, compared by what they mean: 1.0 is 1, and 2 is less than 10.
#pragma once

#include <compare>
#include <string_view>

namespace callboard::core {

// Exact where both are integers within int64, else as doubles; unordered if one is no number or is
// out of a double's range. Pure.
std::partial_ordering CompareNumbers(std::string_view a, std::string_view b);

}  // namespace callboard::core
