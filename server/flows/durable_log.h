// Writes what must survive a restart, one append a turn, and shows readers what has become durable.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "core/runtime/lifetime.h"
#include "server/domain/stream.h"
#include "server/flows/plane.h"

namespace callboard::server {

// Loop thread, owned by ControlPlane::Impl, made before the flows. What is put in one turn becomes
// one append at its end, and one question for the watermark if anybody waits. Of streams: progress
// and level-triggered notices are put when something that must be durable follows, when they leave
// memory, and at an orderly end; numbers in the store have no holes. Bounds:
// replay_disk_bytes_max for all events; the oldest go, and readers are told of the gap.
//
// While the store fails everything is shown from memory at once; what was put stays with the store.
class DurableLog {
 public:
  enum class Wait {
    kNo,       // shown in its order, but at once
    kDurable,  // shown when it is durable, and everything before it
  };

  explicit DurableLog(Plane& plane);
  // Runs when a stream's readable end has moved.
  void OnReadable(absl::AnyInvocable<void(Stream&)> observer) { observer_ = std::move(observer); }

  // An empty value erases the key.
  void Put(std::string key, std::string value);
  // The session's record is put at the end of the turn.
  void TouchSession(const Session& session);
  void EraseSession(const std::string& session_id);
  // Runs `callback` once all that was put so far is durable, or with the store's error.
  void WhenDurable(absl::AnyInvocable<void(absl::Status)> callback);
  // The same, but waits until a failing store has recovered.
  void OnceDurable(absl::AnyInvocable<void()> callback);
  // The end of a turn; comes by itself, later.
  void Flush();

  // ---- streams ----
  // What was dropped of the stream is put, and that it exists (for a call's, by the record of the
  // call, which was put before); nothing of it is shown before that is durable.
  void Announce(Stream& stream);
  void Append(Stream& stream, StreamItem item, Wait wait);
  // Puts what memory holds of it and the store does not.
  void PutAll(Stream& stream);
  // Where the store has the events of a stream that belongs to a session.
  struct Place {
    std::string events;          // what their keys begin with
    std::optional<CallId> call;  // whose record may hold the last one
  };
  static Place PlaceOf(const Stream& stream);
  // Items after `after`, up to `to` (of this term), at most `limit`, in order; those that are gone
  // are left out. `callback` runs inline or later, unless this is destroyed first.
  void Read(const Place& place, StreamPosition after, StreamPosition to, size_t limit,
            absl::AnyInvocable<void(std::vector<StreamItem>)> callback);
  // What the store holds of a stream of former terms, in order.
  void Restore(Stream& stream, std::deque<StoredRange> ranges);
  // No stream needs the record of that call, which is over: it goes unless its outcome is kept.
  void ReleaseRecord(const CallId& call);

  // Asks a store that has recovered again, drops what readers have had for long enough.
  void Sweep();
  // OK, or what keeps things from becoming durable.
  absl::Status status() const;
  size_t disk_bytes() const { return disk_bytes_; }

 private:
  struct Batch {
    std::vector<std::pair<std::weak_ptr<Stream>, uint64_t>> streams;
    std::vector<absl::AnyInvocable<void(absl::Status)>> callbacks;
    std::vector<absl::AnyInvocable<void()>> patient;
    bool empty() const { return streams.empty() && callbacks.empty() && patient.empty(); }
  };

  void ScheduleFlush();
  void OnDurable(uint64_t position, const absl::Status& status);
  void PutRecord(Stream& stream);
  void Show(Stream& stream, uint64_t n);
  void ShowUnwaited(Stream& stream);
  // What the record of a call becomes when its whole outcome ends its stream.
  std::string EncodeEnded(const CallId& call, const Stream& stream, const StreamItem& item);
  void ReadLast(const CallId& call, StreamPosition after, StreamPosition to,
                std::vector<StreamItem> items,
                absl::AnyInvocable<void(std::vector<StreamItem>)> callback);
  void CountStored(Stream& stream, uint64_t n, size_t bytes, bool in_record);
  void DropRange(Stream& stream);
  void EraseRange(const Stream& stream, const StoredRange& range);
  void OnDropped(Stream& stream);
  void EvictDisk();
  void DropRead();
  void RetryPatient();

  Plane& plane_;
  absl::AnyInvocable<void(Stream&)> observer_;
  std::vector<StoreRecord> records_;
  std::set<std::string> touched_sessions_;
  Batch batch_;
  std::deque<std::pair<uint64_t, Batch>> waiting_;   // by position
  std::vector<absl::AnyInvocable<void()>> patient_;  // of failed waits
  uint64_t position_ = 0;
  bool flush_posted_ = false;
  std::map<uint64_t, Stream*> by_age_;  // of every stored range
  uint64_t next_age_ = 1;
  uint64_t looked_at_ = 0;  // of by_age_, at the last sweep
  size_t disk_bytes_ = 0;
  absl::Time failing_since_ = absl::InfiniteFuture();
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
