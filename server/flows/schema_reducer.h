// Rewrites JSON Schemas into the subset that the validator decides soundly.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <optional>

namespace callboard::server {

struct ReducedSchema {
  boost::json::value schema;
  size_t nodes = 0;
  bool saw_patterns = false;  // the original has patterns, whether they were kept or not
};

// A schema without references that holds only keywords which draft 7 and 2020-12 mean alike, and
// that accepts at least what the original accepts: what is not known is left out, except where
// leaving out would make it stricter; there the whole keyword goes. Bounded in depth and size, also
// for schemas that contain themselves. nullopt: no object, or its dialect is not known. Pure.
std::optional<ReducedSchema> ReduceSchema(const boost::json::value& schema, bool with_patterns);

}  // namespace callboard::server
