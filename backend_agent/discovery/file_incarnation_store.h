// The counters of the seats' processes in a JSON file of the state folder.
#pragma once

#include <map>
#include <string>

#include "backend_agent/incarnation_counter.h"

namespace callboard::agent {

// {"<seat_id>":{"incarnation":3,"pid":4711,"start_time":123456},...}, replaced atomically. Errors
// name the path and the system's reason.
class FileIncarnationStore final : public IncarnationStore {
 public:
  explicit FileIncarnationStore(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<std::map<std::string, IncarnationRecord>> Load() override;
  absl::Status Save(const std::map<std::string, IncarnationRecord>& records) override;

 private:
  std::string path_;
};

}  // namespace callboard::agent
