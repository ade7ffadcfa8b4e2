// Counts the processes of each seat, across restarts of the agent.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace callboard::agent {

// Two processes are the same if both numbers are equal and known (not 0).
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_time = 0;  // as the system counts it (clock ticks since boot)
};

struct IncarnationRecord {
  uint64_t incarnation = 0;
  ProcessIdentity process;
};

// Where the counters survive. Loop thread only. Implementation: discovery/file_incarnation_store.
class IncarnationStore {
 public:
  virtual ~IncarnationStore() = default;
  // By seat_id; empty if nothing was saved.
  virtual absl::StatusOr<std::map<std::string, IncarnationRecord>> Load() = 0;
  virtual absl::Status Save(const std::map<std::string, IncarnationRecord>& records) = 0;
};

// Loop thread only; the store outlives it. A store that fails costs the memory of a restart, not
// the service: last_error() tells. At most kRecordsMax seats are remembered; beyond, others are
// forgotten only by hand (removing the file).
class IncarnationCounter {
 public:
  static constexpr size_t kRecordsMax = 4'096;

  explicit IncarnationCounter(IncarnationStore& store);

  // The number of `process` in that seat: the former one if it is the same process, else one more,
  // and never less than `at_least` (what a control plane has seen) plus one for a new process.
  uint64_t Next(const std::string& seat_id, ProcessIdentity process, uint64_t at_least = 0);
  // The seat this process was last counted in; empty if none.
  std::string FindSeat(ProcessIdentity process) const;

  const absl::Status& last_error() const { return last_error_; }

 private:
  IncarnationStore& store_;
  std::map<std::string, IncarnationRecord> records_;
  absl::Status last_error_;
};

}  // namespace callboard::agent
