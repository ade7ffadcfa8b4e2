// The client's own names of its open requests: (session, raw JSON id) -> call.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "core/runtime/strings.h"
#include "server/domain/ids.h"

namespace callboard::server {

// Pure table, loop thread. An entry lives as long as its call is open, so open_executions_max
// bounds it. Of cancels that came before their request the newest kEarlyCancelsMax are known, each
// for kEarlyCancelKept.
class RequestTable {
 public:
  static constexpr size_t kEarlyCancelsMax = 1'024;
  static constexpr absl::Duration kEarlyCancelKept = absl::Seconds(2);

  // False if that id is in use in that session.
  bool Add(std::string_view session_id, std::string_view request_id, const CallId& call) {
    return calls_.try_emplace(Key(session_id, request_id), call).second;
  }
  std::optional<CallId> Find(std::string_view session_id, std::string_view request_id) const {
    auto found = calls_.find(Key(session_id, request_id));
    if (found == calls_.end()) return std::nullopt;
    return found->second;
  }
  // Only if it still names that call.
  void Remove(std::string_view session_id, std::string_view request_id, const CallId& call) {
    auto found = calls_.find(Key(session_id, request_id));
    if (found != calls_.end() && found->second == call) calls_.erase(found);
  }
  // A cancel of a request that is not here: it may have overtaken it on the way.
  void KeepCancel(std::string_view session_id, std::string_view request_id, absl::Time now) {
    early_cancels_.push_back({Key(session_id, request_id), now + kEarlyCancelKept});
    if (early_cancels_.size() > kEarlyCancelsMax) early_cancels_.pop_front();
  }
  // Whether such a cancel has come; it counts once.
  bool TakeCancel(std::string_view session_id, std::string_view request_id, absl::Time now) {
    while (!early_cancels_.empty() && early_cancels_.front().until <= now) {
      early_cancels_.pop_front();
    }
    if (early_cancels_.empty()) return false;
    return std::erase_if(early_cancels_, [key = Key(session_id, request_id)](const auto& cancel) {
             return cancel.key == key;
           }) > 0;
  }
  size_t size() const { return calls_.size(); }

 private:
  struct EarlyCancel {
    std::string key;
    absl::Time until;
  };
  static std::string Key(std::string_view session_id, std::string_view request_id) {
    std::string key;
    key.reserve(session_id.size() + 1 + request_id.size());
    key.append(session_id).append(1, '\n').append(request_id);
    return key;
  }
  core::StringMap<CallId> calls_;
  std::deque<EarlyCancel> early_cancels_;
};

}  // namespace callboard::server
