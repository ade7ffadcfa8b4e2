// Every session: who, which revision, its streams with their replay logs, and when it may go.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "callboard/v1/control.pb.h"
#include "callboard/v1/store.pb.h"
#include "core/runtime/strings.h"
#include "server/domain/limits.h"
#include "server/domain/stream.h"

namespace callboard::server {

struct Session {
  std::string id;  // 32 hex digits, not to be guessed
  v1::OpenSessionRequest opened;
  std::string principal;
  std::string revision;
  std::string surface;
  std::string seat_id;  // of the surface "seat:<seat_id>"
  std::string client_info;
  std::string capabilities;
  absl::Time last_use;
  absl::Time quiet_since;  // when the last reader left or the last started call ended
  bool suspended = false;  // grace is over: logs are gone, the id is still valid
  size_t readers = 0;
  size_t started_calls = 0;
  std::set<uint64_t> calls;  // orders of the open calls
  std::map<uint64_t, std::shared_ptr<Stream>> streams;
  // What suspensions have cost the session's own stream: all up to this event, and how many.
  StreamPosition own_dropped_through;
  uint64_t own_dropped = 0;
  uint64_t next_stream = 1;
  std::string log_level;                 // as the client has set it; empty: not
  std::set<std::string> subscriptions;   // URIs of resources; bounded by SeatAudience
  std::map<std::string, uint64_t> pins;  // seat -> incarnation at first use; at most kPinsMax
  std::list<Session*>::iterator lru;
  // Numbers of streams below this are taken, also in the store.
  uint64_t reserved_streams = 1;
  absl::Time stored_use;  // last_use as the store has it
  // Is told once, when its backend is there, that all may have changed: it is of a former term, or
  // was opened while nobody knew what its backend has.
  bool owed_look_again = false;
  bool awaited = false;  // of a former term, and its client has not come back yet

  static constexpr size_t kPinsMax = 256;
};

// What whoever names a session that is not known is told: NotFound.
absl::Status NoSession(std::string_view id);

// Pure table, loop thread. Bounds: sessions_max (the caller closes Victim() first), streams per
// session, events and bytes per stream and in all. Numbers of streams are never used twice within
// a session, and those of events not within a stream and term.
class SessionTable {
 public:
  SessionTable(const Limits& limits, const Budgets& budgets, uint64_t term)
      : limits_(limits), budgets_(budgets), term_(term) {}
  // How far the store may be behind with a session's last use.
  static constexpr absl::Duration kUseToldEvery = absl::Minutes(10);

  // Runs for each stream that leaves its session, while it still knows which that is.
  void OnDropped(absl::AnyInvocable<void(Stream&)> observer) { dropped_ = std::move(observer); }

  Session& Open(std::string id, const v1::OpenSessionRequest& request, absl::Time now);
  // One of a former term. Call in the order of last use, the most recent last.
  Session& Restore(std::string id, const v1::SessionRecord& record, absl::Time last_use,
                   absl::Time now);
  // The oldest finished one makes room: what a receipt still holds of a stream that had gone comes
  // back with it.
  Stream& RestoreStream(Session& session, uint64_t number, std::string call_id, absl::Time now);
  // nullptr if unknown.
  Session* Find(std::string_view id) const;
  // Find() that counts as use.
  Session* Use(std::string_view id, absl::Time now);
  void Erase(std::string_view id);
  // The session that has to go before another can be opened; nullptr while there is room. The
  // least recently used of those that nobody reads and that have no open call; of all, if each has.
  Session* Victim();

  // The session's own stream, made at first use.
  std::shared_ptr<Stream> OwnStream(Session& session);
  // A new stream for a call; a finished one that nobody reads makes room. nullptr: too many.
  std::shared_ptr<Stream> AddStream(Session& session, std::string call_id);
  // A stream outside any session.
  std::shared_ptr<Stream> MakeLooseStream() const;
  // Whether appending so many bytes would cost the stream older items.
  bool Overflows(const Stream& stream, size_t bytes) const;
  static size_t BytesOf(const StreamItem& item);
  // Gives the item its id and appends it to the stream, which is returned.
  Stream& Append(Stream& stream, StreamItem item);
  // Items up to here leave memory.
  void Trim(Stream& stream, uint64_t n);
  void DropStream(Session& session, uint64_t number);

  struct Swept {
    std::vector<std::string> expired;    // idle for too long: to be closed
    std::vector<std::string> suspended;  // grace is over: to be suspended
    std::vector<std::string> used;       // since the store was told, for long
  };
  // Frees finished streams whose grace is over and says which sessions are due. Looks at a slice of
  // the sessions at a time.
  Swept Sweep(absl::Time now);
  // Frees the logs; the id stays valid, and the session's own stream goes on with its numbers.
  void Suspend(Session& session);

  // In order of id.
  const std::map<std::string, std::unique_ptr<Session>, std::less<>>& all() const {
    return sessions_;
  }
  size_t size() const { return sessions_.size(); }
  // What became of the sessions of former terms.
  struct TakenOver {
    size_t awaited = 0;  // their clients have not come back yet
    uint64_t taken_up = 0;
    uint64_t ended = 0;  // before their client had come back
  };
  const TakenOver& taken_over() const { return taken_over_; }
  size_t streams() const { return streams_; }
  size_t replay_bytes() const { return replay_bytes_; }

 private:
  std::shared_ptr<Stream> Add(Session& session, uint64_t number, std::string call_id);
  // A finished stream that nobody reads makes room, the oldest first; false: there is none.
  bool MakeRoom(Session& session);
  Stream* StreamOfAnotherSession(const Stream& stream) const;
  // It has been used.
  void Touch(Session& session);
  void SweepOne(Session& session, absl::Time now, Swept& swept);

  const Limits limits_;
  const Budgets budgets_;
  const uint64_t term_;
  std::map<std::string, std::unique_ptr<Session>, std::less<>> sessions_;
  core::StringMap<Session*> by_id_;
  std::list<Session*> lru_;  // most recently used first; who is busy is in use
  bool all_busy_ = false;    // at the last look, since the last sweep
  std::string sweep_from_;
  absl::AnyInvocable<void(Stream&)> dropped_;
  TakenOver taken_over_;
  size_t streams_ = 0;
  size_t replay_bytes_ = 0;
};

}  // namespace callboard::server
