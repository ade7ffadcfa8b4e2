// Implementation of ChooseTools.
#include "server/domain/tool_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/mcp/json.h"
#include "core/runtime/digest.h"

namespace callboard::server {
namespace {

constexpr size_t kIdPrefixMin = 8;
constexpr std::string_view kStubPrefix = "__skill__";
constexpr std::string_view kOriginKey = "callboard/origin";  // of a tool's _meta

using Patterns = std::vector<std::string_view>;

bool Chosen(const ToolInfo& tool, const Patterns& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&tool](std::string_view pattern) {
    return (tool.unloaded_skill.empty() || pattern.starts_with(kStubPrefix)) &&
           core::FitsPattern(pattern, tool.name);
  });
}

// As the seat defines it, under a name of ours; what it was made from stands beside.
std::string Named(const std::string& definition, std::string_view name, const ToolOrigin& origin) {
  const std::string from =
      core::JsonObject().String("instance", origin.seat_id).String("tool", origin.tool).Take();
  return core::SetPath(core::SetMember(definition, "name", core::QuoteJson(name)),
                       {"_meta", kOriginKey}, from);
}

}  // namespace

bool SelectsSeat(const core::ToolSelector& selector, std::string_view seat_id,
                 const OfferingSeat& seat) {
  if (!core::FitsPattern(selector.app, seat.app)) return false;
  if (core::FitsPattern(selector.instance, seat.name)) return true;
  const std::string id = absl::AsciiStrToLower(core::ToAbsl(selector.instance));
  return core::FitsPattern(id, seat_id) || (id.size() >= kIdPrefixMin && seat_id.starts_with(id));
}

ToolChoice ChooseTools(const std::vector<core::ToolSelector>& selectors, const OfferingSeats& seats,
                       ToolChoiceLimits limits) {
  ToolChoice choice;
  std::vector<ToolOrigin> origins;
  std::vector<const ToolInfo*> tools;
  for (const auto& [seat_id, seat] : seats) {
    if (!seat.offers || seat.list == nullptr) continue;
    Patterns patterns;
    for (const core::ToolSelector& selector : selectors) {
      if (SelectsSeat(selector, seat_id, seat)) patterns.push_back(selector.tool);
    }
    if (patterns.empty()) continue;
    for (const ToolInfo& tool : seat.list->tools) {
      if (!Chosen(tool, patterns)) continue;
      if (tools.size() >= limits.tools_max) {
        ++choice.left_out;
        continue;
      }
      origins.push_back({seat_id, seat.app, tool.name, seat.name});
      tools.push_back(&tool);
    }
  }
  const std::vector<std::string> names = MakeToolNames(origins, limits.name_characters_max);
  std::vector<size_t> order(names.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return names[a] < names[b]; });

  std::string array(1, '[');
  for (const size_t i : order) {
    if (array.size() > 1) array += ',';
    array += Named(tools[i]->definition, names[i], origins[i]);
    choice.by_name.emplace(names[i], std::move(origins[i]));
  }
  array += ']';
  choice.digest = core::Sha256Hex(array);
  choice.array = std::move(array);
  return choice;
}

}  // namespace callboard::server
