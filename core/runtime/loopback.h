// Whether an address is this machine's own.
#pragma once

#include <string_view>

namespace callboard::core {

// Of "HOST:PORT". Proxies of the environment are for what is outside: they would look for a
// loopback of their own.
inline bool IsLoopback(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

}  // namespace callboard::core
