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

// <term>.<n>
bool ParsePosition(std::string_view text, StreamPosition& position) {
  return text.size() == 2 * kDigits + 1 && text[kDigits] == '.' &&
         ParseNumber(text.substr(0, kDigits), position.term) &&
         ParseNumber(text.substr(kDigits + 1), position.n);
}

}  // namespace

std::string StoreKey::OfSession(std::string_view session_id) {
  return fmt::format("session/{}", session_id);
}
std::string StoreKey::OfCall(const CallId& call) { return "call/" + call.hex(); }
std::string StoreKey::OfOutcome(const CallId& call) { return OfCall(call) + "/outcome"; }
std::string StoreKey::OfSeat(std::string_view seat_id) { return fmt::format("seat/{}", seat_id); }
std::string StoreKey::OfNotices(std::string_view seat_id) {
  return fmt::format("notices/{}", seat_id);
}
std::string StoreKey::OfReceipts(uint64_t block) { return fmt::format("receipts/{:016x}", block); }

std::string StoreKey::OfStream(std::string_view session_id, const std::optional<CallId>& call) {
  return call ? OfCall(*call) + "/stream" : fmt::format("stream/{}/{:016x}", session_id, 0);
}
std::string StoreKey::OfStream(const Stream& stream) {
  return OfStream(stream.session_id, CallId::From(stream.call_id));
}
std::string StoreKey::EventsOf(std::string_view session_id, const std::optional<CallId>& call) {
  return call ? OfCall(*call) + "/event/" : fmt::format("event/{}/{:016x}/", session_id, 0);
}
std::string StoreKey::EventsOf(const Stream& stream) {
  return EventsOf(stream.session_id, CallId::From(stream.call_id));
}
std::string StoreKey::OfEvent(std::string_view events, StreamPosition position) {
  return fmt::format("{}{:016x}.{:016x}", events, position.term, position.n);
}

std::optional<StoreKey> StoreKey::Parse(std::string_view key) {
  StoreKey parsed;
  const std::string_view kind = TakePart(key);
  if (kind == "receipts") {
    parsed.kind = Kind::kReceipts;
    if (!ParseNumber(key, parsed.number)) return std::nullopt;
    return parsed;
  }
  if (kind == "seat" || kind == "notices") {
    parsed.kind = kind == "seat" ? Kind::kSeat : Kind::kNotices;
    parsed.seat_id = key;
    if (key.empty()) return std::nullopt;
    return parsed;
  }
  if (kind == "call" || kind == "outcome") {
    parsed.call = CallId::FromHex(TakePart(key));
    if (!parsed.call) return std::nullopt;
    parsed.former = kind == "outcome";
    const std::string_view part = parsed.former ? kind : TakePart(key);
    if (part == "event") {
      parsed.kind = Kind::kEvent;
      if (!ParsePosition(key, parsed.position)) return std::nullopt;
      return parsed;
    }
    if (part.empty()) {
      parsed.kind = Kind::kCall;
    } else if (part == "outcome") {
      parsed.kind = Kind::kOutcome;
    } else if (part == "stream") {
      parsed.kind = Kind::kStream;
    } else {
      return std::nullopt;
    }
    if (!key.empty()) return std::nullopt;
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
  parsed.former = parsed.number != 0;
  parsed.kind = kind == "stream" ? Kind::kStream : Kind::kEvent;
  if (parsed.kind == Kind::kEvent && !ParsePosition(key, parsed.position)) return std::nullopt;
  return parsed;
}

}  // namespace callboard::server
