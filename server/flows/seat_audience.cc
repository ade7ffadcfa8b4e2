// Implementation of SeatAudience.
#include "server/flows/seat_audience.h"

#include <algorithm>
#include <utility>

#include "core/mcp/envelope.h"
#include "core/mcp/json.h"
#include "core/mcp/log_levels.h"
#include "core/mcp/look_again.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr std::string_view kUpdated = "notifications/resources/updated";

// Numbers of interests grow over restarts: an agent that lives on knows those of the former term.
uint64_t FirstVersion(uint64_t term) { return term << 20; }

}  // namespace

bool WantsLog(const Session& session, std::string_view raw_params) {
  return session.log_level.empty() || WantsLog(session.log_level, raw_params);
}

bool WantsLog(std::string_view level, std::string_view raw_params) {
  if (level.empty()) return false;
  const auto said = core::FindString(raw_params, "level");
  return !said || core::McpSeverity(*said) >= core::McpSeverity(level);
}

void SeatAudience::Add(Session& session) {
  if (session.seat_id.empty()) return;
  const SeatRecord* seat = plane_.seats.Find(session.seat_id);
  const bool unknown = seat != nullptr && seat->presence != Presence::kLinked &&
                       seat->state.catalogue_digest().empty();
  session.owed_look_again = session.owed_look_again || unknown;
  Audience& audience = seats_[session.seat_id];
  audience.sessions.insert(session.id);
  audience.owes = audience.owes || session.owed_look_again;
  const bool wishes = !session.log_level.empty() || !session.subscriptions.empty();
  if (wishes && audience.version == 0) audience.version = FirstVersion(plane_.term);
}

void SeatAudience::Remove(const std::string& session_id, const std::string& seat_id) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end() || found->second.sessions.erase(session_id) == 0) return;
  OnLeft(seat_id);
}

void SeatAudience::OnLeft(const std::string& seat_id) {
  auto found = seats_.find(seat_id);
  if (found->second.version > 0) return Send(seat_id, found->second);
  // The number of an Interest must go on, so an audience that has had wishes stays with its seat.
  if (found->second.sessions.empty() && found->second.watches.empty()) seats_.erase(found);
}

// ---- without a session --------------------------------------------------------------------------

SeatAudience::~SeatAudience() {
  for (const auto& [seat_id, audience] : seats_) {
    for (NoticeWatch* watch : audience.watches) watch->PlaneGone();
  }
}

std::unique_ptr<core::EventSource<v1::ListenEvent>> SeatAudience::Watch(v1::ListenRequest request) {
  using Ended = EndedSource<v1::ListenEvent>;
  const auto seat = plane_.seats.Resolve(request.target());
  if (!seat.ok()) return std::make_unique<Ended>(seat.status());
  const int many = std::max(request.wish().resource_uris_size(), request.wish().task_ids_size());
  if (static_cast<size_t>(many) > kSubscriptionsMax) {
    return std::make_unique<Ended>(core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("{} resources or tasks are listened to at once, at most {} may be", many,
                    kSubscriptionsMax)));
  }
  if (watches_ >= kWatchesMax) {
    return std::make_unique<Ended>(core::MakeError(absl::StatusCode::kResourceExhausted,
                                                   fmt::format("{} listen already", watches_)));
  }
  const std::string seat_id = (*seat)->state.seat_id();
  auto watch = std::make_unique<NoticeWatch>(plane_.ready, static_cast<NoticeWatchOwner&>(*this),
                                             seat_id, std::move(*request.mutable_wish()),
                                             /*again=*/request.has_after());
  Audience& audience = seats_[seat_id];
  audience.watches.insert(watch.get());
  ++watches_;
  if (many > 0) Send(seat_id, audience);
  return watch;
}

void SeatAudience::OnWatchGone(NoticeWatch& watch) {
  auto found = seats_.find(watch.subject());
  if (found == seats_.end() || found->second.watches.erase(&watch) == 0) return;
  --watches_;
  OnLeft(watch.subject());
}

void SeatAudience::DrainWatches() {
  for (const auto& [seat_id, audience] : seats_) {
    for (NoticeWatch* watch : audience.watches) watch->Drain();
  }
}

void SeatAudience::TellWatches(const std::string& seat_id, const std::string& method) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end() || found->second.watches.empty()) return;
  core::Timer& timer = found->second.waiting[fmt::format("watches of {}", method)];
  if (timer.pending()) return;
  timer = plane_.loop.After(kCoalesce, [this, seat_id, method] {
    for (NoticeWatch* watch : seats_[seat_id].watches) watch->Tell(method, "");
  });
}

// ---- wishes -------------------------------------------------------------------------------------

bool SeatAudience::OnResult(Session& session, std::string_view method,
                            std::string_view raw_params) {
  auto found = seats_.find(session.seat_id);
  if (found == seats_.end()) return false;
  if (method == "logging/setLevel") {
    session.log_level = core::FindString(raw_params, "level").value_or("");
  } else if (method == "resources/subscribe" || method == "resources/unsubscribe") {
    const auto uri = core::FindString(raw_params, "uri");
    if (!uri) return false;
    if (method == "resources/unsubscribe") {
      session.subscriptions.erase(*uri);
    } else if (session.subscriptions.size() < kSubscriptionsMax) {
      session.subscriptions.insert(*uri);
    }
  } else {
    return false;
  }
  durable_.TouchSession(session);
  Send(session.seat_id, found->second);
  return true;
}

bool SeatAudience::KeepsSubscription(Session& session, std::string_view raw_params) {
  auto found = seats_.find(session.seat_id);
  const auto uri = core::FindString(raw_params, "uri");
  if (found == seats_.end() || !uri || !session.subscriptions.contains(*uri)) return false;
  const auto& sessions = found->second.sessions;
  const auto& watches = found->second.watches;
  const bool others = std::any_of(sessions.begin(), sessions.end(),
                                  [&](const std::string& id) {
                                    const Session* other =
                                        id == session.id ? nullptr : plane_.sessions.Find(id);
                                    return other != nullptr && other->subscriptions.contains(*uri);
                                  }) ||
                      std::any_of(watches.begin(), watches.end(), [&](const NoticeWatch* watch) {
                        const auto& uris = watch->wish().resource_uris();
                        return std::find(uris.begin(), uris.end(), *uri) != uris.end();
                      });
  if (others) {
    session.subscriptions.erase(*uri);
    durable_.TouchSession(session);
  }
  return others;
}

void SeatAudience::OnSeatUp(const std::string& seat_id) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end()) return;
  if (found->second.version > 0) Send(seat_id, found->second);
  OnSeatChanged(seat_id);
}

void SeatAudience::OnSeatChanged(const std::string& seat_id) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end() || !found->second.owes) return;
  // What it may tell of is known when its backend is there.
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  const bool there = seat != nullptr && seat->presence == Presence::kLinked;
  if (!there || seat->state.capabilities().empty()) return;
  found->second.owes = false;
  for (const std::string& id : found->second.sessions) {
    Session* session = plane_.sessions.Find(id);
    if (session != nullptr && std::exchange(session->owed_look_again, false)) {
      TellChanges(seat_id, *session);
    }
  }
}

void SeatAudience::TellChanges(const std::string& seat_id, Session& session) {
  auto own = session.streams.find(0);
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  if (own == session.streams.end() || seat == nullptr) return;
  for (const std::string_view kind : {"tools", "resources", "prompts"}) {
    const auto told = core::FindPath(seat->state.capabilities(), {kind, "listChanged"});
    if (told == "true")
      Append(*own->second, fmt::format("notifications/{}/list_changed", kind), "");
  }
  for (const std::string& uri : session.subscriptions) {
    Append(*own->second, std::string(kUpdated), core::JsonObject().String("uri", uri).Take());
  }
}

bool SeatAudience::Append(Stream& own, const std::string& method, const std::string& params) {
  v1::StreamEvent event;
  event.set_method(method);
  event.set_params(params);
  const bool durable = !core::SaysLookAgain(method);
  durable_.Append(own, {std::move(event), 0, 0},
                  durable ? DurableLog::Wait::kDurable : DurableLog::Wait::kNo);
  return durable;
}

void SeatAudience::Send(const std::string& seat_id, Audience& audience) {
  v1::Interest interest;
  interest.set_seat_id(seat_id);
  if (audience.version == 0) audience.version = FirstVersion(plane_.term);
  interest.set_version(++audience.version);
  size_t level = core::kMcpLogLevels.size();
  std::set<std::string> resources;
  std::set<std::string> tasks;
  for (const std::string& id : audience.sessions) {
    const Session* session = plane_.sessions.Find(id);
    if (session == nullptr) continue;
    level = std::min(level, core::McpSeverity(session->log_level));
    resources.insert(session->subscriptions.begin(), session->subscriptions.end());
  }
  for (const NoticeWatch* watch : audience.watches) {
    resources.insert(watch->wish().resource_uris().begin(), watch->wish().resource_uris().end());
    tasks.insert(watch->wish().task_ids().begin(), watch->wish().task_ids().end());
  }
  if (level < core::kMcpLogLevels.size())
    interest.set_log_level(std::string(core::kMcpLogLevels[level]));
  for (const std::string& uri : resources) interest.add_resource_uris(uri);
  for (const std::string& task : tasks) interest.add_task_ids(task);
  send_(seat_id, std::move(interest));
}

bool SeatAudience::Tell(const std::string& seat_id, const std::string& method,
                        const std::string& params) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end()) return false;
  if (!method.ends_with("/list_changed")) return Deliver(seat_id, method, params);
  core::Timer& timer = found->second.waiting[method];
  if (timer.pending()) return false;
  timer = plane_.loop.After(kCoalesce, [this, seat_id, method] { Deliver(seat_id, method, ""); });
  return false;
}

bool SeatAudience::TellSession(Session& session, std::string_view method,
                               const std::string& params) {
  const auto own = session.streams.find(0);
  return own != session.streams.end() && Append(*own->second, std::string(method), params);
}

bool SeatAudience::TellLost(const std::string& seat_id, uint64_t count) {
  return Deliver(
      seat_id, "notifications/message",
      fmt::format(R"({{"level":"warning","logger":"callboard","data":"{} messages were left out )"
                  R"(because they could not reach the control plane"}})",
                  count));
}

// To those that have ever listened to their own stream.
bool SeatAudience::Deliver(const std::string& seat_id, const std::string& method,
                           const std::string& params) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end()) return false;
  for (NoticeWatch* watch : found->second.watches) watch->Tell(method, params);
  // Clients with sessions have not asked for it, and may not know what it is.
  if (method == core::kTaskNotice) return false;
  bool durable = false;
  std::string updated;
  if (method == kUpdated) {
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
    durable = Append(*own->second, method, params) || durable;
  }
  return durable;
}

}  // namespace callboard::server
