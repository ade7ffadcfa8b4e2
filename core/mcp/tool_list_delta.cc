// Implementation of tool list deltas.
#include "core/mcp/tool_list_delta.h"

#include <list>
#include <map>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::core {
namespace {

struct Tool {
  std::string name;
  std::string_view raw;
};

// In order; nullopt if a name is missing or there twice.
std::optional<std::vector<Tool>> ToolsOf(std::string_view list) {
  const auto array = FindMember(list, "tools");
  if (!array) return std::nullopt;
  std::vector<Tool> tools;
  std::map<std::string, int> seen;
  bool good = true;
  const absl::Status status = ForEachElement(*array, [&](std::string_view raw) {
    auto name = FindString(raw, "name");
    good = name && !name->empty() && seen[*name]++ == 0;
    if (good) tools.push_back({*std::move(name), raw});
    return good;
  });
  if (!status.ok() || !good) return std::nullopt;
  return tools;
}

void Append(std::string& body, std::string_view raw) {
  if (body.back() != '[') body.push_back(',');
  body.append(raw);
}

constexpr std::string_view kOpening = R"({"tools":[)";

}  // namespace

std::optional<ToolListDelta> MakeToolListDelta(std::string_view base, std::string_view list) {
  const auto before = ToolsOf(base);
  const auto after = ToolsOf(list);
  if (!before || !after) return std::nullopt;
  std::map<std::string_view, std::string_view> newer;
  for (const Tool& tool : *after) newer[tool.name] = tool.raw;
  ToolListDelta delta;
  delta.body = std::string(kOpening);
  std::map<std::string_view, std::string_view> stays;
  for (const Tool& tool : *before) {
    auto found = newer.find(tool.name);
    if (found == newer.end()) {
      delta.changes.push_back({.name = tool.name, .removed = true});
    } else if (found->second == tool.raw) {
      stays[tool.name] = tool.raw;
    }
  }
  std::string_view previous;
  for (const Tool& tool : *after) {
    if (!stays.contains(tool.name)) {
      delta.changes.push_back({.name = tool.name, .after = std::string(previous)});
      Append(delta.body, tool.raw);
    }
    previous = tool.name;
  }
  delta.body.append("]}");
  if (delta.body.size() > list.size() / 2) return std::nullopt;
  // What stayed may have changed its order.
  const auto made = ApplyToolListDelta(base, delta.changes, delta.body);
  if (!made.ok() || *made != list) return std::nullopt;
  return delta;
}

absl::StatusOr<std::string> ApplyToolListDelta(std::string_view base,
                                               const std::vector<ToolListChange>& changes,
                                               std::string_view body) {
  const auto before = ToolsOf(base);
  const auto changed = ToolsOf(body);
  if (!before || !changed) {
    return absl::FailedPreconditionError("a list has a tool without a name or two with one");
  }
  std::list<Tool> tools(before->begin(), before->end());
  std::map<std::string_view, std::list<Tool>::iterator> places;
  for (auto it = tools.begin(); it != tools.end(); ++it) places[it->name] = it;
  for (const ToolListChange& change : changes) {
    auto place = places.find(change.name);
    if (place == places.end()) continue;
    tools.erase(place->second);
    places.erase(place);
  }
  auto next = changed->begin();
  for (const ToolListChange& change : changes) {
    if (change.removed) continue;
    auto place = places.find(change.after);
    if (next == changed->end() || next->name != change.name ||
        (place == places.end() && !change.after.empty())) {
      return MakeError(
          absl::StatusCode::kFailedPrecondition,
          fmt::format("tool '{}' cannot be put after '{}'", change.name, change.after));
    }
    auto at = change.after.empty() ? tools.begin() : std::next(place->second);
    auto added = tools.insert(at, *next++);
    places[added->name] = added;
  }
  std::string list(kOpening);
  for (const Tool& tool : tools) Append(list, tool.raw);
  list.append("]}");
  return list;
}

}  // namespace callboard::core
