// SHA-256 as text, and what is made of it.
#pragma once

#include <string>
#include <string_view>

namespace callboard::core {

// 64 lower-case hex digits.
std::string Sha256Hex(std::string_view bytes);
// HMAC-SHA-256 in the same form.
std::string HmacSha256Hex(std::string_view key, std::string_view bytes);
// Equal or not in a time that tells nothing of where they differ.
bool SameSecret(std::string_view a, std::string_view b);

}  // namespace callboard::core
