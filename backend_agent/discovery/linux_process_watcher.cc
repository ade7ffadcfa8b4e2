// Implementation of LinuxProcessWatcher.
#include "backend_agent/discovery/linux_process_watcher.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <utility>

#include "backend_agent/discovery/process_table.h"
#include "core/runtime/lifetime.h"

namespace callboard::agent {

namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);

// PIDFD_GET_INFO with PIDFD_INFO_EXIT (Linux 6.15), which older headers do not have.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup_id;
  uint32_t ids[11];  // pid, tgid, ppid, and the user and group ids
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kPidfdInfoExit = 1ull << 3;

// How the process ended; still known to newer kernels once it has been reaped.
ProcessEnd ReadEnd(int fd, int64_t pid) {
  PidfdInfo info{};
  info.mask = kPidfdInfoExit;
  if (fd >= 0 && ioctl(fd, _IOWR(0xFF, 11, PidfdInfo), &info) == 0 &&
      (info.mask & kPidfdInfoExit) != 0) {
    return EndOf(info.exit_code);
  }
  auto process = ReadProcess(pid);
  if (process && process->wait_status) return EndOf(*process->wait_status);
  return {};
}

class LinuxProcessWatch final : public ProcessWatch {
 public:
  LinuxProcessWatch(core::AsioEventLoop& loop, int64_t pid,
                    absl::AnyInvocable<void(ProcessEnd)> on_end)
      : loop_(loop), pid_(pid), on_end_(std::move(on_end)), descriptor_(loop.io()) {
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
    if (fd >= 0) {
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      descriptor_.assign(fd);
      descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                             lifetime_.Wrap([this](const boost::system::error_code& ec) {
                               if (!ec) End(ReadEnd(descriptor_.native_handle(), pid_));
                             }));
    } else if (errno == ESRCH) {
      timer_ = loop_.After(absl::ZeroDuration(), [this] { End({}); });
    } else {
      Poll();
    }
  }

 private:
  void Poll() {
    timer_ = loop_.After(kPoll, [this] {
      auto process = ReadProcess(pid_);
      if (process && process->alive) {
        Poll();
      } else {
        End(ReadEnd(-1, pid_));
      }
    });
  }

  // The callback may destroy the watch.
  void End(ProcessEnd end) {
    auto on_end = std::move(on_end_);
    on_end(end);
  }

  core::AsioEventLoop& loop_;
  int64_t pid_;
  absl::AnyInvocable<void(ProcessEnd)> on_end_;
  boost::asio::posix::stream_descriptor descriptor_;
  core::Timer timer_;
  core::Lifetime lifetime_;
};

}  // namespace

std::unique_ptr<ProcessWatch> LinuxProcessWatcher::Watch(
    int64_t pid, absl::AnyInvocable<void(ProcessEnd)> on_end) {
  return std::make_unique<LinuxProcessWatch>(loop_, pid, std::move(on_end));
}

}  // namespace callboard::agent
