// Implementation of PosixJournalFile.
#include "backend_agent/storage/posix_journal_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

constexpr char kBootIdPath[] = "/proc/sys/kernel/random/boot_id";

absl::Status SystemError(std::string_view what, const std::string& path) {
  const int error = errno;
  const auto code = error == ENOSPC || error == EDQUOT ? absl::StatusCode::kResourceExhausted
                                                       : absl::StatusCode::kUnavailable;
  return core::MakeError(code, fmt::format("{} '{}' failed: {}", what, path, strerror(error)));
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError("writing", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFrom(int fd, const std::string& path) {
  std::string content;
  char buffer[64 * 1024];
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count == 0) return content;
    if (count < 0) {
      if (errno == EINTR) continue;
      return SystemError("reading", path);
    }
    content.append(buffer, static_cast<size_t>(count));
  }
}

// "" when the system does not tell.
std::string ReadBootId() {
  const int fd = open(kBootIdPath, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  auto text = ReadFrom(fd, kBootIdPath);
  close(fd);
  return text.value_or(std::string());
}

std::string ReadPlaceId(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return {};
  return fmt::format("{}:{}", info.st_dev, info.st_ino);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PosixJournalFile>> PosixJournalFile::Open(std::string path) {
  const std::string lock_path = path + ".lock";
  const int lock_fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0) return SystemError("opening", lock_path);
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    close(lock_fd);
    return core::MakeError(
        absl::StatusCode::kFailedPrecondition,
        fmt::format("the journal '{}' is in use by another agent; give each agent a state folder "
                    "of its own",
                    path));
  }
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) {
    absl::Status status = SystemError("opening", path);
    close(lock_fd);
    return status;
  }
  return std::unique_ptr<PosixJournalFile>(
      new PosixJournalFile(std::move(path), fd, lock_fd, ReadBootId(), ReadPlaceId(lock_fd)));
}

PosixJournalFile::PosixJournalFile(std::string path, int fd, int lock_fd,
                                   std::string machine_boot_id, std::string place_id)
    : path_(std::move(path)),
      fd_(fd),
      lock_fd_(lock_fd),
      machine_boot_id_(std::move(machine_boot_id)),
      place_id_(std::move(place_id)) {}

PosixJournalFile::~PosixJournalFile() {
  close(fd_);
  close(lock_fd_);
}

absl::StatusOr<std::string> PosixJournalFile::ReadAll() {
  if (lseek(fd_, 0, SEEK_SET) < 0) return SystemError("seeking in", path_);
  return ReadFrom(fd_, path_);
}

absl::Status PosixJournalFile::Append(std::string_view record) {
  return WriteAll(fd_, record, path_);
}

absl::Status PosixJournalFile::Replace(std::string_view content) {
  const std::string next = path_ + ".next";
  const int fd = open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return SystemError("opening", next);
  absl::Status status = WriteAll(fd, content, next);
  if (status.ok() && rename(next.c_str(), path_.c_str()) != 0) {
    status = SystemError("renaming", next);
  }
  if (!status.ok()) {
    close(fd);
    unlink(next.c_str());
    return status;
  }
  close(fd_);
  fd_ = fd;
  return absl::OkStatus();
}

}  // namespace callboard::agent
