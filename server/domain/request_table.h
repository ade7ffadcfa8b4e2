// The client's own names of its open requests: (session, raw JSON id) -> call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/runtime/strings.h"
#include "server/domain/ids.h"

namespace callboard::server {

// Pure table, loop thread. An entry lives as long as its call is open, so open_executions_max
// bounds it.
class RequestTable {
 public:
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
  size_t size() const { return calls_.size(); }

 private:
  static std::string Key(std::string_view session_id, std::string_view request_id) {
    std::string key;
    key.reserve(session_id.size() + 1 + request_id.size());
    key.append(session_id).append(1, '\n').append(request_id);
    return key;
  }
  core::StringMap<CallId> calls_;
};

}  // namespace callboard::server
