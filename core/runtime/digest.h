// SHA-256 as text.
#pragma once

#include <string>
#include <string_view>

namespace callboard::core {

// 64 lower-case hex digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace callboard::core
