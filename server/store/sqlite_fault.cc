// Implementation of the store's sentences.
#include "server/store/sqlite_fault.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>

#include "core/runtime/strings.h"

namespace callboard::server {
namespace {

enum class Cause { kFull, kReadOnly, kDamaged, kForeign, kInUse, kFolder, kDisk, kOther };

Cause CauseOf(int code, int error) {
  if (error == ENOSPC || error == EDQUOT) return Cause::kFull;
  if (error == EROFS || error == EACCES || error == EPERM) return Cause::kReadOnly;
  switch (code & 0xff) {
    case SQLITE_FULL:
      return Cause::kFull;
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return Cause::kReadOnly;
    case SQLITE_CORRUPT:
      return Cause::kDamaged;
    case SQLITE_NOTADB:
      return Cause::kForeign;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Cause::kInUse;
    case SQLITE_IOERR:
      return Cause::kDisk;
    default:
      return error == ENOENT || error == ENOTDIR || error == EISDIR ? Cause::kFolder
                                                                    : Cause::kOther;
  }
}

std::string Why(Cause cause, std::string_view detail) {
  switch (cause) {
    case Cause::kFull:
      return "its disk is full";
    case Cause::kReadOnly:
      return fmt::format("the file or its folder cannot be written ({})", detail);
    case Cause::kDamaged:
      return fmt::format("it is damaged ({})", detail);
    case Cause::kForeign:
      return "it is no SQLite file";
    case Cause::kInUse:
      return "another process has it open";
    case Cause::kFolder:
      return std::string(detail);
    case Cause::kDisk:
      return fmt::format("its disk failed ({})", detail);
    case Cause::kOther:
      break;
  }
  return std::string(detail);
}

std::string_view HelpAtStart(Cause cause) {
  switch (cause) {
    case Cause::kFull:
      return "free some space there, or put the store elsewhere with store.path";
    case Cause::kReadOnly:
      return "make both writable, or put the store elsewhere with store.path";
    case Cause::kDamaged:
      return "put a sound copy in its place, or move it away: callboardd then begins with an empty "
             "store, without the sessions and receipts of the old one";
    case Cause::kForeign:
      return "move it away, or put the store elsewhere with store.path";
    case Cause::kInUse:
      return "stop that process, or give this one a --state-dir of its own";
    case Cause::kFolder:
      return "store.path must name a file in a folder that exists";
    default:
      return "look at the disk and at the kernel's log";
  }
}

std::string_view HelpWhileRunning(Cause cause) {
  switch (cause) {
    case Cause::kFull:
      return "free some space there";
    case Cause::kReadOnly:
      return "make both writable again";
    case Cause::kDamaged:
      return "stop callboardd and look at the file with callboardd --check-store";
    default:
      return "look at the disk and at the kernel's log";
  }
}

// SQLite's words, and the system's where a system call failed.
std::string Detail(int code, int error) {
  if (error != 0) return std::strerror(error);
  return sqlite3_errstr(code);
}

struct Seen {
  Cause cause;
  std::string why;
};

// Right after what failed, which must have begun with ForgetSystemError(). SQLite's own memory of
// the system's error does not serve: what fails in a COMMIT, and a full disk, leave an older one
// there.
Seen Look(sqlite3* db) {
  const int last = errno;
  const int code = sqlite3_extended_errcode(db);
  const int kind = code & 0xff;
  const int error = kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN ? last : 0;
  const Cause cause = CauseOf(code, error);
  return {cause, Why(cause, Detail(code, error))};
}

absl::Status RunningFault(const std::string& path, std::string_view verb, const Seen& seen) {
  return core::MakeError(
      absl::StatusCode::kUnavailable,
      fmt::format("the store {} cannot be {}: {}; {}, callboardd tries again by itself", path, verb,
                  seen.why, HelpWhileRunning(seen.cause)));
}

}  // namespace

absl::Status OpeningFault(const std::string& path, std::string_view why, std::string_view help) {
  return core::MakeError(absl::StatusCode::kFailedPrecondition,
                         fmt::format("cannot open the store {}: {}; {}", path, why, help));
}

absl::Status OpeningFault(const std::string& path, sqlite3* db) {
  const Seen seen = Look(db);
  return OpeningFault(path, seen.why, HelpAtStart(seen.cause));
}

absl::Status OpeningFaultErrno(const std::string& path, int error) {
  const Cause cause = CauseOf(SQLITE_OK, error);
  return OpeningFault(path, Why(cause, std::strerror(error)), HelpAtStart(cause));
}

absl::Status DamagedFile(const std::string& path, std::string_view finding) {
  return OpeningFault(path, Why(Cause::kDamaged, finding), HelpAtStart(Cause::kDamaged));
}

absl::Status RunningFault(const std::string& path, std::string_view verb, sqlite3* db) {
  return RunningFault(path, verb, Look(db));
}

absl::Status FullDisk(const std::string& path) {
  return RunningFault(path, "written", Seen{Cause::kFull, Why(Cause::kFull, "")});
}

}  // namespace callboard::server
