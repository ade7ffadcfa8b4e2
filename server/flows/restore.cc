// Implementation of RestoreTables.
#include "server/flows/restore.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "core/telemetry/log.h"
#include "server/flows/store_key.h"

namespace callboard::server {
namespace {

constexpr size_t kRangeEvents = 256;

struct StoredStream {
  std::string session_id;  // empty: nothing says whose it is
  uint64_t number = 0;
  uint64_t first_term = 0;
  bool recorded = false;
  v1::StreamRecord record;
  std::deque<StoredRange> ranges;
  std::optional<StoredRange> in_record;  // the last event, if the record of its call is that
  std::map<uint32_t, uint64_t> have_n;   // by attempt of its call
  std::string progress;                  // the newest value, raw
  std::optional<CallFlow::StoredOutcome> outcome;
};

// The store's records by kind. Reads them once; events are looked at and let go.
class Loaded {
 public:
  explicit Loaded(DurableLog& durable) : durable_(durable) {}

  void Take(const StoreRecord& record) {
    const auto key = StoreKey::Parse(record.key);
    if (!key) return;  // of a newer build
    if (key->former) {
      former_.push_back(record);
      return;
    }
    switch (key->kind) {
      case StoreKey::Kind::kSession:
        (void)sessions[key->session_id].ParseFromString(record.value);
        return;
      case StoreKey::Kind::kStream:
        return TakeStream(StreamOf(*key), record);
      case StoreKey::Kind::kEvent:
        return TakeEvent(*key, StreamOf(*key), record);
      case StoreKey::Kind::kCall:
        return TakeCall(*key->call, record);
      case StoreKey::Kind::kOutcome:
        return TakeOutcome(*key->call, record);
      case StoreKey::Kind::kSeat:
        (void)seats[key->seat_id].ParseFromString(record.value);
        return;
      case StoreKey::Kind::kNotices:
        (void)notices[key->seat_id].ParseFromString(record.value);
        return;
      case StoreKey::Kind::kReceipts:
        (void)receipts[key->number].ParseFromString(record.value);
        return;
    }
  }

  // What a former build wrote under other keys moves to those of today.
  void AdoptFormer() {
    std::map<std::pair<std::string, uint64_t>, CallId> calls_of;
    for (const StoreRecord& record : former_) {
      const StoreKey key = *StoreKey::Parse(record.key);
      v1::StreamRecord stream;
      if (key.kind != StoreKey::Kind::kStream || !stream.ParseFromString(record.value)) continue;
      const auto call = CallId::From(stream.call_id());
      if (!call) continue;
      calls_of[{key.session_id, key.number}] = *call;
      stream.set_session_id(key.session_id);
      stream.set_number(key.number);
      Adopt({StoreKey::OfStream(key.session_id, call), stream.SerializeAsString()});
    }
    for (StoreRecord& record : former_) {
      const StoreKey key = *StoreKey::Parse(record.key);
      durable_.Put(record.key, "");
      if (key.kind == StoreKey::Kind::kOutcome) {
        Adopt({StoreKey::OfOutcome(*key.call), std::move(record.value)});
      } else if (const auto call = calls_of.find({key.session_id, key.number});
                 call != calls_of.end() && key.kind == StoreKey::Kind::kEvent) {
        Adopt({StoreKey::OfEvent(StoreKey::EventsOf(key.session_id, call->second), key.position),
               std::move(record.value)});
      }
    }
    former_.clear();
  }

  std::map<std::string, v1::SessionRecord> sessions;
  std::map<std::string, StoredStream> own_streams;  // by session
  std::map<CallId, StoredStream> call_streams;
  std::map<CallId, v1::CallRecord> calls;  // open ones, and those whose body is elsewhere
  struct Ended {
    v1::Receipt receipt;
    size_t bytes = 0;
  };
  std::map<CallId, Ended> ended;
  std::map<CallId, std::pair<size_t, CallFlow::StoredOutcome>> outcomes;  // and their size
  std::map<uint64_t, v1::ReceiptBlock> receipts;
  std::map<std::string, v1::StoredSeat> seats;
  std::map<std::string, v1::NoticeMark> notices;

 private:
  void Adopt(StoreRecord record) {
    Take(record);
    durable_.Put(std::move(record.key), std::move(record.value));
  }

  StoredStream& StreamOf(const StoreKey& key) {
    if (key.call) return call_streams[*key.call];
    StoredStream& own = own_streams[key.session_id];
    own.session_id = key.session_id;
    return own;
  }

  static void TakeStream(StoredStream& stream, const StoreRecord& record) {
    stream.recorded = stream.record.ParseFromString(record.value);
    if (stream.record.call_id().empty()) return;
    stream.session_id = stream.record.session_id();
    stream.number = stream.record.number();
  }

  void TakeCall(const CallId& id, const StoreRecord& record) {
    v1::CallRecord call;
    const bool sound = call.ParseFromString(record.value);
    if (call.has_ended()) return TakeEnded(id, *call.mutable_ended(), record.value.size());
    if (sound && call.stream() != 0) TakeStreamOf(id, call);
    calls[id] = std::move(call);
  }

  void TakeStreamOf(const CallId& id, const v1::CallRecord& call) {
    StoredStream& stream = call_streams[id];
    stream.session_id = call.request().session_id();
    stream.number = call.stream();
    stream.first_term = call.stream_term();
  }

  void TakeEvent(const StoreKey& key, StoredStream& stream, const StoreRecord& record) {
    v1::EventRecord event;
    if (!event.ParseFromString(record.value)) return durable_.Put(record.key, "");
    StoredRange* range = stream.ranges.empty() ? nullptr : &stream.ranges.back();
    if (range == nullptr || range->term != key.position.term || range->last + 1 != key.position.n ||
        range->last - range->first + 1 >= kRangeEvents) {
      range = &stream.ranges.emplace_back();
      range->term = key.position.term;
      range->first = key.position.n;
    }
    range->last = key.position.n;
    range->bytes += record.value.size();
    uint64_t& have_n = stream.have_n[event.attempt()];
    have_n = std::max(have_n, event.call_n());
    if (event.stream_event().method() == "notifications/progress") {
      const auto value = core::FindMember(event.stream_event().params(), "progress");
      if (value && core::IsNumber(*value)) stream.progress = *value;
    }
    if (event.has_outcome()) TakeLast(stream, event);
  }

  void TakeEnded(const CallId& id, v1::EndedCall& ended_call, size_t bytes) {
    Ended& kept = ended[id];
    kept.receipt = std::move(*ended_call.mutable_receipt());
    kept.bytes = bytes;
    v1::EventRecord& event = *ended_call.mutable_event();
    if (event.session_id().empty()) return;
    StoredStream& stream = call_streams[id];
    StoredRange& range = stream.in_record.emplace();
    range.term = event.outcome().id().term();
    range.first = range.last = event.outcome().id().n();
    range.bytes = bytes;
    range.in_record = true;
    stream.first_term = ended_call.stream_term();
    TakeLast(stream, event);
  }

  static void TakeLast(StoredStream& stream, v1::EventRecord& event) {
    if (!event.session_id().empty()) {
      stream.session_id = event.session_id();
      stream.number = event.outcome().id().stream();
    }
    stream.outcome.emplace();
    stream.outcome->outcome = std::move(*event.mutable_outcome());
    stream.outcome->call_n = event.call_n();
    if (stream.outcome->outcome.body().has_inline_()) stream.outcome->outcome.clear_body();
  }

  void TakeOutcome(const CallId& id, const StoreRecord& record) {
    auto& [size, stored] = outcomes[id];
    size = record.value.size();
    if (!stored.outcome.ParseFromString(record.value)) size = 0;
    if (stored.outcome.body().has_inline_()) stored.outcome.clear_body();
  }

  DurableLog& durable_;
  std::vector<StoreRecord> former_;
};

void RestoreSessions(const Loaded& loaded, Plane& plane, SeatAudience& audience,
                     ToolSelections& selections) {
  std::vector<std::pair<int64_t, const std::string*>> by_use;
  for (const auto& [id, record] : loaded.sessions) {
    by_use.emplace_back(record.last_use_unix_ms(), &id);
  }
  std::sort(by_use.begin(), by_use.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : *a.second < *b.second;
  });
  const absl::Time now = plane.loop.Now();
  for (const auto& [used, id] : by_use) {
    // It may have been used since the store was told.
    const absl::Time last_use = std::min(now, plane.FromUnixMs(used) + SessionTable::kUseToldEvery);
    const v1::SessionRecord& record = loaded.sessions.at(*id);
    Session& session = plane.sessions.Restore(*id, record, last_use, now);
    for (const v1::OpenElicitation& open : record.elicitations()) {
      const auto call = CallId::From(open.call_id());
      if (call) plane.elicitations.Add(open.seat_id(), open.id(), {session.id, *call});
    }
    audience.Add(session);
    selections.Add(session);
  }
}

// Without a call it is a session's own.
void RestoreStream(StoredStream& stored, const std::optional<CallId>& call, Plane& plane,
                   DurableLog& durable) {
  if (stored.in_record) stored.ranges.push_back(*stored.in_record);
  Session* session = plane.sessions.Find(stored.session_id);
  if (session != nullptr && call && !stored.recorded && !stored.outcome) {
    // Only the record of a call that has ended meanwhile names it.
    const Execution* execution = plane.executions.Find(*call);
    if (execution != nullptr && execution->over()) session = nullptr;
  }
  if (session == nullptr) {
    if (stored.recorded) durable.Put(StoreKey::OfStream(stored.session_id, call), "");
    const std::string events = StoreKey::EventsOf(stored.session_id, call);
    for (const StoredRange& range : stored.ranges) {
      if (range.in_record) {
        durable.ReleaseRecord(*call);
        continue;
      }
      for (uint64_t n = range.first; n <= range.last; ++n) {
        durable.Put(StoreKey::OfEvent(events, {range.term, n}), "");
      }
    }
    return;
  }
  Stream& stream = plane.sessions.RestoreStream(*session, stored.number, call ? call->str() : "",
                                                plane.loop.Now());
  stream.dropped_through = {stored.record.dropped_through().term(),
                            stored.record.dropped_through().n()};
  stream.dropped = stored.record.dropped();
  stream.first_term = stored.first_term;
  stream.recorded = stored.recorded;
  stream.finished = stored.outcome.has_value();
  durable.Restore(stream, std::move(stored.ranges));
}

void RestoreStreams(Loaded& loaded, Plane& plane, DurableLog& durable) {
  for (auto& [session, stored] : loaded.own_streams) {
    RestoreStream(stored, std::nullopt, plane, durable);
  }
  for (auto& [call, stored] : loaded.call_streams) RestoreStream(stored, call, plane, durable);
}

void RestoreCalls(const Loaded& loaded, CallFlow& flow) {
  std::vector<std::pair<int64_t, const CallId*>> by_age;
  for (const auto& [id, record] : loaded.calls) by_age.emplace_back(record.created_unix_ms(), &id);
  std::sort(by_age.begin(), by_age.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : *a.second < *b.second;
  });
  for (const auto& [created, id] : by_age) {
    const v1::CallRecord& record = loaded.calls.at(*id);
    const CallFlow::StoredOutcome* outcome = nullptr;
    if (auto kept = loaded.outcomes.find(*id); kept != loaded.outcomes.end()) {
      outcome = &kept->second.second;
    }
    CallFlow::StoredEvents events;
    auto stream = loaded.call_streams.find(*id);
    if (record.stream() != 0 && stream != loaded.call_streams.end()) {
      if (stream->second.outcome) outcome = &*stream->second.outcome;
      auto of_attempt = stream->second.have_n.find(record.call().attempt());
      if (of_attempt != stream->second.have_n.end()) events.have_n = of_attempt->second;
      events.progress = stream->second.progress;
    }
    flow.Restore(*id, record, events, outcome);
  }
}

}  // namespace

absl::Status RestoreTables(const RestoredTables& tables) {
  auto& [plane, durable, bodies, receipts, audience, selections, seats, notices, flow] = tables;
  Loaded loaded(durable);
  const absl::Status status =
      plane.store.Load([&loaded](const StoreRecord& record) { loaded.Take(record); });
  if (!status.ok()) return status;
  loaded.AdoptFormer();
  for (const auto& [seat_id, stored] : loaded.seats) seats.Restore(seat_id, stored);
  for (const auto& [seat_id, stored] : loaded.notices) notices.Restore(seat_id, stored);
  for (const auto& [block, stored] : loaded.receipts) receipts.Restore(block, stored);
  for (const auto& [id, stored] : loaded.ended) {
    receipts.RestoreEnded(id, stored.receipt, stored.bytes);
  }
  RestoreSessions(loaded, plane, audience, selections);
  RestoreStreams(loaded, plane, durable);
  for (const auto& [id, stored] : loaded.ended) {
    if (!loaded.call_streams.contains(id)) durable.ReleaseRecord(id);
  }
  RestoreCalls(loaded, flow);
  bodies.Load();
  for (const auto& [id, stored] : loaded.outcomes) {
    receipts.RestoreOutcome(id, stored.first, stored.second.outcome.body().size());
  }
  bodies.EndRestore();
  plane.executions.metrics().BeginAnew();
  if (!loaded.sessions.empty() || !loaded.seats.empty()) {
    core::LogInfo("restored", {{"seats", plane.seats.size()},
                               {"sessions", plane.sessions.size()},
                               {"streams", plane.sessions.streams()},
                               {"calls", plane.executions.open()},
                               {"receipts", plane.executions.ended()}});
  }
  return absl::OkStatus();
}

}  // namespace callboard::server
