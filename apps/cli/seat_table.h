// Seats as `callboard ps` shows them: selection, state words, table and JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "callboard/v1/control.pb.h"

namespace callboard::apps {

// One condition of -l. Keys are labels, and the columns app, version, host, state and name.
struct SeatCondition {
  enum class Test { kIn, kNotIn, kExists, kNotExists };
  std::string key;
  Test test = Test::kIn;
  std::vector<std::string> values;  // kIn, kNotIn: one for `=` and `!=`
};
// key=value, key!=value, key in (a,b), key notin (a,b), key, !key; commas between them, and all
// must hold. What has no such key is not in any list. InvalidArgument shows what is expected.
absl::StatusOr<std::vector<SeatCondition>> ParseSeatConditions(std::string_view text);
bool Holds(const std::vector<SeatCondition>& conditions, const v1::InstanceRow& row);

// idle, busy, unresponsive, starting, reconnecting or down.
std::string_view SeatState(const v1::InstanceRow& row);

// What the seat works on: the tool, or the method; "" if nothing is known.
std::string ToolAtWork(const v1::InstanceRow& row);

// One line each, sorted by app, name and id; `wide` has host, pid, user, incarnation and scene too.
std::string RenderSeatTable(std::vector<v1::InstanceRow> rows, bool wide);
std::string RenderSeatJson(const v1::InstanceRow& row);

// Lines of cells in aligned columns; control characters become spaces.
std::string AlignColumns(const std::vector<std::vector<std::string>>& lines);

}  // namespace callboard::apps
