// Implementation of the seats' table.
#include "apps/cli/seat_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "absl/strings/ascii.h"
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

std::string_view Trim(std::string_view text) {
  return core::ToStd(absl::StripAsciiWhitespace(core::ToAbsl(text)));
}

// Pieces between the commas outside of parentheses.
std::vector<std::string_view> SplitConditions(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    if (const auto part = Trim(text.substr(begin, i - begin)); !part.empty()) parts.push_back(part);
    begin = i + 1;
  }
  return parts;
}

bool IsKey(std::string_view text) {
  return !text.empty() && text.find_first_of("=!(), \t") == std::string_view::npos;
}

// `key in (a,b)`, `key notin (a,b)`.
std::optional<SeatCondition> ParseSetCondition(std::string_view text) {
  const size_t open = text.find('(');
  if (open == std::string_view::npos || !text.ends_with(')')) return std::nullopt;
  const std::string_view head = Trim(text.substr(0, open));
  const size_t space = head.find_last_of(" \t");
  if (space == std::string_view::npos) return std::nullopt;
  const std::string_view word = head.substr(space + 1);
  SeatCondition condition;
  condition.key = Trim(head.substr(0, space));
  condition.test = word == "in" ? SeatCondition::Test::kIn : SeatCondition::Test::kNotIn;
  if (!IsKey(condition.key) || (word != "in" && word != "notin")) return std::nullopt;
  const std::string_view list = text.substr(open + 1, text.size() - open - 2);
  for (const absl::string_view value : absl::StrSplit(core::ToAbsl(list), ',')) {
    condition.values.emplace_back(Trim(core::ToStd(value)));
  }
  return condition;
}

std::optional<SeatCondition> ParseCondition(std::string_view text) {
  if (text.find('(') != std::string_view::npos) return ParseSetCondition(text);
  SeatCondition condition;
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    const bool absent = text.starts_with('!');
    condition.key = Trim(text.substr(absent ? 1 : 0));
    condition.test = absent ? SeatCondition::Test::kNotExists : SeatCondition::Test::kExists;
  } else {
    const bool differs = equals > 0 && text[equals - 1] == '!';
    condition.key = Trim(text.substr(0, differs ? equals - 1 : equals));
    condition.test = differs ? SeatCondition::Test::kNotIn : SeatCondition::Test::kIn;
    condition.values.emplace_back(Trim(text.substr(equals + 1)));
  }
  if (!IsKey(condition.key)) return std::nullopt;
  return condition;
}

}  // namespace

absl::StatusOr<std::vector<SeatCondition>> ParseSeatConditions(std::string_view text) {
  std::vector<SeatCondition> conditions;
  for (const std::string_view part : SplitConditions(text)) {
    auto condition = ParseCondition(part);
    if (!condition) {
      return core::MakeError(
          absl::StatusCode::kInvalidArgument,
          fmt::format("-l {}: expected key=value, key!=value, key in (a,b), key notin (a,b), key "
                      "or !key, as in -l 'app in (blender,maya),show=alpha'",
                      part));
    }
    conditions.push_back(*std::move(condition));
  }
  return conditions;
}

bool Holds(const std::vector<SeatCondition>& conditions, const v1::InstanceRow& row) {
  return std::all_of(conditions.begin(), conditions.end(), [&](const SeatCondition& condition) {
    const std::string value = ValueOf(row, condition.key);
    const bool listed = std::find(condition.values.begin(), condition.values.end(), value) !=
                        condition.values.end();
    switch (condition.test) {
      case SeatCondition::Test::kIn:
        return listed;
      case SeatCondition::Test::kNotIn:
        return !listed;
      case SeatCondition::Test::kExists:
        return !value.empty();
      case SeatCondition::Test::kNotExists:
        return value.empty();
    }
    return false;
  });
}

std::string_view SeatState(const v1::InstanceRow& row) {
  if (row.status() == "available") return "idle";
  if (row.status() == "stale" || row.status() == "dead") return "down";
  return row.status();
}

std::string ToolAtWork(const v1::InstanceRow& row) {
  if (row.running_size() == 0) return "";
  const v1::RunningCall& call = row.running(0);
  return call.tool().empty() ? call.method() : call.tool();
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

std::string RenderSeatTable(std::vector<v1::InstanceRow> rows, bool wide) {
  std::sort(rows.begin(), rows.end(), [](const v1::InstanceRow& a, const v1::InstanceRow& b) {
    return std::tie(a.app(), a.name(), a.seat_id()) < std::tie(b.app(), b.name(), b.seat_id());
  });
  std::vector<std::vector<std::string>> lines;
  lines.push_back({"NAME", "ID", "APP", "VERSION", "STATE", "QUEUE", "TOOL"});
  if (wide) {
    lines[0].insert(lines[0].end(),
                    {"TOOLS", "INCARNATION", "PID", "HOST", "USER", "SCENE", "REASON"});
  }
  const auto cell = [](std::string text) { return text.empty() ? std::string("-") : text; };
  for (const v1::InstanceRow& row : rows) {
    std::vector<std::string> line = {
        row.name(),           row.seat_id().substr(0, kShortId), cell(row.app()),
        cell(row.version()),  std::string(SeatState(row)),       fmt::to_string(row.queue_depth()),
        cell(ToolAtWork(row))};
    if (wide) {
      line.insert(line.end(),
                  {fmt::to_string(row.tools()), fmt::to_string(row.incarnation()),
                   row.pid() == 0 ? "-" : fmt::to_string(row.pid()), cell(row.host()),
                   cell(ValueOf(row, "user")), cell(row.scene()), cell(row.health().reason())});
    }
    lines.push_back(std::move(line));
  }
  return AlignColumns(lines);
}

std::string RenderSeatJson(const v1::InstanceRow& row) {
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
      .String("reason", row.health().reason())
      .Int("pid", row.pid())
      .String("host", row.host())
      .String("user", ValueOf(row, "user"))
      .String("scene", row.scene())
      .Int("queue", row.queue_depth())
      .String("tool", ToolAtWork(row))
      .Int("tools", row.tools())
      .Int("last_seen_ms", static_cast<int64_t>(row.last_seen_ms()))
      .String("local_mcp_url", row.local_mcp_url())
      .Raw("labels", labels.Take())
      .Take();
}

}  // namespace callboard::apps
