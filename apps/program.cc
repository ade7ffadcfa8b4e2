// Implementation of what the programs share.
#include "apps/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "core/runtime/strings.h"
#include "core/telemetry/last_words.h"

namespace callboard::apps {

void PrepareProcess() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  signal(SIGPIPE, SIG_IGN);
}

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status EnsureFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return core::MakeError(absl::StatusCode::kFailedPrecondition,
                           fmt::format("cannot create the folder {}: {}; choose another with "
                                       "--state-dir",
                                       path, error.message()));
  }
  std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const auto fail = [&](std::string_view step) {
    const int code = errno;
    unlink(temporary.c_str());
    return core::MakeError(absl::StatusCode::kUnavailable,
                           fmt::format("cannot {} {}: {}", step, path, std::strerror(code)));
  };
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fail("create");
  size_t written = 0;
  while (written < content.size()) {
    const ssize_t n = write(fd, content.data() + written, content.size() - written);
    if (n < 0) {
      if (errno == EINTR) continue;
      close(fd);
      return fail("write");
    }
    written += static_cast<size_t>(n);
  }
  close(fd);
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail("replace");
  return absl::OkStatus();
}

absl::Status WritePorts(const std::string& folder,
                        const std::vector<std::pair<std::string_view, uint16_t>>& ports) {
  std::string text;
  for (const auto& [name, port] : ports) {
    text += fmt::format("{}\"{}\":{}", text.empty() ? '{' : ',', name, port);
  }
  return WriteFileAtomically(folder + "/ports.json", text + "}\n");
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return core::MakeError(absl::StatusCode::kNotFound,
                           fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

absl::StatusOr<std::string> StableId(const std::string& path, core::Random& random) {
  if (auto text = ReadSmallFile(path); text.ok() && text->size() >= 32) return text->substr(0, 32);
  std::string id = random.Hex(16);
  if (auto status = WriteFileAtomically(path, id + "\n"); !status.ok()) return status;
  return id;
}

absl::StatusOr<std::vector<std::string>> ParseAddresses(std::string_view option,
                                                        const std::string& text) {
  const std::vector<std::string> addresses = absl::StrSplit(text, ',', absl::SkipWhitespace());
  for (const std::string& address : addresses) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
      return core::MakeError(absl::StatusCode::kInvalidArgument,
                             fmt::format("{} {}: expected HOST:PORT", option, address));
    }
  }
  if (addresses.empty()) {
    return core::MakeError(absl::StatusCode::kInvalidArgument,
                           fmt::format("{}: expected HOST:PORT, at least one", option));
  }
  return addresses;
}

std::string DefaultStateFolder(std::string_view program) {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0') {
    return fmt::format("{}/callboard/{}", state, program);
  }
  const char* home = std::getenv("HOME");
  return fmt::format("{}/.local/state/callboard/{}", home != nullptr ? home : ".", program);
}

std::shared_ptr<void> OnTermination(core::AsioEventLoop& loop, std::function<void()> on_signal) {
  // A program started in the background by a shell inherits SIGINT as ignored.
  signal(SIGINT, SIG_DFL);
  auto signals = std::make_shared<boost::asio::signal_set>(loop.io(), SIGINT, SIGTERM);
  signals->async_wait([signals = signals.get(), on_signal = std::move(on_signal)](
                          const boost::system::error_code& error, int) {
    if (error) return;
    signals->async_wait([](const boost::system::error_code& second, int) {
      if (!second) _exit(130);
    });
    on_signal();
  });
  return signals;
}

namespace {

void AwaitHangup(boost::asio::signal_set* signals, std::function<void()> on_signal) {
  signals->async_wait([signals, on_signal = std::move(on_signal)](
                          const boost::system::error_code& error, int) mutable {
    if (error) return;
    on_signal();
    AwaitHangup(signals, std::move(on_signal));
  });
}

}  // namespace

std::shared_ptr<void> OnHangup(core::AsioEventLoop& loop, std::function<void()> on_signal) {
  auto signals = std::make_shared<boost::asio::signal_set>(loop.io(), SIGHUP);
  AwaitHangup(signals.get(), std::move(on_signal));
  return signals;
}

std::unique_ptr<core::Watchdog> WatchLoop(core::EventLoop& loop, absl::Duration limit) {
  return std::make_unique<core::Watchdog>(loop, limit, [](absl::Duration silent) {
    core::LogLastWords("loop_hung", {{"duration_ms", absl::ToInt64Milliseconds(silent)},
                                     {"reason", "runtime.watchdog: the process is ended"}});
    std::abort();
  });
}

}  // namespace callboard::apps
