// What the agent knows about its calls after it was killed: started, finished, settled.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "backend_agent/agent.h"
#include "backend_agent/journal_record.h"
#include "core/runtime/strings.h"

namespace callboard::agent {

// A call that has been started and is not settled.
struct JournaledCall {
  std::string call_id;
  uint32_t attempt = 1;
  uint64_t owner_term = 0;
  std::string owner_plane;
  std::string seat_id;
  uint64_t incarnation = 0;
  uint64_t params_size = 0;
  uint32_t params_crc = 0;  // of the first 64 KiB
  std::string backend_job;

  // The end, once there is one. `outcome.body` is empty: the text is `body`.
  std::optional<v1::Outcome> outcome;
  Payload body;
  bool body_lost = false;  // evicted, or its spool file is gone
  std::string spool_name;  // kept file that holds the body; "" when it is in the record
  absl::Time finished_at;  // wall time
  uint64_t sequence = 0;   // order of starting
};

// What is left of a settled call, against stores that forget.
struct Tombstone {
  uint32_t attempt = 1;
  v1::OutcomeClass outcome_class = v1::OUTCOME_CLASS_UNSPECIFIED;
  v1::Certainty certainty = v1::CERTAINTY_UNSPECIFIED;
  absl::Time settled_at;  // wall time
};

struct Settlement {
  std::string call_id;
  uint32_t attempt = 1;
  v1::OutcomeClass outcome_class = v1::OUTCOME_CLASS_UNSPECIFIED;
  v1::Certainty certainty = v1::CERTAINTY_UNSPECIFIED;
};

// The journal of wire.md 4 with its copy in memory. Loop thread only; file and spool outlive it.
// Bounds: journal_bytes_max of file (compacted when it has trebled; then the oldest bodies are
// evicted, whose outcomes stay as "body lost"), tombstones_max tombstones for tombstone_age.
// Errors: a write that failed makes every later one fail until the file could be written anew;
// both are logged once. Unknown records of a newer version are passed over.
class CallJournal final {
 public:
  CallJournal(JournalFile& file, Spool& spool, core::EventLoop& loop, core::Random& random,
              const AgentLimits& limits);

  // Reads what the former run left, and opens the kept spool files. Begins anew, under a new id,
  // what cannot be trusted. An error says that the journal cannot be written now.
  absl::Status Recover();

  // A new one says "I cannot prove what did not start".
  const std::string& id() const { return id_; }
  // The machine has not been booted since the former run: what it started may still be at work.
  bool same_machine_boot() const { return same_machine_boot_; }
  // In order of starting.
  std::vector<const JournaledCall*> Unsettled() const;

  // Must be OK before the first byte goes to the DCC.
  absl::Status Started(JournaledCall call);
  // Must have been called before the outcome is sent. Does nothing for a call that never started. A
  // later end replaces the former one.
  absl::Status Finished(const std::string& call_id, const v1::Outcome& outcome,
                        const Payload& body);
  // The body of a finished call lies in this file of the spool from now on.
  void MoveBody(const std::string& call_id, const Payload& body);
  // The body of a finished call goes; its outcome stays.
  void LoseBody(const std::string& call_id);
  // The backend works on as this job.
  absl::Status Job(const std::string& call_id, std::string_view job_id);
  // Forgets the calls, deletes their spool files and leaves tombstones.
  void Settled(const std::vector<Settlement>& settlements);

  const Tombstone* FindTombstone(const std::string& call_id) const;

  // Highest incarnation known of a seat, 0 if none; survives restarts.
  uint64_t known_incarnation(const std::string& seat_id) const;
  void RaiseIncarnation(const std::string& seat_id, uint64_t incarnation);

  // Drops tombstones that are too old. Finished calls nobody settled for as long leave one too.
  // Returns the latter.
  std::vector<std::string> Expire();

  uint64_t bytes() const { return bytes_; }
  bool writable() const { return !broken_; }

 private:
  bool Apply(RecordKind kind, RecordReader& fields);
  void ApplyFinished(RecordReader& fields);
  void Bury(const std::string& call_id, const Tombstone& tombstone);
  void DropCall(const std::string& call_id);
  void OpenBodies();
  absl::Status KeepBody(JournaledCall& call, const Payload& body);
  std::string Origin() const;
  absl::Status Write();
  void NoteWrite(const absl::Status& status);
  absl::Status Compact();
  void EvictBodies(uint64_t bytes_max);
  void RenewId();

  JournalFile& file_;
  Spool& spool_;
  core::EventLoop& loop_;
  core::Random& random_;
  const AgentLimits limits_;

  std::string id_;
  std::string origin_;  // boot of the machine and place of the file, as the header has them
  bool same_machine_boot_ = true;
  core::StringMap<JournaledCall> calls_;
  uint64_t next_sequence_ = 1;
  core::StringMap<Tombstone> tombstones_;
  std::deque<std::string> tombstone_order_;
  std::map<std::string, uint64_t> incarnations_;

  std::string scratch_;  // the records of the write under way
  uint64_t bytes_ = 0;
  uint64_t compact_at_ = 0;
  bool broken_ = false;  // the last write failed: the tail of the file is unknown
  absl::Time broken_since_;
};

}  // namespace callboard::agent
