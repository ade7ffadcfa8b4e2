// Implementation of lists for clients of earlier revisions.
#include "bridge/earlier_tools.h"

#include "core/mcp/json.h"

namespace callboard::bridge {
namespace {

constexpr std::string_view kSchema = "outputSchema";

}  // namespace

std::optional<std::string> ForEarlierClient(std::string_view tools) {
  if (tools.find(kSchema) == std::string_view::npos) return std::nullopt;
  std::string list;
  bool changed = false;
  const absl::Status read = core::ForEachElement(tools, [&](std::string_view tool) {
    list.append(list.empty() ? "[" : ",");
    const auto schema = core::FindMember(tool, kSchema);
    if (schema && core::FindString(*schema, "type") != "object") {
      changed = true;
      list.append(core::RemoveMember(tool, kSchema));
    } else {
      list.append(tool);
    }
    return true;
  });
  if (!read.ok() || !changed) return std::nullopt;
  return list + "]";
}

}  // namespace callboard::bridge
