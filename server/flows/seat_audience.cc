// Implementation of SeatAudience.
#include "server/flows/seat_audience.h"

#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/log_levels.h"

namespace callboard::server {
bool WantsLog(const Session& session, std::string_view raw_params) {
  if (session.log_level.empty()) return true;
  const auto level = core::FindString(raw_params, "level");
  return !level || core::McpSeverity(*level) >= core::McpSeverity(session.log_level);
}

void SeatAudience::Add(const Session& session) {
  if (!session.seat_id.empty()) seats_[session.seat_id].sessions.insert(session.id);
}

void SeatAudience::Remove(const std::string& session_id, const std::string& seat_id) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end() || found->second.sessions.erase(session_id) == 0) return;
  if (found->second.version > 0) return Send(seat_id, found->second);
  // The number of an Interest must go on, so an audience that has had wishes stays with its seat.
  if (found->second.sessions.empty()) seats_.erase(found);
}

void SeatAudience::OnResult(Session& session, std::string_view method,
                            std::string_view raw_params) {
  auto found = seats_.find(session.seat_id);
  if (found == seats_.end()) return;
  if (method == "logging/setLevel") {
    session.log_level = core::FindString(raw_params, "level").value_or("");
  } else if (method == "resources/subscribe" || method == "resources/unsubscribe") {
    const auto uri = core::FindString(raw_params, "uri");
    if (!uri) return;
    if (method == "resources/unsubscribe") {
      session.subscriptions.erase(*uri);
    } else if (session.subscriptions.size() < kSubscriptionsMax) {
      session.subscriptions.insert(*uri);
    }
  } else {
    return;
  }
  Send(session.seat_id, found->second);
}

bool SeatAudience::KeepsSubscription(Session& session, std::string_view raw_params) {
  auto found = seats_.find(session.seat_id);
  const auto uri = core::FindString(raw_params, "uri");
  if (found == seats_.end() || !uri || !session.subscriptions.contains(*uri)) return false;
  const auto& sessions = found->second.sessions;
  const bool others = std::any_of(sessions.begin(), sessions.end(), [&](const std::string& id) {
    const Session* other = id == session.id ? nullptr : plane_.sessions.Find(id);
    return other != nullptr && other->subscriptions.contains(*uri);
  });
  if (others) session.subscriptions.erase(*uri);
  return others;
}

void SeatAudience::OnSeatUp(const std::string& seat_id) {
  auto found = seats_.find(seat_id);
  if (found != seats_.end() && found->second.version > 0) Send(seat_id, found->second);
}

void SeatAudience::Send(const std::string& seat_id, Audience& audience) {
  v1::Interest interest;
  interest.set_seat_id(seat_id);
  interest.set_version(++audience.version);
  size_t level = core::kMcpLogLevels.size();
  std::set<std::string> resources;
  for (const std::string& id : audience.sessions) {
    const Session* session = plane_.sessions.Find(id);
    if (session == nullptr) continue;
    level = std::min(level, core::McpSeverity(session->log_level));
    resources.insert(session->subscriptions.begin(), session->subscriptions.end());
  }
  if (level < core::kMcpLogLevels.size())
    interest.set_log_level(std::string(core::kMcpLogLevels[level]));
  for (const std::string& uri : resources) interest.add_resource_uris(uri);
  send_(seat_id, std::move(interest));
}

void SeatAudience::Tell(const std::string& seat_id, const std::string& method,
                        const std::string& params) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end()) return;
  if (!method.ends_with("/list_changed")) return Deliver(seat_id, method, params);
  core::Timer& timer = found->second.waiting[method];
  if (timer.pending()) return;
  timer = plane_.loop.After(kCoalesce, [this, seat_id, method] { Deliver(seat_id, method, ""); });
}

// To those that have ever listened to their own stream.
void SeatAudience::Deliver(const std::string& seat_id, const std::string& method,
                           const std::string& params) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end()) return;
  std::string updated;
  if (method == "notifications/resources/updated") {
    updated = core::FindString(params, "uri").value_or("");
  }
  auto& sessions = found->second.sessions;
  for (auto it = sessions.begin(); it != sessions.end();) {
    const Session* session = plane_.sessions.Find(*it);
    if (session == nullptr) {
      it = sessions.erase(it);
      continue;
    }
    ++it;
    auto own = session->streams.find(0);
    if (own == session->streams.end()) continue;
    if (!updated.empty() && !session->subscriptions.contains(updated)) continue;
    if (method == "notifications/message" && !WantsLog(*session, params)) continue;
    v1::StreamEvent event;
    event.set_method(method);
    event.set_params(params);
    plane_.sessions.Append(*own->second, {std::move(event), 0});
    if (own->second->reader != nullptr) own->second->reader->Wake();
  }
}

}  // namespace callboard::server
