// Reads /proc/PID/stat.
#include "backend_agent/discovery/process_table.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "fmt/format.h"

namespace callboard::agent {

namespace {

// proc(5), counted from the state, which follows the name in parentheses.
constexpr size_t kStartTimeField = 19;
constexpr size_t kExitCodeField = 49;

}  // namespace

std::optional<ProcessInfo> ReadProcess(int64_t pid) {
  if (pid <= 0) return std::nullopt;
  const std::string path = fmt::format("/proc/{}/stat", pid);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char buffer[4096];
  const ssize_t size = read(fd, buffer, sizeof(buffer));
  close(fd);
  if (size <= 0) return std::nullopt;
  std::string_view text(buffer, static_cast<size_t>(size));
  // The name may hold spaces and parentheses.
  const size_t close_paren = text.rfind(')');
  if (close_paren == std::string_view::npos) return std::nullopt;
  text.remove_prefix(close_paren + 1);
  std::vector<std::string_view> fields;
  while (true) {
    const size_t begin = text.find_first_not_of(" \n");
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    fields.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (fields.size() <= kStartTimeField) return std::nullopt;
  ProcessInfo info;
  info.alive = fields[0] != "Z" && fields[0] != "X";
  const std::string_view start = fields[kStartTimeField];
  std::from_chars(start.data(), start.data() + start.size(), info.start_time);
  if (!info.alive && fields.size() > kExitCodeField) {
    const std::string_view code = fields[kExitCodeField];
    int status = 0;
    std::from_chars(code.data(), code.data() + code.size(), status);
    // 0 is also what those are shown who may not see it.
    if (status != 0) info.wait_status = status;
  }
  return info;
}

ProcessIdentity IdentifyProcess(int64_t pid) {
  auto info = ReadProcess(pid);
  if (!info) return {};
  return {pid, info->start_time};
}

ProcessEnd EndOf(int wait_status) {
  ProcessEnd end;
  if (WIFSIGNALED(wait_status)) {
    end.exit_signal = WTERMSIG(wait_status);
  } else if (WIFEXITED(wait_status)) {
    end.exit_status = WEXITSTATUS(wait_status);
  }
  return end;
}

}  // namespace callboard::agent
