// Implementation of SessionTable.
#include "server/domain/session_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/runtime/planted_bug.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr size_t kSweepSlice = 4'096;
constexpr std::string_view kSeatSurface = "seat:";

void SetId(v1::EventId& id, const Stream& stream, uint64_t term) {
  id.set_stream(stream.number);
  id.set_term(term);
  id.set_n(stream.log.last() + 1);
}

}  // namespace

absl::Status NoSession(std::string_view id) {
  return core::MakeError(
      absl::StatusCode::kNotFound,
      fmt::format("no session '{}': it has ended or expired; initialize anew", id));
}

Session& SessionTable::Open(std::string id, const v1::OpenSessionRequest& request, absl::Time now) {
  auto session = std::make_unique<Session>();
  session->id = std::move(id);
  session->opened = request;
  session->principal = request.principal();
  session->revision = request.revision();
  session->surface = request.surface();
  if (session->surface.starts_with(kSeatSurface)) {
    session->seat_id = session->surface.substr(kSeatSurface.size());
  }
  session->client_info = request.client_info();
  session->capabilities = request.capabilities();
  session->last_use = session->stored_use = now;
  session->quiet_since = now;
  lru_.push_front(session.get());
  session->lru = lru_.begin();
  Session& opened = *session;
  by_id_[opened.id] = &opened;
  sessions_[opened.id] = std::move(session);
  return opened;
}

Session& SessionTable::Restore(std::string id, const v1::SessionRecord& record, absl::Time last_use,
                               absl::Time now) {
  Session& session = Open(std::move(id), record.opened(), last_use);
  session.quiet_since = now;  // nobody could reach it
  session.suspended = record.suspended();
  session.next_stream = session.reserved_streams = std::max<uint64_t>(1, record.next_stream());
  session.log_level = record.log_level();
  session.subscriptions = {record.subscriptions().begin(), record.subscriptions().end()};
  session.pins = {record.pins().begin(), record.pins().end()};
  session.own_dropped_through = {record.own_dropped_through().term(),
                                 record.own_dropped_through().n()};
  session.own_dropped = record.own_dropped();
  session.owed_look_again = true;
  session.awaited = true;
  ++taken_over_.awaited;
  return session;
}

Stream& SessionTable::RestoreStream(Session& session, uint64_t number, std::string call_id,
                                    absl::Time now) {
  auto found = session.streams.find(number);
  if (found != session.streams.end()) return *found->second;
  session.next_stream = std::max(session.next_stream, number + 1);
  if (number != 0) (void)MakeRoom(session);  // all are of calls that go on: none may be lost
  Stream& stream = *Add(session, number, std::move(call_id));
  stream.first_term = 0;
  stream.readable = 0;
  stream.idle_since = now;
  return stream;
}

Session* SessionTable::Find(std::string_view id) const {
  auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

Session* SessionTable::Use(std::string_view id, absl::Time now) {
  Session* session = Find(id);
  if (session != nullptr) {
    session->last_use = now;
    session->suspended = false;
    if (std::exchange(session->awaited, false)) {
      --taken_over_.awaited;
      ++taken_over_.taken_up;
    }
    Touch(*session);
  }
  return session;
}

void SessionTable::Erase(std::string_view id) {
  auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  if (session.awaited) {
    --taken_over_.awaited;
    ++taken_over_.ended;
  }
  while (!session.streams.empty()) DropStream(session, session.streams.begin()->first);
  lru_.erase(session.lru);
  by_id_.erase(session.id);
  sessions_.erase(found);
}

Session* SessionTable::Victim() {
  if (sessions_.size() < limits_.sessions_max || lru_.empty()) return nullptr;
  // Whoever is passed over goes to the front, so the next look does not begin with it; a whole
  // round leaves all in their order.
  for (size_t left = all_busy_ ? 0 : lru_.size(); left > 0; --left) {
    Session& oldest = *lru_.back();
    if (oldest.readers == 0 && oldest.calls.empty()) return &oldest;
    Touch(oldest);
  }
  all_busy_ = true;
  return lru_.back();
}

void SessionTable::Touch(Session& session) { lru_.splice(lru_.begin(), lru_, session.lru); }

std::shared_ptr<Stream> SessionTable::MakeLooseStream() const {
  return std::make_shared<Stream>(
      core::ReplayLog<StreamItem>::Limits{limits_.replay_events_max, limits_.replay_bytes_max});
}

std::shared_ptr<Stream> SessionTable::Add(Session& session, uint64_t number, std::string call_id) {
  auto stream = MakeLooseStream();
  stream->number = number;
  stream->first_term = number == 0 ? 0 : term_;
  stream->session_id = session.id;
  stream->call_id = std::move(call_id);
  if (number != 0) stream->readable = Stream::kUnannounced;
  session.streams[number] = stream;
  ++streams_;
  return stream;
}

std::shared_ptr<Stream> SessionTable::OwnStream(Session& session) {
  auto found = session.streams.find(0);
  if (found != session.streams.end()) return found->second;
  std::shared_ptr<Stream> stream = Add(session, 0, "");
  stream->dropped_through = session.own_dropped_through;
  stream->dropped = session.own_dropped;
  if (stream->dropped_through.term == term_) {
    stream->stored_to = stream->dropped_through.n;
    stream->readable = static_cast<int64_t>(stream->stored_to);
    stream->log.StartAfter(stream->stored_to);
  }
  stream->read_to = stream->dropped_through;
  return stream;
}

bool SessionTable::MakeRoom(Session& session) {
  if (session.streams.size() < limits_.streams_per_session_max) return true;
  auto idle = std::find_if(session.streams.begin(), session.streams.end(), [](const auto& entry) {
    return entry.second->finished && entry.second->reader == nullptr;
  });
  if (idle == session.streams.end()) return false;
  DropStream(session, idle->first);
  return true;
}

std::shared_ptr<Stream> SessionTable::AddStream(Session& session, std::string call_id) {
  if (!MakeRoom(session)) return nullptr;
  return Add(session, session.next_stream++, std::move(call_id));
}

size_t SessionTable::BytesOf(const StreamItem& item) {
  return 64 + std::visit([](const auto& event) { return event.ByteSizeLong(); }, item.event);
}

bool SessionTable::Overflows(const Stream& stream, size_t bytes) const {
  return stream.log.size() + 1 > limits_.replay_events_max ||
         stream.log.bytes() + bytes > limits_.replay_bytes_max ||
         replay_bytes_ + bytes > limits_.replay_total_bytes_max;
}

Stream& SessionTable::Append(Stream& stream, StreamItem item) {
  if (stream.session_id.empty()) {
    const size_t bytes = BytesOf(item);
    stream.log.Append(std::move(item), bytes);
    return stream;
  }
  Stream* target = &stream;
  if (core::Planted(core::PlantedBug::kWrongSession)) target = StreamOfAnotherSession(stream);
  std::visit([&](auto& event) { SetId(*event.mutable_id(), *target, term_); }, item.event);
  const size_t bytes = BytesOf(item);
  const size_t before = target->log.bytes();
  if (replay_bytes_ + bytes > limits_.replay_total_bytes_max) {
    target->log.Acknowledge(target->log.last());
  }
  target->log.Append(std::move(item), bytes);
  replay_bytes_ += target->log.bytes();
  replay_bytes_ -= before;
  return *target;
}

void SessionTable::Trim(Stream& stream, uint64_t n) {
  if (!stream.session_id.empty()) replay_bytes_ -= stream.log.bytes();
  stream.log.Acknowledge(n);
  if (!stream.session_id.empty()) replay_bytes_ += stream.log.bytes();
}

Stream* SessionTable::StreamOfAnotherSession(const Stream& stream) const {
  for (const auto& [id, session] : sessions_) {
    if (id == stream.session_id || session->streams.empty()) continue;
    return session->streams.begin()->second.get();
  }
  return const_cast<Stream*>(&stream);
}

void SessionTable::DropStream(Session& session, uint64_t number) {
  auto found = session.streams.find(number);
  if (found == session.streams.end()) return;
  replay_bytes_ -= found->second->log.bytes();
  if (dropped_ != nullptr) dropped_(*found->second);
  // Whoever still holds it (a call, a reader) finds it outside of any session.
  found->second->session_id.clear();
  session.streams.erase(found);
  --streams_;
}

void SessionTable::Suspend(Session& session) {
  session.suspended = true;
  session.pins.clear();
  if (auto own = session.streams.find(0); own != session.streams.end()) {
    const Stream& stream = *own->second;
    session.own_dropped_through = std::max(stream.last(term_), stream.dropped_through);
    session.own_dropped = stream.dropped + stream.kept();
  }
  while (!session.streams.empty()) DropStream(session, session.streams.begin()->first);
}

void SessionTable::SweepOne(Session& session, absl::Time now, Swept& swept) {
  const bool busy = session.readers > 0 || session.started_calls > 0;
  if (busy) {
    session.last_use = now;
    session.quiet_since = now;
    Touch(session);
  }
  if (session.last_use >= session.stored_use + kUseToldEvery) swept.used.push_back(session.id);
  for (auto it = session.streams.begin(); it != session.streams.end();) {
    const Stream& stream = *it->second;
    const uint64_t number = it->first;
    ++it;
    if (stream.finished && stream.reader == nullptr &&
        now >= stream.idle_since + budgets_.session_grace) {
      DropStream(session, number);
    }
  }
  if (busy) return;
  if (now >= session.last_use + budgets_.session_idle) {
    swept.expired.push_back(session.id);
  } else if (!session.suspended &&
             now >= std::max(session.last_use, session.quiet_since) + budgets_.session_grace) {
    swept.suspended.push_back(session.id);
  }
}

SessionTable::Swept SessionTable::Sweep(absl::Time now) {
  Swept swept;
  all_busy_ = false;
  auto it = sessions_.lower_bound(sweep_from_);
  for (size_t i = 0; i < std::min(kSweepSlice, sessions_.size()); ++i, ++it) {
    if (it == sessions_.end()) it = sessions_.begin();
    SweepOne(*it->second, now, swept);
  }
  sweep_from_ = it == sessions_.end() ? std::string() : it->first;
  return swept;
}

}  // namespace callboard::server
