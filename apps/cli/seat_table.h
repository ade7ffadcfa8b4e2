// Seats as `callboard ps` shows them: selection, state words, table and JSON.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "callboard/v1/control.pb.h"

namespace callboard::apps {

// One `key=value` or `key!=value` of -l. Keys are labels, and the columns app, version, host,
// state and name.
struct SeatCondition {
  std::string key;
  std::string value;
  bool equal = true;
};
// InvalidArgument shows what is expected. Commas separate conditions, all of which must hold.
absl::StatusOr<std::vector<SeatCondition>> ParseSeatConditions(std::string_view text);
bool Holds(const std::vector<SeatCondition>& conditions, const v1::InstanceRow& row);

// idle, busy, unresponsive, starting, reconnecting or down.
std::string_view SeatState(const v1::InstanceRow& row);

// The live calls of a seat, by seat id: the tool that runs.
using RunningTools = std::map<std::string, std::string>;
RunningTools ToolsAtWork(const v1::ListCallsResponse& calls);

// One line each, sorted by app, name and id; `wide` has host, pid, user, incarnation and scene.
std::string RenderSeatTable(std::vector<v1::InstanceRow> rows, const RunningTools& running,
                            bool wide);
std::string RenderSeatJson(const v1::InstanceRow& row, const RunningTools& running);

// Lines of cells in aligned columns; control characters become spaces.
std::string AlignColumns(const std::vector<std::vector<std::string>>& lines);

}  // namespace callboard::apps
