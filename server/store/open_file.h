// A file descriptor that is closed when its owner has done.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>

namespace callboard::server {

// Any thread. A file that is made is its owner's only.
class OpenFile {
 public:
  // `flags` as of open(2), with O_CLOEXEC. Not ok(): errno says why.
  OpenFile(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // nullopt: the system does not say.
  std::optional<uint64_t> size() const {
    struct stat info{};
    if (fstat(fd_, &info) != 0) return std::nullopt;
    return static_cast<uint64_t>(info.st_size);
  }

 private:
  const int fd_;
};

}  // namespace callboard::server
