// What is done with an open store file: batches, ranges, and keeping it small.
#include "server/store/sqlite_file.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <limits>

#include "core/runtime/strings.h"
#include "server/store/sqlite_fault.h"

namespace callboard::server {
namespace {

// A slice of giving back: short enough to stand between two commits.
constexpr int64_t kSlicePages = 256;
// Free pages are reused; only beyond a quarter of the file (and a slice) are they given back.
constexpr int64_t kFreeShare = 4;
// What a page costs in the write-ahead log beside itself.
constexpr uint64_t kFrameHeaderBytes = 24;

// What a disk that was full must have free.
constexpr uint64_t kRoomBytes = 1 << 20;

}  // namespace

absl::Status SqliteFile::Undone(std::string_view verb) {
  absl::Status fault = RunningFault(path_, verb, db_.get());
  if (sqlite3_get_autocommit(db_.get()) == 0) Execute("ROLLBACK");
  return fault;
}

absl::Status SqliteFile::CheckRoom() const {
  struct statvfs disk = {};
  if (statvfs(path_.c_str(), &disk) != 0 || disk.f_bavail * disk.f_frsize >= kRoomBytes) {
    return absl::OkStatus();
  }
  return FullDisk(path_);
}

absl::StatusOr<uint64_t> SqliteFile::Write(const StoreBatch& batch) {
  int moved = 0;
  sqlite3_file_control(db_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (moved != 0) {
    return core::MakeError(
        absl::StatusCode::kUnavailable,
        fmt::format("the store {} cannot be written: the file was removed or replaced while "
                    "callboardd used it; put it back, or restart callboardd to go on with what is "
                    "there",
                    path_));
  }
  if (!begin_.Run()) return Undone("written");
  for (const auto& [key, value] : batch) {
    SqliteStatement& change = value.empty() ? erase_ : put_;
    change.Bind(1, key);
    if (!value.empty()) change.Bind(2, value);
    if (!change.Run()) return Undone("written");
  }
  if (!commit_.Run()) return Undone("written");
  return LogBytes();
}

uint64_t SqliteFile::LogBytes() const {
  return log_pages_ * (static_cast<uint64_t>(page_bytes_) + kFrameHeaderBytes);
}

absl::Status SqliteFile::Visit(absl::AnyInvocable<void(const StoreRecord&)>& visit) {
  SqliteStatement all(db_.get(), "SELECT key, value FROM records ORDER BY key");
  int code = SQLITE_DONE;
  while (all.ok() && (code = all.Step()) == SQLITE_ROW) {
    visit({std::string(all.Bytes(0)), std::string(all.Bytes(1))});
  }
  if (!all.ok() || code != SQLITE_DONE) return RunningFault(path_, "read", db_.get());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoreRecord>> SqliteFile::Read(const std::string& from,
                                                          const std::string& to, size_t limit) {
  constexpr auto kMax = static_cast<size_t>(std::numeric_limits<int64_t>::max());
  range_.Bind(1, from);
  range_.Bind(2, to);
  range_.Bind(3, static_cast<int64_t>(std::min(limit, kMax)));
  std::vector<StoreRecord> found;
  int code = SQLITE_DONE;
  while ((code = range_.Step()) == SQLITE_ROW) {
    found.push_back({std::string(range_.Bytes(0)), std::string(range_.Bytes(1))});
  }
  if (code != SQLITE_DONE) {
    absl::Status fault = RunningFault(path_, "read", db_.get());
    range_.Reset();
    return fault;
  }
  range_.Reset();
  return found;
}

absl::StatusOr<SqliteFile::Tended> SqliteFile::Tend() {
  const auto worth_a_slice = [this] {
    const int64_t pages = Ask("PRAGMA page_count").value_or(0);
    return Ask("PRAGMA freelist_count").value_or(0) > std::max(kSlicePages, pages / kFreeShare);
  };
  if (worth_a_slice() &&
      !Execute(fmt::format("PRAGMA incremental_vacuum({})", kSlicePages).c_str())) {
    return Undone("made smaller");
  }
  int in_log = 0;
  int moved = 0;
  ForgetSystemError();
  if (sqlite3_wal_checkpoint_v2(db_.get(), nullptr, SQLITE_CHECKPOINT_PASSIVE, &in_log, &moved) !=
      SQLITE_OK) {
    return Undone("brought up to date");
  }
  log_pages_ = static_cast<uint64_t>(std::max(0, in_log - moved));
  Tended tended;
  tended.file_bytes = static_cast<uint64_t>(Ask("PRAGMA page_count").value_or(0) * page_bytes_);
  tended.log_bytes = LogBytes();
  tended.again = worth_a_slice();
  return tended;
}

}  // namespace callboard::server
