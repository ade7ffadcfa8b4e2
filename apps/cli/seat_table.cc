// Implementation of the seats' table.
#include "apps/cli/seat_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "absl/strings/str_split.h"
#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

constexpr size_t kShortId = 8;

std::string ValueOf(const v1::InstanceRow& row, const std::string& key) {
  if (auto label = row.labels().find(key); label != row.labels().end()) return label->second;
  if (key == "app") return row.app();
  if (key == "version") return row.version();
  if (key == "host") return row.host();
  if (key == "name") return row.name();
  if (key == "state") return std::string(SeatState(row));
  return "";
}

std::string ToolOf(const RunningTools& running, const v1::InstanceRow& row) {
  auto found = running.find(row.seat_id());
  return found == running.end() ? "" : found->second;
}

}  // namespace

absl::StatusOr<std::vector<SeatCondition>> ParseSeatConditions(std::string_view text) {
  std::vector<SeatCondition> conditions;
  for (const absl::string_view part : absl::StrSplit(core::ToAbsl(text), ',', absl::SkipEmpty())) {
    const std::string one(part.data(), part.size());
    const size_t equals = one.find('=');
    const bool differs = equals != std::string::npos && equals > 0 && one[equals - 1] == '!';
    if (equals == std::string::npos || equals == (differs ? 1u : 0u)) {
      return core::MakeError(
          absl::StatusCode::kInvalidArgument,
          fmt::format("-l {}: expected key=value or key!=value, as in -l app=blender,show=alpha",
                      one));
    }
    conditions.push_back(
        {one.substr(0, differs ? equals - 1 : equals), one.substr(equals + 1), !differs});
  }
  return conditions;
}

bool Holds(const std::vector<SeatCondition>& conditions, const v1::InstanceRow& row) {
  return std::all_of(conditions.begin(), conditions.end(), [&](const SeatCondition& condition) {
    return (ValueOf(row, condition.key) == condition.value) == condition.equal;
  });
}

std::string_view SeatState(const v1::InstanceRow& row) {
  if (row.status() == "available") return "idle";
  if (row.status() == "stale" || row.status() == "dead") return "down";
  return row.status();
}

RunningTools ToolsAtWork(const v1::ListCallsResponse& calls) {
  RunningTools running;
  for (const v1::Call& call : calls.calls()) {
    if (call.phase() == v1::CALL_WAITING && !call.tool().empty()) {
      running.emplace(call.seat_id(), call.tool());
    }
  }
  return running;
}

std::string AlignColumns(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      std::string cell = line[i];
      // A scene's name must not move the cursor of a terminal.
      for (char& c : cell) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
      }
      text += i + 1 == line.size() ? cell : fmt::format("{:<{}}  ", cell, widths[i]);
    }
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  }
  return text;
}

std::string RenderSeatTable(std::vector<v1::InstanceRow> rows, const RunningTools& running,
                            bool wide) {
  std::sort(rows.begin(), rows.end(), [](const v1::InstanceRow& a, const v1::InstanceRow& b) {
    return std::tie(a.app(), a.name(), a.seat_id()) < std::tie(b.app(), b.name(), b.seat_id());
  });
  std::vector<std::vector<std::string>> lines;
  lines.push_back({"NAME", "ID", "APP", "VERSION", "STATE", "QUEUE", "TOOL"});
  if (wide) {
    lines[0].insert(lines[0].end(), {"TOOLS", "INCARNATION", "PID", "HOST", "USER", "SCENE"});
  }
  const auto cell = [](std::string text) { return text.empty() ? std::string("-") : text; };
  for (const v1::InstanceRow& row : rows) {
    std::vector<std::string> line = {row.name(),
                                     row.seat_id().substr(0, kShortId),
                                     cell(row.app()),
                                     cell(row.version()),
                                     std::string(SeatState(row)),
                                     fmt::to_string(row.queue_depth()),
                                     cell(ToolOf(running, row))};
    if (wide) {
      line.insert(line.end(), {fmt::to_string(row.tools()), fmt::to_string(row.incarnation()),
                               row.pid() == 0 ? "-" : fmt::to_string(row.pid()), cell(row.host()),
                               cell(ValueOf(row, "user")), cell(row.scene())});
    }
    lines.push_back(std::move(line));
  }
  return AlignColumns(lines);
}

std::string RenderSeatJson(const v1::InstanceRow& row, const RunningTools& running) {
  const std::map<std::string, std::string> sorted(row.labels().begin(), row.labels().end());
  core::JsonObject labels;
  for (const auto& [key, value] : sorted) labels.String(key, value);
  return core::JsonObject()
      .String("name", row.name())
      .String("seat_id", row.seat_id())
      .String("id8", row.seat_id().substr(0, kShortId))
      .String("instance_id", row.instance_id())
      .Int("incarnation", static_cast<int64_t>(row.incarnation()))
      .String("app", row.app())
      .String("version", row.version())
      .String("state", SeatState(row))
      .String("status", row.status())
      .String("advice", row.advice())
      .Int("pid", row.pid())
      .String("host", row.host())
      .String("user", ValueOf(row, "user"))
      .String("scene", row.scene())
      .Int("queue", row.queue_depth())
      .String("tool", ToolOf(running, row))
      .Int("tools", row.tools())
      .Int("last_seen_ms", static_cast<int64_t>(row.last_seen_ms()))
      .String("local_mcp_url", row.local_mcp_url())
      .Raw("labels", labels.Take())
      .Take();
}

}  // namespace callboard::apps
