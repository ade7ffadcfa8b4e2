// What a tool's result says about itself, found in one pass over its top level.
#pragma once

#include <string_view>

#include "callboard/v1/types.pb.h"

namespace callboard::agent {

// isError, job id and status, fields of the 2026-07-28 revision. `result` is raw JSON of any kind.
v1::OutcomeFacts FindFacts(std::string_view result);

// Whether a tools/call of that name changes what the backend lists.
bool ChangesLists(std::string_view tool);

}  // namespace callboard::agent
