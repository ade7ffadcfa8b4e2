// The tools that a selection finds at the seats, as one list under names of its own. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/mcp/tool_selection.h"
#include "core/runtime/strings.h"
#include "server/domain/tool_catalog.h"
#include "server/domain/tool_names.h"

namespace callboard::server {

// A seat as selections see it.
struct OfferingSeat {
  std::string app;  // as in slugs, in lower case
  std::string name;
  bool offers = false;                   // there, or about to come back
  std::shared_ptr<const ToolList> list;  // nullptr: not known yet

  bool operator==(const OfferingSeat&) const = default;
};
using OfferingSeats = std::map<std::string, OfferingSeat, std::less<>>;  // by seat id

// Whether the selector's app and instance fit the seat.
bool SelectsSeat(const core::ToolSelector& selector, std::string_view seat_id,
                 const OfferingSeat& seat);

// Immutable once made.
struct ToolChoice {
  std::string digest;
  // Raw JSON array in order of name: each tool as its backend defines it, but for the name, and for
  // _meta["callboard/origin"], which says what it is at its instance.
  std::string array = "[]";
  core::StringMap<ToolOrigin> by_name;
  size_t left_out = 0;  // tools beyond the most that are chosen
};

struct ToolChoiceLimits {
  size_t tools_max;
  size_t name_characters_max;
};

// Of seats that offer, in order of their ids and their lists, until tools_max are chosen. Stubs of
// skills that are not loaded are no tools, unless a selector's tool begins with "__skill__".
ToolChoice ChooseTools(const std::vector<core::ToolSelector>& selectors, const OfferingSeats& seats,
                       ToolChoiceLimits limits);

}  // namespace callboard::server
