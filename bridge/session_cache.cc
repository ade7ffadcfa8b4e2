// Implementation of SessionCache.
#include "bridge/session_cache.h"

#include <utility>

namespace callboard::bridge {
namespace {

constexpr std::string_view kSeatSurface = "seat:";

}  // namespace

SessionInfo ToSessionInfo(const v1::Session& session) {
  SessionInfo info;
  info.id = session.session_id();
  info.revision = core::ParseRevision(session.revision()).value_or(core::kNewestLegacyRevision);
  const std::string_view surface = session.surface();
  info.tools = session.tools();
  info.facade = info.tools.empty() && !surface.starts_with(kSeatSurface);
  if (surface.starts_with(kSeatSurface)) info.seat_id = surface.substr(kSeatSurface.size());
  info.term = session.term();
  return info;
}

SessionInfo* SessionCache::Find(std::string_view id, absl::Time now) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || now - found->second->confirmed > recheck_) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &found->second->info;
}

SessionInfo& SessionCache::Confirm(SessionInfo info, absl::Time now) {
  const auto found = by_id_.find(info.id);
  if (found != by_id_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    Entry& entry = *found->second;
    if (info.instance_name.empty()) info.instance_name = std::move(entry.info.instance_name);
    entry = {std::move(info), now};
    return entry.info;
  }
  // Abandoned sessions are never asked for again.
  while (!entries_.empty() && now - entries_.back().confirmed > recheck_) ForgetLast();
  entries_.push_front({std::move(info), now});
  by_id_.emplace(entries_.front().info.id, entries_.begin());
  if (entries_.size() > entries_max_) ForgetLast();
  return entries_.front().info;
}

void SessionCache::ForgetLast() {
  by_id_.erase(entries_.back().info.id);
  entries_.pop_back();
}

void SessionCache::Forget(std::string_view id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  entries_.erase(found->second);
  by_id_.erase(found);
}

}  // namespace callboard::bridge
