// Words the validator's findings for people: place, expectation, value.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <vector>

namespace callboard::server {

// As valijson tells it: {"<root>", "[name]", "[0]"} and a sentence.
struct RawViolation {
  std::vector<std::string> context;
  std::string description;
};

// At most five texts such as `/radius: expected number, got string "big"`, at least one. `schema`
// is the reduced schema that `value` was checked against. Pure.
std::vector<std::string> ExplainViolations(const boost::json::value& schema,
                                           const boost::json::value& value,
                                           std::vector<RawViolation> violations);

}  // namespace callboard::server
