// What Linux tells of a process by its number.
#pragma once

#include <cstdint>
#include <optional>

#include "backend_agent/incarnation_counter.h"
#include "backend_agent/process_watch.h"

namespace callboard::agent {

struct ProcessInfo {
  bool alive = false;              // false: a zombie
  uint64_t start_time = 0;         // clock ticks since boot
  std::optional<int> wait_status;  // of a zombie, as waitpid gives it, if we may see it
};

// From /proc/PID/stat; nullopt if there is no such process.
std::optional<ProcessInfo> ReadProcess(int64_t pid);

// The process with that pid as the incarnation counter knows it; unknown (0) if it is not there.
ProcessIdentity IdentifyProcess(int64_t pid);

// Exit status or signal from a wait status.
ProcessEnd EndOf(int wait_status);

}  // namespace callboard::agent
