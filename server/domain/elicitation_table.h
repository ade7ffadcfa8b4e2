// Whose elicitations are that a user goes through outside the client, until their end is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "server/domain/ids.h"

namespace callboard::server {

// Pure table, loop thread. Bounds: kPerSession of a session and kAll of all; the oldest goes, and
// its end is then told to nobody. A session's record in the store has those of the session.
class ElicitationTable {
 public:
  static constexpr size_t kPerSession = 64;
  static constexpr size_t kAll = 16'384;

  struct Owner {
    std::string session_id;
    CallId call;  // that asked
  };

  // The seat's backend knows it by that id; of two with the same id it means the newer one.
  void Add(const std::string& seat_id, const std::string& id, Owner owner);
  // Whose it is; from now on it is nobody's.
  std::optional<Owner> Take(const std::string& seat_id, const std::string& id);
  void RemoveSession(const std::string& session_id);
  // Calls `visit(seat_id, id, owner)` for each of that session, in the order of their beginning.
  template <class Visit>
  void ForEachOf(const std::string& session_id, Visit visit) const {
    const auto found = by_session_.find(session_id);
    if (found == by_session_.end()) return;
    for (const uint64_t order : found->second) {
      const Entry& entry = open_.at(order);
      visit(entry.name.first, entry.name.second, entry.owner);
    }
  }
  size_t size() const { return open_.size(); }

 private:
  using Name = std::pair<std::string, std::string>;  // seat, id
  struct Entry {
    Name name;
    Owner owner;
  };

  void Remove(uint64_t order);

  uint64_t last_order_ = 0;
  std::map<uint64_t, Entry> open_;  // in the order of their beginning
  std::map<Name, uint64_t> by_name_;
  std::map<std::string, std::set<uint64_t>> by_session_;
};

}  // namespace callboard::server
