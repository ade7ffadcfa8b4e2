// Lists of tools as clients of revisions before 2026-07-28 can read them. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace callboard::bridge {

// To those an outputSchema is one of an object; a client that meets another one may refuse the
// whole list. The JSON array `tools` without such schemas, whose results come to them as
// {"result":...}; nullopt: it has none, or is no array.
std::optional<std::string> ForEarlierClient(std::string_view tools);

}  // namespace callboard::bridge
