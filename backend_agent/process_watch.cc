// Words for the end of a process.
#include "backend_agent/process_watch.h"

#include <csignal>
#include <cstring>

#include "fmt/format.h"

namespace callboard::agent {

std::string DescribeEnd(const std::string& name, int64_t pid, const ProcessEnd& end) {
  std::string who = name.empty() ? "the DCC" : name;
  if (pid > 0) who += fmt::format(" (pid {})", pid);
  if (end.exit_signal > 0) {
    const char* abbreviation = sigabbrev_np(end.exit_signal);
    return fmt::format("{} was killed by signal {} (SIG{})", who, end.exit_signal,
                       abbreviation == nullptr ? "?" : abbreviation);
  }
  if (end.exit_status >= 0)
    return fmt::format("{} ended with exit status {}", who, end.exit_status);
  return fmt::format("{} has ended", who);
}

}  // namespace callboard::agent
