// Implementation of BodyFiles.
#include "server/store/body_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "core/runtime/strings.h"
#include "fmt/format.h"
#include "server/store/open_file.h"

namespace callboard::server {
namespace {

constexpr std::string_view kPart = ".part";
constexpr std::string_view kBody = ".body";

std::string PathOf(const std::string& folder, const CallId& call, std::string_view suffix) {
  return fmt::format("{}/{}{}", folder, call.hex(), suffix);
}

std::string_view HelpFor(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there, it is tried again";
    case EROFS:
    case EACCES:
    case EPERM:
      return "make the folder and the file writable, it is tried again";
    case ENOENT:
      return "files and folder are callboardd's own, nobody else may remove them";
    default:
      return "look at the disk and at the kernel's log";
  }
}

// Of the system call that has just failed.
absl::Status SystemFault(std::string_view what, const std::string& path) {
  const int error = errno;
  return core::MakeError(
      error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable,
      fmt::format("the kept result {} cannot be {}: {}; {}", path, what, std::strerror(error),
                  HelpFor(error)));
}

absl::Status WrongSize(const std::string& path, uint64_t has, uint64_t wanted) {
  return core::MakeError(
      absl::StatusCode::kFailedPrecondition,
      fmt::format("the part {} has {} bytes, not {}; somebody else has changed it", path, has,
                  wanted));
}

absl::Status AppendTo(const std::string& path, uint64_t offset, std::string_view bytes) {
  const OpenFile file(path, O_WRONLY | O_CREAT);
  if (!file.ok()) return SystemFault("written", path);
  const auto size = file.size();
  if (!size) return SystemFault("written", path);
  if (*size < offset) return WrongSize(path, *size, offset);
  // What a failed write has left.
  if (*size > offset && ftruncate(file.fd(), static_cast<off_t>(offset)) != 0) {
    return SystemFault("written", path);
  }
  while (!bytes.empty()) {
    const ssize_t written =
        pwrite(file.fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemFault("written", path);
    offset += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SealPart(const BodyFilesConfig& config, const CallId& call, uint64_t wanted) {
  const std::string part = PathOf(config.folder, call, kPart);
  {
    const OpenFile file(part, O_WRONLY);
    if (!file.ok()) return SystemFault("completed", part);
    const auto size = file.size();
    if (!size) return SystemFault("completed", part);
    if (*size != wanted) return WrongSize(part, *size, wanted);
    if (config.sync_full && fsync(file.fd()) != 0) return SystemFault("completed", part);
  }
  if (rename(part.c_str(), PathOf(config.folder, call, kBody).c_str()) != 0) {
    return SystemFault("completed", part);
  }
  if (!config.sync_full) return absl::OkStatus();
  const OpenFile folder(config.folder, O_RDONLY | O_DIRECTORY);
  if (!folder.ok() || fsync(folder.fd()) != 0) return SystemFault("completed", part);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFrom(const std::string& path, uint64_t offset, size_t bytes_max) {
  const OpenFile file(path, O_RDONLY);
  if (!file.ok()) return SystemFault("read", path);
  std::string bytes(bytes_max, '\0');
  size_t filled = 0;
  while (filled < bytes_max) {
    const ssize_t got = pread(file.fd(), bytes.data() + filled, bytes_max - filled,
                              static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemFault("read", path);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BodyFiles>> BodyFiles::Open(std::unique_ptr<core::Offload> disk,
                                                           BodyFilesConfig config) {
  const bool made = mkdir(config.folder.c_str(), 0700) == 0 || errno == EEXIST;
  if (!made || access(config.folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    return core::MakeError(
        absl::StatusCode::kFailedPrecondition,
        fmt::format("cannot use the folder {} for kept results: {}; make it writable, or put the "
                    "store elsewhere with store.path",
                    config.folder, std::strerror(errno)));
  }
  return std::unique_ptr<BodyFiles>(new BodyFiles(std::move(disk), std::move(config)));
}

BodyFiles::BodyFiles(std::unique_ptr<core::Offload> disk, BodyFilesConfig config)
    : config_(std::make_shared<const BodyFilesConfig>(std::move(config))), disk_(std::move(disk)) {}

template <class Work, class Told>
void BodyFiles::OnDisk(Work work, Told told) {
  auto result = std::make_shared<std::optional<decltype(work(*config_))>>();
  disk_->Run(
      [config = config_, result, work = std::move(work)]() mutable { *result = work(*config); },
      lifetime_.Wrap([result, told = std::move(told)]() mutable { told(*std::move(*result)); }));
}

absl::StatusOr<std::vector<BodyStore::Whole>> BodyFiles::Load() {
  DIR* listing = opendir(config_->folder.c_str());
  if (listing == nullptr) return SystemFault("listed", config_->folder);
  std::vector<Whole> whole;
  std::vector<std::string> parts;
  while (const dirent* entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(kPart)) parts.emplace_back(name);
    if (!name.ends_with(kBody)) continue;
    const auto call = CallId::FromHex(name.substr(0, name.size() - kBody.size()));
    struct stat info{};
    if (!call || fstatat(dirfd(listing), entry->d_name, &info, 0) != 0) continue;
    whole.push_back({*call, static_cast<uint64_t>(info.st_size)});
  }
  closedir(listing);
  for (const std::string& part : parts) unlink(fmt::format("{}/{}", config_->folder, part).c_str());
  return whole;
}

void BodyFiles::Append(const CallId& call, uint64_t offset, std::string bytes, Done done) {
  OnDisk(
      [call, offset, bytes = std::move(bytes)](const BodyFilesConfig& config) {
        return AppendTo(PathOf(config.folder, call, kPart), offset, bytes);
      },
      std::move(done));
}

void BodyFiles::Seal(const CallId& call, uint64_t size, Done done) {
  OnDisk([call, size](const BodyFilesConfig& config) { return SealPart(config, call, size); },
         std::move(done));
}

void BodyFiles::Read(const CallId& call, uint64_t offset, size_t bytes_max,
                     absl::AnyInvocable<void(absl::StatusOr<std::string>)> callback) {
  OnDisk(
      [call, offset, bytes_max](const BodyFilesConfig& config) {
        return ReadFrom(PathOf(config.folder, call, kBody), offset, bytes_max);
      },
      std::move(callback));
}

void BodyFiles::Remove(const CallId& call) {
  OnDisk(
      [call](const BodyFilesConfig& config) {
        unlink(PathOf(config.folder, call, kPart).c_str());
        return unlink(PathOf(config.folder, call, kBody).c_str());
      },
      [](int) {});
}

}  // namespace callboard::server
