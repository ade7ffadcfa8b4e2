// Names of calls: sixteen random bytes, kept by value so that tables of calls need no allocation.
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

// Unique in the world; it is also the receipt a caller may ask for later.
struct CallId {
  std::array<char, 16> bytes{};

  static CallId New(core::Random& random) {
    CallId id;
    for (size_t half = 0; half < 2; ++half) {
      const uint64_t value = random.Next64();
      std::memcpy(id.bytes.data() + half * 8, &value, 8);
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
    uint64_t half = 0;  // random already: one half spreads well enough
    std::memcpy(&half, id.bytes.data(), 8);
    return H::combine(std::move(state), half);
  }
};

}  // namespace callboard::server
