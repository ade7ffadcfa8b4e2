// Implementation of DurableLog.
#include "server/flows/durable_log.h"

#include <algorithm>

#include "core/runtime/planted_bug.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"
#include "server/flows/receipts.h"
#include "server/flows/store_key.h"

namespace callboard::server {
namespace {

// What goes at once when the disk bound or time asks for it: at most this, and a small part of the
// bound.
constexpr uint64_t kRangeBytes = 64 << 10;
constexpr uint64_t kRangesOfBound = 64;
constexpr size_t kRangesLookedAt = 1'024;
constexpr size_t kRecordOverhead = 128;

void Encode(const StreamItem& item, const std::string& session_id, v1::EventRecord& record) {
  if (const auto* outcome = std::get_if<v1::CallOutcome>(&item.event)) {
    *record.mutable_outcome() = *outcome;
    record.set_session_id(session_id);
  } else if (const auto* ask = std::get_if<v1::AskEvent>(&item.event)) {
    *record.mutable_ask() = *ask;
  } else {
    *record.mutable_stream_event() = std::get<v1::StreamEvent>(item.event);
  }
  record.set_call_n(item.call_n);
  record.set_attempt(item.attempt);
}

std::optional<StreamItem> Decode(v1::EventRecord record) {
  StreamItem item;
  item.call_n = record.call_n();
  item.attempt = record.attempt();
  switch (record.event_case()) {
    case v1::EventRecord::kStreamEvent:
      item.event = std::move(*record.mutable_stream_event());
      return item;
    case v1::EventRecord::kAsk:
      item.event = std::move(*record.mutable_ask());
      return item;
    case v1::EventRecord::kOutcome:
      item.event = std::move(*record.mutable_outcome());
      return item;
    case v1::EventRecord::EVENT_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

// An outcome whose body is all in it, which ends a call's stream.
bool IsWholeOutcome(const StreamItem& item) {
  const auto* outcome = std::get_if<v1::CallOutcome>(&item.event);
  return outcome != nullptr && !outcome->body().has_size();
}

// The newest item that leaves memory when so many bytes are appended to a stream that is full.
uint64_t LeavingThrough(const Plane& plane, const Stream& stream, size_t bytes) {
  const Limits& limits = plane.config.limits;
  if (plane.sessions.replay_bytes() + bytes > limits.replay_total_bytes_max) {
    return stream.log.last();
  }
  uint64_t through = stream.log.floor();
  size_t left = stream.log.size() + 1;
  size_t left_bytes = stream.log.bytes() + bytes;
  while (through < stream.log.last() &&
         (left > limits.replay_events_max || left_bytes > limits.replay_bytes_max)) {
    --left;
    left_bytes -= SessionTable::BytesOf(*stream.log.Find(++through));
  }
  return through;
}

std::string Encode(const Session& session, const Plane& plane) {
  v1::SessionRecord record;
  *record.mutable_opened() = session.opened;
  record.set_next_stream(session.reserved_streams);
  record.set_log_level(session.log_level);
  for (const std::string& uri : session.subscriptions) record.add_subscriptions(uri);
  for (const auto& [seat, incarnation] : session.pins) {
    (*record.mutable_pins())[seat] = incarnation;
  }
  record.set_suspended(session.suspended);
  record.set_last_use_unix_ms(plane.UnixMs(session.last_use));
  record.mutable_own_dropped_through()->set_term(session.own_dropped_through.term);
  record.mutable_own_dropped_through()->set_n(session.own_dropped_through.n);
  record.set_own_dropped(session.own_dropped);
  plane.elicitations.ForEachOf(session.id, [&](const std::string& seat_id, const std::string& id,
                                               const ElicitationTable::Owner& owner) {
    v1::OpenElicitation& open = *record.add_elicitations();
    open.set_seat_id(seat_id);
    open.set_id(id);
    open.set_call_id(owner.call.str());
  });
  return record.SerializeAsString();
}

}  // namespace

DurableLog::DurableLog(Plane& plane) : plane_(plane) {
  plane_.sessions.OnDropped([this](Stream& stream) { OnDropped(stream); });
}

// ---- records ------------------------------------------------------------------------------------

void DurableLog::ScheduleFlush() {
  if (std::exchange(flush_posted_, true)) return;
  plane_.loop.Post(lifetime_.Wrap([this] { Flush(); }));
}

void DurableLog::Put(std::string key, std::string value) {
  records_.push_back({std::move(key), std::move(value)});
  ScheduleFlush();
}

void DurableLog::TouchSession(const Session& session) {
  touched_sessions_.insert(session.id);
  ScheduleFlush();
}

void DurableLog::EraseSession(const std::string& session_id) {
  touched_sessions_.erase(session_id);
  Put(StoreKey::OfSession(session_id), "");
}

void DurableLog::WhenDurable(absl::AnyInvocable<void(absl::Status)> callback) {
  batch_.callbacks.push_back(std::move(callback));
  ScheduleFlush();
}

void DurableLog::OnceDurable(absl::AnyInvocable<void()> callback) {
  batch_.patient.push_back(std::move(callback));
  ScheduleFlush();
}

void DurableLog::Flush() {
  flush_posted_ = false;
  for (const std::string& id : std::exchange(touched_sessions_, {})) {
    Session* session = plane_.sessions.Find(id);
    if (session == nullptr) continue;
    session->stored_use = session->last_use;
    records_.push_back({StoreKey::OfSession(id), Encode(*session, plane_)});
  }
  if (!records_.empty()) position_ = plane_.store.Append(std::exchange(records_, {}));
  if (batch_.empty()) return;
  waiting_.emplace_back(position_, std::exchange(batch_, {}));
  plane_.store.WhenDurable(position_,
                           lifetime_.Wrap([this, position = position_](const absl::Status& status) {
                             OnDurable(position, status);
                           }));
}

void DurableLog::OnDurable(uint64_t position, const absl::Status& status) {
  if (!status.ok() && failing_since_ == absl::InfiniteFuture()) {
    failing_since_ = plane_.loop.Now();
    core::LogWarn("store_fails", {{"reason", core::Message(status)}});
  } else if (status.ok() && failing_since_ != absl::InfiniteFuture()) {
    core::LogInfo("store_recovered",
                  {{"duration_ms", absl::ToInt64Milliseconds(plane_.loop.Now() - failing_since_)}});
    failing_since_ = absl::InfiniteFuture();
  }
  while (!waiting_.empty() && waiting_.front().first <= position) {
    Batch batch = std::move(waiting_.front().second);
    waiting_.pop_front();
    for (const auto& [weak, n] : batch.streams) {
      if (const auto stream = weak.lock()) Show(*stream, n);
    }
    for (auto& callback : batch.patient) {
      if (status.ok()) {
        callback();
      } else {
        patient_.push_back(std::move(callback));
      }
    }
    // They go out of the tower, where anything may happen.
    for (auto& callback : batch.callbacks) {
      plane_.loop.Post(
          lifetime_.Wrap([callback = std::move(callback), status]() mutable { callback(status); }));
    }
  }
}

absl::Status DurableLog::status() const {
  const absl::Status status = plane_.store.status();
  if (status.ok()) return status;
  return core::MakeError(absl::StatusCode::kUnavailable,
                         fmt::format("the control plane's store fails ({}); nothing was started, "
                                     "try again when it works",
                                     core::Message(status)));
}

void DurableLog::RetryPatient() {
  if (patient_.empty() || !plane_.store.status().ok()) return;
  for (auto& callback : std::exchange(patient_, {})) batch_.patient.push_back(std::move(callback));
  Flush();
}

// ---- streams ------------------------------------------------------------------------------------

void DurableLog::Announce(Stream& stream) {
  if (stream.call_id.empty() || stream.dropped > 0) PutRecord(stream);
  if (stream.readable != Stream::kUnannounced) return;
  batch_.streams.emplace_back(stream.weak_from_this(), stream.log.last());
  ScheduleFlush();
  if (core::Planted(core::PlantedBug::kShownBeforeDurable)) stream.readable = 0;
}

void DurableLog::PutRecord(Stream& stream) {
  v1::StreamRecord record;
  if (!stream.call_id.empty()) {
    record.set_call_id(stream.call_id);
    record.set_session_id(stream.session_id);
    record.set_number(stream.number);
  }
  record.mutable_dropped_through()->set_term(stream.dropped_through.term);
  record.mutable_dropped_through()->set_n(stream.dropped_through.n);
  record.set_dropped(stream.dropped);
  Put(StoreKey::OfStream(stream), record.SerializeAsString());
  stream.recorded = true;
}

void DurableLog::ShowUnwaited(Stream& stream) {
  const auto barrier = static_cast<int64_t>(stream.barrier);
  if (stream.readable != Stream::kUnannounced && stream.readable >= barrier) {
    stream.readable = static_cast<int64_t>(stream.log.last());
  }
}

void DurableLog::Append(Stream& stream, StreamItem item, Wait wait) {
  if (stream.session_id.empty()) {
    plane_.sessions.Append(stream, std::move(item));
    stream.readable = static_cast<int64_t>(stream.log.last());
    if (stream.reader != nullptr) stream.reader->Wake();
    return;
  }
  const size_t bytes = SessionTable::BytesOf(item);
  if (plane_.sessions.Overflows(stream, bytes)) {
    // Progress that has been read may go: a stream that is followed closely costs no disk.
    const StreamPosition leaving{plane_.term, LeavingThrough(plane_, stream, bytes)};
    const bool read = stream.reader != nullptr && stream.reader->consumed() >= leaving;
    if (!read && leaving.n > stream.stored_to) PutAll(stream);
  }
  Stream& target = plane_.sessions.Append(stream, std::move(item));
  if (wait == Wait::kDurable && !core::Planted(core::PlantedBug::kShownBeforeDurable)) {
    target.barrier = target.log.last();
  }
  if (wait == Wait::kDurable) {
    PutAll(target);
    batch_.streams.emplace_back(target.weak_from_this(), target.log.last());
    ScheduleFlush();
  }
  ShowUnwaited(target);
  if (target.reader != nullptr) target.reader->Wake();
}

void DurableLog::Show(Stream& stream, uint64_t n) {
  const int64_t before = stream.readable;
  stream.readable = std::max(stream.readable, static_cast<int64_t>(n));
  ShowUnwaited(stream);
  if (stream.readable == before) return;
  if (stream.reader != nullptr) stream.reader->Wake();
  if (observer_ != nullptr) observer_(stream);
}

void DurableLog::PutAll(Stream& stream) {
  if (stream.session_id.empty()) return;
  const std::string events = StoreKey::EventsOf(stream);
  for (uint64_t n = std::max(stream.stored_to, stream.log.floor()) + 1; n <= stream.log.last();
       ++n) {
    const StreamItem& item = *stream.log.Find(n);
    const auto call = IsWholeOutcome(item) ? CallId::From(stream.call_id) : std::nullopt;
    std::string value;
    if (call) {
      value = EncodeEnded(*call, stream, item);
    } else {
      v1::EventRecord record;
      Encode(item, stream.session_id, record);
      value = record.SerializeAsString();
    }
    CountStored(stream, n, value.size() + kRecordOverhead, call.has_value());
    Put(call ? StoreKey::OfCall(*call) : StoreKey::OfEvent(events, {plane_.term, n}),
        std::move(value));
  }
  stream.stored_to = stream.log.last();
  EvictDisk();
}

std::string DurableLog::EncodeEnded(const CallId& call, const Stream& stream,
                                    const StreamItem& item) {
  v1::CallRecord record;
  Encode(item, stream.session_id, *record.mutable_ended()->mutable_event());
  record.mutable_ended()->set_stream_term(stream.first_term);
  if (Execution* execution = plane_.executions.Find(call)) {
    *record.mutable_ended()->mutable_receipt() = ToReceipt(*execution, plane_);
    execution->record_in_stream = true;
  }
  return record.SerializeAsString();
}

void DurableLog::CountStored(Stream& stream, uint64_t n, size_t bytes, bool in_record) {
  const uint64_t bytes_max =
      std::min(kRangeBytes, plane_.config.limits.replay_disk_bytes_max / kRangesOfBound);
  StoredRange* range = stream.stored.empty() ? nullptr : &stream.stored.back();
  if (range == nullptr || range->term != plane_.term || range->last + 1 != n || in_record ||
      range->bytes >= bytes_max) {
    range = &stream.stored.emplace_back();
    range->term = plane_.term;
    range->first = n;
    range->in_record = in_record;
    range->age = next_age_++;
    by_age_[range->age] = &stream;
  }
  range->last = n;
  range->bytes += bytes;
  range->stored = plane_.loop.Now();
  disk_bytes_ += bytes;
}

void DurableLog::Restore(Stream& stream, std::deque<StoredRange> ranges) {
  for (StoredRange& range : ranges) {
    range.age = next_age_++;
    range.stored = plane_.loop.Now();
    range.bytes += kRecordOverhead * (range.last - range.first + 1);
    by_age_[range.age] = &stream;
    disk_bytes_ += range.bytes;
    stream.former_last = {range.term, range.last};
    const auto call = range.in_record ? CallId::From(stream.call_id) : std::nullopt;
    Execution* execution = call ? plane_.executions.Find(*call) : nullptr;
    if (execution != nullptr) execution->record_in_stream = true;
  }
  stream.stored = std::move(ranges);
}

DurableLog::Place DurableLog::PlaceOf(const Stream& stream) {
  return {StoreKey::EventsOf(stream), CallId::From(stream.call_id)};
}

void DurableLog::Read(const Place& place, StreamPosition after, StreamPosition to, size_t limit,
                      absl::AnyInvocable<void(std::vector<StreamItem>)> callback) {
  Flush();  // what was put in this turn is to be found
  plane_.store.Read(
      StoreKey::OfEvent(place.events, {after.term, after.n + 1}),
      StoreKey::OfEvent(place.events, {to.term, to.n + 1}), limit,
      lifetime_.Wrap([this, call = place.call, after, to, limit, callback = std::move(callback)](
                         absl::StatusOr<std::vector<StoreRecord>> records) mutable {
        std::vector<StreamItem> items;
        if (!records.ok()) {
          core::LogWarn("store_read_failed", {{"reason", core::Message(records.status())}});
          return callback(std::move(items));
        }
        for (const StoreRecord& record : *records) {
          v1::EventRecord event;
          if (!event.ParseFromString(record.value)) continue;
          if (auto item = Decode(std::move(event))) items.push_back(*std::move(item));
        }
        if (!call || items.size() >= limit) return callback(std::move(items));
        ReadLast(*call, after, to, std::move(items), std::move(callback));
      }));
}

// The outcome that the call's record may hold, behind the events.
void DurableLog::ReadLast(const CallId& call, StreamPosition after, StreamPosition to,
                          std::vector<StreamItem> items,
                          absl::AnyInvocable<void(std::vector<StreamItem>)> callback) {
  const std::string key = StoreKey::OfCall(call);
  plane_.store.Read(
      key, key + '\0', 1,
      lifetime_.Wrap([after, to, items = std::move(items), callback = std::move(callback)](
                         absl::StatusOr<std::vector<StoreRecord>> records) mutable {
        v1::CallRecord record;
        if (records.ok() && !records->empty() && record.ParseFromString(records->front().value) &&
            record.has_ended()) {
          auto item = Decode(std::move(*record.mutable_ended()->mutable_event()));
          if (item && PositionOf(*item) > after && PositionOf(*item) <= to) {
            items.push_back(*std::move(item));
          }
        }
        callback(std::move(items));
      }));
}

// ---- what is dropped ----------------------------------------------------------------------------

void DurableLog::ReleaseRecord(const CallId& call) {
  Execution* execution = plane_.executions.Find(call);
  if (execution != nullptr) execution->record_in_stream = false;
  const bool kept =
      execution != nullptr && execution->outcome_bytes > 0 && execution->outcome_in_record;
  if (!kept) Put(StoreKey::OfCall(call), "");
}

void DurableLog::EraseRange(const Stream& stream, const StoredRange& range) {
  if (range.in_record) {
    if (const auto call = CallId::From(stream.call_id)) ReleaseRecord(*call);
  } else {
    const std::string events = StoreKey::EventsOf(stream);
    for (uint64_t n = range.first; n <= range.last; ++n) {
      Put(StoreKey::OfEvent(events, {range.term, n}), "");
    }
  }
  by_age_.erase(range.age);
  disk_bytes_ -= range.bytes;
}

// The oldest range of the stream.
void DurableLog::DropRange(Stream& stream) {
  const StoredRange range = stream.stored.front();
  stream.stored.pop_front();
  EraseRange(stream, range);
  if (range.term == plane_.term) plane_.sessions.Trim(stream, range.last);
  stream.dropped_through = {range.term, range.last};
  stream.dropped += range.last - range.first + 1;
}

void DurableLog::EvictDisk() {
  while (disk_bytes_ > plane_.config.limits.replay_disk_bytes_max && !by_age_.empty()) {
    Stream& stream = *by_age_.begin()->second;
    DropRange(stream);
    Announce(stream);
  }
}

void DurableLog::OnDropped(Stream& stream) {
  if (stream.recorded) Put(StoreKey::OfStream(stream), "");
  for (const StoredRange& range : stream.stored) EraseRange(stream, range);
  stream.stored.clear();
  // From now on it lives by its holders alone.
  stream.barrier = 0;
  stream.readable = static_cast<int64_t>(stream.log.last());
  if (stream.reader != nullptr) stream.reader->Wake();
}

// Of long streams: what has left memory, has been read, and is older than the grace.
void DurableLog::DropRead() {
  const absl::Time old = plane_.loop.Now() - plane_.config.budgets.session_grace;
  std::vector<Stream*> due;
  auto it = by_age_.upper_bound(looked_at_);
  for (size_t i = 0; i < kRangesLookedAt && it != by_age_.end(); ++i, ++it) {
    looked_at_ = it->first;
    Stream& stream = *it->second;
    const StoredRange& oldest = stream.stored.front();
    if (oldest.age != it->first || oldest.stored > old || stream.reader == nullptr) continue;
    const StreamPosition end{oldest.term, oldest.last};
    const bool in_memory = oldest.term == plane_.term && oldest.last > stream.log.floor();
    if (!in_memory && stream.reader->consumed() >= end) due.push_back(&stream);
  }
  if (it == by_age_.end()) looked_at_ = 0;
  for (Stream* stream : due) {
    DropRange(*stream);
    Announce(*stream);
  }
}

void DurableLog::Sweep() {
  RetryPatient();
  DropRead();
}

}  // namespace callboard::server
