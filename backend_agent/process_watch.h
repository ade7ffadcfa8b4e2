// Port that tells when a process which is not our child ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"

namespace callboard::agent {

// How a process ended, as far as the system lets a stranger know.
struct ProcessEnd {
  int exit_status = -1;  // valid if >= 0
  int exit_signal = 0;   // valid if > 0
};

// "blender (pid 4711) was killed by signal 9 (SIGKILL)": one sentence for a person.
std::string DescribeEnd(const std::string& name, int64_t pid, const ProcessEnd& end);

// One process under watch. Destroying it ends the watch; no callback follows.
class ProcessWatch {
 public:
  virtual ~ProcessWatch() = default;
};

// Loop thread only; outlives its watches. Implementation: discovery/linux_process_watcher.
class ProcessWatcher {
 public:
  virtual ~ProcessWatcher() = default;
  // `on_end` runs once, later (never inline), within 100 ms of the end of the process; at once when
  // there is no such process or it is a zombie.
  virtual std::unique_ptr<ProcessWatch> Watch(int64_t pid,
                                              absl::AnyInvocable<void(ProcessEnd)> on_end) = 0;
};

}  // namespace callboard::agent
