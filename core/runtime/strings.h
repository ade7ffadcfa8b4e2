// The only place where absl::string_view and std::string_view meet (they differ on Debian 12).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace callboard::core {

inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }

// The message of a status as the project's own view type. Valid while `status` lives.
inline std::string_view Message(const absl::Status& status) { return ToStd(status.message()); }

// An error status from our own string types: MakeError(absl::StatusCode::kNotFound,
// fmt::format(...)).
inline absl::Status MakeError(absl::StatusCode code, std::string_view message) {
  return {code, ToAbsl(message)};
}

// Hash and equality by which maps keyed by std::string are asked with a std::string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
struct StringEqual {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const { return a == b; }
};

// Look-up only: its order of iteration differs in every run, so nothing may depend on it.
template <class T>
using StringMap = absl::flat_hash_map<std::string, T, StringHash, StringEqual>;
using StringSet = absl::flat_hash_set<std::string, StringHash, StringEqual>;

}  // namespace callboard::core
