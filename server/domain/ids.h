// Names of calls: sixteen bytes, kept by value so that tables of calls need no allocation.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "core/runtime/random.h"

namespace callboard::server {

// Unique in the world; it is also the receipt a caller may ask for later. A UUID of version 7
// (RFC 9562, 5.7): the time comes first, so that calls of the same time are neighbours in the
// store, then 74 random bits.
struct CallId {
  std::array<char, 16> bytes{};

  static CallId New(core::Random& random, int64_t unix_ms) {
    CallId id;
    const uint64_t first =
        (static_cast<uint64_t>(unix_ms) << 16) | 0x7000 | (random.Next64() >> 52);
    const uint64_t second = (uint64_t{2} << 62) | (random.Next64() >> 2);
    for (size_t i = 0; i < 8; ++i) {
      id.bytes[i] = static_cast<char>(first >> (56 - 8 * i));
      id.bytes[8 + i] = static_cast<char>(second >> (56 - 8 * i));
    }
    return id;
  }
  // nullopt if `raw` does not have the length of a call id.
  static std::optional<CallId> From(std::string_view raw) {
    if (raw.size() != 16) return std::nullopt;
    CallId id;
    std::memcpy(id.bytes.data(), raw.data(), 16);
    return id;
  }
  std::string str() const { return {bytes.data(), bytes.size()}; }
  // Lower-case hex digits, for people and for ask ids.
  std::string hex() const;
  static std::optional<CallId> FromHex(std::string_view digits);

  auto operator<=>(const CallId&) const = default;

  template <class H>
  friend H AbslHashValue(H state, const CallId& id) {
    uint64_t half = 0;  // the random one spreads well enough
    std::memcpy(&half, id.bytes.data() + 8, 8);
    return H::combine(std::move(state), half);
  }
};

}  // namespace callboard::server
