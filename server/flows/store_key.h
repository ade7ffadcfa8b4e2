// Names of the store's records (protos/callboard/v1/store.proto), made and taken apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/domain/ids.h"
#include "server/domain/stream.h"

namespace callboard::server {

struct StoreKey {
  enum class Kind { kCall, kEvent, kOutcome, kReceipts, kSession, kStream };
  Kind kind = Kind::kSession;
  std::string session_id;
  uint64_t number = 0;  // of a stream or a block of receipts
  StreamPosition position;
  CallId call;

  static std::string OfSession(std::string_view session_id);
  static std::string OfStream(std::string_view session_id, uint64_t stream);
  static std::string OfEvent(std::string_view session_id, uint64_t stream, StreamPosition position);
  static std::string OfCall(const CallId& call);
  static std::string OfOutcome(const CallId& call);
  static std::string OfReceipts(uint64_t block);
  // nullopt for what is not one of them.
  static std::optional<StoreKey> Parse(std::string_view key);
};

}  // namespace callboard::server
