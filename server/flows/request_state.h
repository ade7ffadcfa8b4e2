// The requestState of parked calls (MCP 2026-07-28): what a client brings back with its answers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "core/runtime/random.h"
#include "server/domain/ids.h"

namespace callboard::server {

// Seals and opens such texts: "callboard1.<key>.<call>.<expiry>.<mac>". They hold no secret; the
// MAC (HMAC-SHA-256) binds them to what is not in them: whose call it is, where it runs and what it
// was asked. <key> says which key that was, as the backend behind a seat may be a Callboard, too.
// Loop thread.
class RequestState {
 public:
  struct Parked {
    CallId call;
    int64_t expires_unix_ms = 0;
  };

  // `key` is secret, and the same after a restart; empty: one is made at first use.
  RequestState(std::string key, core::Random& random) : key_(std::move(key)), random_(random) {}

  // Who a text says to be of, by what it begins with.
  enum class Maker { kUs, kAnotherCallboard, kSomebodyElse };
  Maker MakerOf(std::string_view text);

  std::string Seal(const Parked& parked, std::string_view binding);
  // InvalidArgument: malformed, changed, or of another binding; DeadlineExceeded: too old.
  absl::StatusOr<Parked> Open(std::string_view text, std::string_view binding, int64_t now_unix_ms);

 private:
  // Makes the key if need be.
  const std::string& Prefix();

  std::string key_;
  std::string prefix_;  // what begins with the key's name; empty: not made yet
  core::Random& random_;
};

}  // namespace callboard::server
