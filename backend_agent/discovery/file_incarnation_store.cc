// Implementation of FileIncarnationStore.
#include "backend_agent/discovery/file_incarnation_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

constexpr size_t kFileBytesMax = 4 << 20;

absl::Status FileError(std::string_view what, const std::string& path) {
  return core::MakeError(absl::StatusCode::kUnavailable,
                         fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::map<std::string, IncarnationRecord>> FileIncarnationStore::Load() {
  std::map<std::string, IncarnationRecord> records;
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return records;
    return FileError("open", path_);
  }
  std::string text;
  char buffer[16 * 1024];
  ssize_t size = 0;
  while ((size = read(fd, buffer, sizeof(buffer))) > 0 && text.size() <= kFileBytesMax) {
    text.append(buffer, static_cast<size_t>(size));
  }
  close(fd);
  if (size < 0) return FileError("read", path_);
  absl::Status status = core::ValidateJson(text);
  if (status.ok()) {
    status = core::ForEachMember(text, [&](core::JsonMember member) {
      IncarnationRecord record;
      record.incarnation =
          static_cast<uint64_t>(core::FindInteger(member.value, "incarnation").value_or(0));
      record.process.pid = core::FindInteger(member.value, "pid").value_or(0);
      record.process.start_time =
          static_cast<uint64_t>(core::FindInteger(member.value, "start_time").value_or(0));
      records[std::string(member.key)] = record;
      return true;
    });
  }
  if (!status.ok()) {
    return core::MakeError(absl::StatusCode::kFailedPrecondition,
                           fmt::format("{} is damaged: {}; counting begins anew, from what the "
                                       "control planes have seen",
                                       path_, core::Message(status)));
  }
  return records;
}

absl::Status FileIncarnationStore::Save(const std::map<std::string, IncarnationRecord>& records) {
  core::JsonObject document;
  for (const auto& [seat_id, record] : records) {
    document.Raw(seat_id, core::JsonObject()
                              .Int("incarnation", static_cast<int64_t>(record.incarnation))
                              .Int("pid", record.process.pid)
                              .Int("start_time", static_cast<int64_t>(record.process.start_time))
                              .Take());
  }
  const std::string text = document.Take() + "\n";
  const std::string temporary = path_ + ".new";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return FileError("create", temporary);
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t size = write(fd, rest.data(), rest.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      const absl::Status status = FileError("write", temporary);
      close(fd);
      unlink(temporary.c_str());
      return status;
    }
    rest.remove_prefix(static_cast<size_t>(size));
  }
  close(fd);
  if (rename(temporary.c_str(), path_.c_str()) != 0) return FileError("rename", temporary);
  return absl::OkStatus();
}

}  // namespace callboard::agent
