// Implementation of ElicitationTable.
#include "server/domain/elicitation_table.h"

namespace callboard::server {

void ElicitationTable::Add(const std::string& seat_id, const std::string& id, Owner owner) {
  const Name name{seat_id, id};
  if (const auto former = by_name_.find(name); former != by_name_.end()) Remove(former->second);
  const auto of_session = by_session_.find(owner.session_id);
  if (of_session != by_session_.end() && of_session->second.size() >= kPerSession) {
    Remove(*of_session->second.begin());
  } else if (open_.size() >= kAll) {
    Remove(open_.begin()->first);
  }
  const uint64_t order = ++last_order_;
  by_name_[name] = order;
  by_session_[owner.session_id].insert(order);
  open_.emplace(order, Entry{name, std::move(owner)});
}

std::optional<ElicitationTable::Owner> ElicitationTable::Take(const std::string& seat_id,
                                                              const std::string& id) {
  const auto found = by_name_.find({seat_id, id});
  if (found == by_name_.end()) return std::nullopt;
  Owner owner = open_.at(found->second).owner;
  Remove(found->second);
  return owner;
}

void ElicitationTable::RemoveSession(const std::string& session_id) {
  const auto found = by_session_.find(session_id);
  if (found == by_session_.end()) return;
  const std::set<uint64_t> orders = found->second;
  for (const uint64_t order : orders) Remove(order);
}

void ElicitationTable::Remove(uint64_t order) {
  const auto node = open_.extract(order);
  if (node.empty()) return;
  const Entry& entry = node.mapped();
  by_name_.erase(entry.name);
  const auto of_session = by_session_.find(entry.owner.session_id);
  of_session->second.erase(order);
  if (of_session->second.empty()) by_session_.erase(of_session);
}

}  // namespace callboard::server
