// Implementation of RestoreTables.
#include "server/flows/restore.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/telemetry/log.h"
#include "server/flows/store_key.h"

namespace callboard::server {
namespace {

constexpr size_t kRangeEvents = 256;

struct StoredStream {
  std::optional<v1::StreamRecord> record;
  std::deque<StoredRange> ranges;
  std::map<uint32_t, uint64_t> have_n;  // by attempt of its call
  std::optional<CallFlow::StoredOutcome> outcome;
};
using StreamName = std::pair<std::string, uint64_t>;  // session, number

// The store's records by kind. Reads them once; events are looked at and let go.
class Loaded {
 public:
  explicit Loaded(DurableLog& durable) : durable_(durable) {}

  void Take(const StoreRecord& record) {
    const auto key = StoreKey::Parse(record.key);
    if (!key) return;  // of a newer build
    switch (key->kind) {
      case StoreKey::Kind::kSession:
        (void)sessions[key->session_id].ParseFromString(record.value);
        return;
      case StoreKey::Kind::kStream:
        (void)streams[{key->session_id, key->number}].record.emplace().ParseFromString(
            record.value);
        return;
      case StoreKey::Kind::kEvent:
        return TakeEvent(*key, record);
      case StoreKey::Kind::kCall:
        (void)calls[key->call].ParseFromString(record.value);
        return;
      case StoreKey::Kind::kOutcome:
        return TakeOutcome(*key, record);
      case StoreKey::Kind::kReceipts:
        (void)receipts[key->number].ParseFromString(record.value);
        return;
    }
  }

  std::map<std::string, v1::SessionRecord> sessions;
  std::map<StreamName, StoredStream> streams;
  std::map<CallId, v1::CallRecord> calls;
  std::map<CallId, std::pair<size_t, CallFlow::StoredOutcome>> outcomes;  // and their size
  std::map<uint64_t, v1::ReceiptBlock> receipts;

 private:
  void TakeEvent(const StoreKey& key, const StoreRecord& record) {
    StoredStream& stream = streams[{key.session_id, key.number}];
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
    if (!event.has_outcome()) return;
    stream.outcome.emplace();
    stream.outcome->outcome = std::move(*event.mutable_outcome());
    stream.outcome->call_n = event.call_n();
    if (stream.outcome->outcome.body().has_inline_()) stream.outcome->outcome.clear_body();
  }

  void TakeOutcome(const StoreKey& key, const StoreRecord& record) {
    auto& [size, stored] = outcomes[key.call];
    size = record.value.size();
    if (!stored.outcome.ParseFromString(record.value)) size = 0;
    stored.outcome.clear_body();
  }

  DurableLog& durable_;
};

void RestoreSessions(const Loaded& loaded, Plane& plane, SeatAudience& audience) {
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
    audience.Add(plane.sessions.Restore(*id, loaded.sessions.at(*id), last_use, now));
  }
}

void RestoreStreams(Loaded& loaded, Plane& plane, DurableLog& durable) {
  for (auto& [name, stored] : loaded.streams) {
    const auto& [session_id, number] = name;
    Session* session = plane.sessions.Find(session_id);
    // Its events came before its record: only the beginning of the store's truth was lost.
    const bool known = stored.record.has_value() || number == 0;
    if (session == nullptr || !known) {
      durable.Put(StoreKey::OfStream(session_id, number), "");
      for (const StoredRange& range : stored.ranges) {
        for (uint64_t n = range.first; n <= range.last; ++n) {
          durable.Put(StoreKey::OfEvent(session_id, number, {range.term, n}), "");
        }
      }
      continue;
    }
    Stream& stream = plane.sessions.RestoreStream(
        *session, number, stored.record ? stored.record->call_id() : "", plane.loop.Now());
    if (stored.record) {
      stream.dropped_through = {stored.record->dropped_through().term(),
                                stored.record->dropped_through().n()};
      stream.dropped = stored.record->dropped();
    }
    stream.finished = stored.outcome.has_value();
    durable.Restore(stream, std::move(stored.ranges));
  }
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
    uint64_t have_n = 0;
    auto stream = loaded.streams.find({record.request().session_id(), record.stream()});
    if (record.stream() != 0 && stream != loaded.streams.end()) {
      if (stream->second.outcome) outcome = &*stream->second.outcome;
      auto of_attempt = stream->second.have_n.find(record.call().attempt());
      if (of_attempt != stream->second.have_n.end()) have_n = of_attempt->second;
    }
    flow.Restore(*id, record, have_n, outcome);
  }
}

}  // namespace

absl::Status RestoreTables(Plane& plane, DurableLog& durable, Receipts& receipts,
                           SeatAudience& audience, CallFlow& flow) {
  Loaded loaded(durable);
  const absl::Status status =
      plane.store.Load([&loaded](const StoreRecord& record) { loaded.Take(record); });
  if (!status.ok()) return status;
  for (const auto& [block, stored] : loaded.receipts) receipts.Restore(block, stored);
  RestoreSessions(loaded, plane, audience);
  RestoreStreams(loaded, plane, durable);
  RestoreCalls(loaded, flow);
  for (const auto& [id, stored] : loaded.outcomes) receipts.RestoreOutcome(id, stored.first);
  plane.executions.metrics().BeginAnew();
  if (!loaded.sessions.empty()) {
    core::LogInfo("restored", {{"sessions", plane.sessions.size()},
                               {"streams", plane.sessions.streams()},
                               {"calls", plane.executions.open()},
                               {"receipts", plane.executions.ended()}});
  }
  return absl::OkStatus();
}

}  // namespace callboard::server
