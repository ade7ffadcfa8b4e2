// Host and port of a Host header or an origin.
#pragma once

#include <algorithm>
#include <string_view>

namespace callboard::net {

// The authority without its port; empty if it is malformed.
inline std::string_view HostOf(std::string_view authority) {
  size_t end = authority.size();
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) return {};
    end = bracket + 1;
  } else {
    end = std::min(authority.find(':'), authority.size());
  }
  std::string_view port = authority.substr(end);
  if (!port.empty()) {
    if (port.front() != ':') return {};
    port.remove_prefix(1);
    const bool digits = std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || port.size() > 5) return {};
  }
  return authority.substr(0, end);
}

}  // namespace callboard::net
