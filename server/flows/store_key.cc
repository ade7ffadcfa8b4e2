// Implementation of StoreKey.
#include "server/flows/store_key.h"

#include <charconv>
#include <utility>

#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr size_t kDigits = 16;

// Takes what stands before the next '/', or all that is left.
std::string_view TakePart(std::string_view& rest) {
  const size_t end = rest.find('/');
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

bool ParseNumber(std::string_view digits, uint64_t& number) {
  if (digits.size() != kDigits) return false;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

std::string StoreKey::OfSession(std::string_view session_id) {
  return fmt::format("session/{}", session_id);
}
std::string StoreKey::OfStream(std::string_view session_id, uint64_t stream) {
  return fmt::format("stream/{}/{:016x}", session_id, stream);
}
std::string StoreKey::OfEvent(std::string_view session_id, uint64_t stream,
                              StreamPosition position) {
  return fmt::format("event/{}/{:016x}/{:016x}.{:016x}", session_id, stream, position.term,
                     position.n);
}
std::string StoreKey::OfCall(const CallId& call) { return "call/" + call.hex(); }
std::string StoreKey::OfOutcome(const CallId& call) { return "outcome/" + call.hex(); }
std::string StoreKey::OfReceipts(uint64_t block) { return fmt::format("receipts/{:016x}", block); }

std::optional<StoreKey> StoreKey::Parse(std::string_view key) {
  StoreKey parsed;
  const std::string_view kind = TakePart(key);
  if (kind == "call" || kind == "outcome") {
    const auto call = CallId::FromHex(key);
    if (!call) return std::nullopt;
    parsed.kind = kind == "call" ? Kind::kCall : Kind::kOutcome;
    parsed.call = *call;
    return parsed;
  }
  if (kind == "receipts") {
    parsed.kind = Kind::kReceipts;
    if (!ParseNumber(key, parsed.number)) return std::nullopt;
    return parsed;
  }
  parsed.session_id = TakePart(key);
  if (parsed.session_id.empty()) return std::nullopt;
  if (kind == "session") {
    if (!key.empty()) return std::nullopt;
    return parsed;
  }
  if (kind != "stream" && kind != "event") return std::nullopt;
  if (!ParseNumber(TakePart(key), parsed.number)) return std::nullopt;
  parsed.kind = kind == "stream" ? Kind::kStream : Kind::kEvent;
  if (parsed.kind == Kind::kStream) return parsed;
  if (key.size() != 2 * kDigits + 1 || key[kDigits] != '.' ||
      !ParseNumber(key.substr(0, kDigits), parsed.position.term) ||
      !ParseNumber(key.substr(kDigits + 1), parsed.position.n)) {
    return std::nullopt;
  }
  return parsed;
}

}  // namespace callboard::server
