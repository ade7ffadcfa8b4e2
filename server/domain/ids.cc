// Implementation of CallId's text form.
#include "server/domain/ids.h"

namespace callboard::server {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string CallId::hex() const {
  std::string text;
  text.reserve(32);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::optional<CallId> CallId::FromHex(std::string_view digits) {
  if (digits.size() != 32) return std::nullopt;
  CallId id;
  for (size_t i = 0; i < 16; ++i) {
    const size_t high = kDigits.find(digits[2 * i]);
    const size_t low = kDigits.find(digits[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    id.bytes[i] = static_cast<char>(high * 16 + low);
  }
  return id;
}

}  // namespace callboard::server
