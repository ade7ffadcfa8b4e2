// A JSON text read whole for checking against schemas, with exact numbers.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"

namespace callboard::server {

inline constexpr size_t kPatternTextMax = 256;  // longer texts are matched against no pattern

// Integral numbers are int64, however they were written, so that 1.0 equals 1.
struct JsonDocument {
  boost::json::value value;
  size_t nodes = 0;
  bool huge_number = false;  // one that a double does not hold exactly: it is rounded
  bool nul = false;          // a text with U+0000 in it
  bool plain_texts = true;   // all texts are ASCII and at most kPatternTextMax long
};

// An error if `raw` is no JSON or more than 64 values deep.
absl::StatusOr<JsonDocument> ReadJsonDocument(std::string_view raw);

}  // namespace callboard::server
