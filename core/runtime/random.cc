// Implementation of the random sources.
#include "core/runtime/random.h"

#include <sys/random.h>

#include <cstdlib>

namespace callboard::core {

std::string Random::Bytes(size_t count) {
  std::string bytes;
  bytes.reserve(count + 7);
  while (bytes.size() < count) {
    uint64_t word = Next64();
    for (int i = 0; i < 8; ++i, word >>= 8) bytes.push_back(static_cast<char>(word & 0xff));
  }
  bytes.resize(count);
  return bytes;
}

std::string Random::Hex(size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * count);
  for (char c : Bytes(count)) {
    const auto byte = static_cast<unsigned char>(c);
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

uint64_t SecureRandom::Next64() {
  if (left_ == 0) {
    // Requests of up to 256 bytes are never interrupted (getrandom(2)); failure means no entropy
    // source at all, and no id may then be handed out.
    if (getrandom(buffer_, sizeof buffer_, 0) != static_cast<ssize_t>(sizeof buffer_)) std::abort();
    left_ = std::size(buffer_);
  }
  return buffer_[--left_];
}

}  // namespace callboard::core
