// The id of a JSON-RPC message that is too long to keep, from its two ends.
#pragma once

#include <string>
#include <string_view>

namespace callboard::core {

// `head` begins the message, `tail` ends it. The raw id, where it stands before the long member or
// behind it; empty: it cannot be told. Pure.
std::string FindIdAtEdges(std::string_view head, std::string_view tail);

}  // namespace callboard::core
