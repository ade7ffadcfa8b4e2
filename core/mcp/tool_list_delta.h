// What changed between two tool lists, and the newer list made anew from it, byte for byte.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace callboard::core {

struct ToolListChange {
  std::string name;
  bool removed = false;
  std::string after;  // the tool it follows in the newer list; empty: it is the first
};

// `body` is {"tools":[...]} with the changed tools in the order of their changes. Lists are of the
// same form, their elements separated by commas alone.
struct ToolListDelta {
  std::vector<ToolListChange> changes;
  std::string body;
};

// nullopt: no delta can say it (tools without a name or two with one, another order of what
// stayed), or it would be no shorter than half of the newer list.
std::optional<ToolListDelta> MakeToolListDelta(std::string_view base, std::string_view list);

// FailedPrecondition: the changes do not belong to that list.
absl::StatusOr<std::string> ApplyToolListDelta(std::string_view base,
                                               const std::vector<ToolListChange>& changes,
                                               std::string_view body);

}  // namespace callboard::core
