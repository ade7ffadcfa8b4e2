// Names of the store's records (protos/callboard/v1/store.proto), made and taken apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/domain/ids.h"
#include "server/domain/stream.h"

namespace callboard::server {

// All that belongs to one call stands together, and calls of the same time are neighbours: what a
// moment changes is on few pages of the store.
struct StoreKey {
  enum class Kind { kCall, kEvent, kNotices, kOutcome, kReceipts, kSeat, kSession, kStream };
  Kind kind = Kind::kSession;
  std::string session_id;      // of kSession, and of a session's own stream and its events
  std::string seat_id;         // of kSeat and kNotices
  uint64_t number = 0;         // of a block of receipts
  std::optional<CallId> call;  // of all others
  StreamPosition position;
  // The form of a former build: of a call's stream, its events or its outcome, and `number` is that
  // of the stream. It is read and written anew at the start.
  bool former = false;

  static std::string OfSession(std::string_view session_id);
  static std::string OfCall(const CallId& call);
  static std::string OfOutcome(const CallId& call);
  static std::string OfReceipts(uint64_t block);
  static std::string OfSeat(std::string_view seat_id);
  static std::string OfNotices(std::string_view seat_id);
  // Of a stream that belongs to a session: a call's, or without a call the session's own.
  static std::string OfStream(std::string_view session_id, const std::optional<CallId>& call);
  static std::string OfStream(const Stream& stream);
  // What the keys of its events begin with, and one of them.
  static std::string EventsOf(std::string_view session_id, const std::optional<CallId>& call);
  static std::string EventsOf(const Stream& stream);
  static std::string OfEvent(std::string_view events, StreamPosition position);
  // nullopt for what is not one of them.
  static std::optional<StoreKey> Parse(std::string_view key);
};

}  // namespace callboard::server
