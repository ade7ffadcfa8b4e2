// Which notifications only say "look again".
#pragma once

#include <string_view>

namespace callboard::core {

// One of a kind is enough and none is worth keeping: whoever hears it asks for the present state.
// Both ends of an agent link go by it (docs/protocol.md).
inline bool SaysLookAgain(std::string_view method) {
  return method.ends_with("/list_changed") || method == "notifications/resources/updated";
}

}  // namespace callboard::core
