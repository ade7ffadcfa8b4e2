// Finds tools by words over every seat's list, and splits slugs.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "callboard/v1/control.pb.h"
#include "server/domain/seat_registry.h"
#include "server/domain/tool_catalog.h"

namespace callboard::server {

// "<app>.<id prefix>.<tool>": the tool's name may contain dots itself.
struct Slug {
  std::string app;
  std::string seat_prefix;
  std::string tool;
};
absl::StatusOr<Slug> ParseSlug(std::string_view slug);

// Ranked search. Words of the query are matched against name, title, aliases, tags, description
// and skill of each tool. Every word must match something; if no tool has that, most words must.
// Exact name first, equal scores in order of slug. An empty query lists all in order of slug. Seats
// that are stale or dead offer nothing unless the target names one of them (dead ones never do); a
// target that names no seat finds nothing. `total` counts all matches, `hits` is one page. Pure, so
// that it can be offloaded later.
v1::SearchToolsResponse SearchTools(const v1::SearchToolsRequest& request,
                                    const SeatRegistry& seats, const ToolCatalog& catalog);

// One tool by slug. NotFound names the nearest tools of that seat; an unloaded skill's stub is
// found and says so (hit.loaded false, hit.skill set).
absl::StatusOr<v1::ToolHit> FindTool(std::string_view slug, const SeatRegistry& seats,
                                     const ToolCatalog& catalog);

v1::ToolHit MakeHit(const SeatRecord& seat, const ToolInfo& tool, const SeatRegistry& seats);

}  // namespace callboard::server
