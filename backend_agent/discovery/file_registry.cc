// Implementation of FileRegistry.
#include "backend_agent/discovery/file_registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "backend_agent/discovery/process_table.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

// Several changes within this time are one.
constexpr absl::Duration kSettle = absl::Milliseconds(20);
constexpr size_t kComplaintsMax = 256;
// A file found damaged may be one that is being written.
constexpr absl::Duration kReadAgain = absl::Milliseconds(100);

// Whether somebody holds the sentinel; nullopt: there is none to be asked.
std::optional<bool> SentinelHeld(const std::string& folder, const std::string& path) {
  if (path.empty()) return std::nullopt;
  const std::string whole = path.front() == '/' ? path : fmt::format("{}/{}", folder, path);
  const int fd = open(whole.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return std::nullopt;
  const bool free = flock(fd, LOCK_SH | LOCK_NB) == 0;
  const bool held = !free && errno == EWOULDBLOCK;
  if (free) flock(fd, LOCK_UN);
  close(fd);
  if (!free && !held) return std::nullopt;
  return held;
}

bool ProcessLives(int64_t pid) {
  auto process = ReadProcess(pid);
  return process && process->alive;
}

bool Lives(const std::string& folder, const RegistryRow& row) {
  const std::optional<bool> held = SentinelHeld(folder, row.sentinel_path);
  if (held && !*held) return false;
  if (row.pid > 0 && !ProcessLives(row.pid)) return false;
  if (row.host_pid > 0 && !ProcessLives(row.host_pid)) return false;
  // A row that names a sentinel which is gone, and no process, has nothing to prove that it lives.
  return held.has_value() || row.sentinel_path.empty() || row.pid > 0 || row.host_pid > 0;
}

}  // namespace

// Calls back when something in the folder has changed. Without inotify the poll alone serves.
class FileRegistry::FolderWatch {
 public:
  FolderWatch(core::AsioEventLoop& loop, absl::AnyInvocable<void()> on_change)
      : on_change_(std::move(on_change)), descriptor_(loop.io()) {
    const int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd < 0) return;
    descriptor_.assign(fd);
    ReadMore();
  }

  // Also again and again: the folder may be made later, or anew.
  void Add(const std::string& folder) {
    if (!descriptor_.is_open()) return;
    inotify_add_watch(descriptor_.native_handle(), folder.c_str(),
                      IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR);
  }

 private:
  void ReadMore() {
    descriptor_.async_read_some(boost::asio::buffer(buffer_),
                                lifetime_.Wrap([this](const boost::system::error_code& ec, size_t) {
                                  if (ec) return;
                                  on_change_();
                                  ReadMore();
                                }));
  }

  absl::AnyInvocable<void()> on_change_;
  boost::asio::posix::stream_descriptor descriptor_;
  alignas(inotify_event) std::array<char, 16 * 1024> buffer_;
  core::Lifetime lifetime_;
};

FileRegistry::FileRegistry(core::AsioEventLoop& loop, FileRegistryConfig config,
                           Callbacks callbacks)
    : loop_(loop), config_(std::move(config)), callbacks_(std::move(callbacks)) {}

FileRegistry::~FileRegistry() = default;

void FileRegistry::Start() {
  watch_ = std::make_unique<FolderWatch>(
      loop_, [this] { timer_ = loop_.After(kSettle, [this] { Read(); }); });
  timer_ = loop_.After(absl::ZeroDuration(), [this] { Read(); });
}

void FileRegistry::Read() {
  timer_ = loop_.After(config_.poll, [this] { Read(); });
  watch_->Add(config_.folder);
  std::map<std::string, RegistryRow> found;
  if (ReadFile(found)) written_ = std::move(found);

  std::map<std::string, RegistryRow> living;
  for (const auto& [id, row] : written_) {
    if (Lives(config_.folder, row)) living.emplace(id, row);
  }
  auto former = std::exchange(rows_, living);
  auto alive = lifetime_.Watch();
  // First who has gone, so that a seat is free for who has come.
  for (const auto& [id, row] : former) {
    if (living.contains(id)) continue;
    callbacks_.on_row_gone(row);
    if (alive.expired()) return;
  }
  for (const auto& [id, row] : living) {
    auto at = former.find(id);
    if (at != former.end() && at->second == row) continue;
    callbacks_.on_row(row);
    if (alive.expired()) return;
  }
}

// False: what was known before stays.
bool FileRegistry::ReadFile(std::map<std::string, RegistryRow>& found) {
  const std::string path = config_.folder + "/services.json";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  // No file: no DCC has registered yet, or all rows have been removed.
  if (fd < 0) return errno == ENOENT;
  std::string text;
  char buffer[64 * 1024];
  ssize_t size = 0;
  while ((size = read(fd, buffer, sizeof(buffer))) > 0 && text.size() <= config_.file_bytes_max) {
    text.append(buffer, static_cast<size_t>(size));
  }
  const int error = errno;
  close(fd);
  if (size < 0) {
    Complain(fmt::format("cannot read {}: {}; the former rows stay", path, std::strerror(error)));
    return false;
  }
  if (text.size() > config_.file_bytes_max) {
    Complain(fmt::format("{} has more than {} bytes; the former rows stay", path,
                         config_.file_bytes_max));
    return false;
  }
  // Nobody has registered yet, or somebody is about to write.
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return false;
  auto rows = ParseRegistry(text);
  if (!rows.ok()) {
    if (++damaged_ == 1) {
      timer_ = loop_.After(std::min(kReadAgain, config_.poll), [this] { Read(); });
      return false;
    }
    Complain(fmt::format("{} is damaged ({}); the former rows stay until it is whole again", path,
                         core::Message(rows.status())));
    return false;
  }
  damaged_ = 0;
  for (const std::string& line : rows->ignored) Complain(line);
  for (RegistryRow& row : rows->rows) {
    std::string id = row.instance_id;
    found[std::move(id)] = std::move(row);
  }
  return true;
}

void FileRegistry::Complain(const std::string& text) {
  if (complaints_.size() >= kComplaintsMax || !complaints_.insert(text).second) return;
  if (callbacks_.log) callbacks_.log(text);
}

std::string DefaultRegistryFolder() {
  if (const char* folder = std::getenv("DCC_MCP_REGISTRY_DIR"); folder != nullptr && *folder != 0) {
    return folder;
  }
  const char* temporary = std::getenv("TMPDIR");
  return fmt::format("{}/dcc-mcp-registry",
                     temporary != nullptr && *temporary != 0 ? temporary : "/tmp");
}

}  // namespace callboard::agent
