// The names under which tools of many seats are shown side by side. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace callboard::server {

// Where a tool is.
struct ToolOrigin {
  std::string seat_id;
  std::string app;        // of the seat
  std::string tool;       // the backend's own name
  std::string seat_name;  // for messages
};

// One name for each origin, in their order: `^[A-Za-z_][A-Za-z0-9_-]*$`, at most `characters_max`
// (32 at least), no two alike. A name is "<app>_<first 8 of the seat's id>__<tool>" where that is
// legal; otherwise what is not legal becomes "_", what is too long is cut, and a hash of seat and
// tool ends it. So a name depends on nothing but its own origin: neither the order nor the company
// matters, and it is the same after restarts. Only if two origins still come to one name do the
// others of the set decide, in order of seat and tool. Nobody reads a name backwards: whoever shows
// names keeps a table of them.
std::vector<std::string> MakeToolNames(const std::vector<ToolOrigin>& origins,
                                       size_t characters_max);

}  // namespace callboard::server
