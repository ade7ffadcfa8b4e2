// One text for all JSON texts that say the same, so that digests of them can be compared.
#pragma once

#include <string>
#include <string_view>

namespace callboard::core {

// `text` without white space, members of objects in the order of their decoded keys, strings with
// one way of escaping. Numbers stay as they are written: 1 and 1.0 differ. What is no JSON, or is
// nested deeper than kJsonDepthMax, stays as it is. Pure.
std::string CanonicalJson(std::string_view text);

}  // namespace callboard::core
