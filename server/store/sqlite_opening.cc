// How the store's file is opened: identity, schema, soundness, term; and its check from outside.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"
#include "server/store/open_file.h"
#include "server/store/sqlite_fault.h"
#include "server/store/sqlite_file.h"

namespace callboard::server {
namespace {

// PRAGMA application_id of every store: "CbSt".
constexpr int64_t kApplicationId = 0x43625374;

// Step i leads from schema version i to i + 1. Forward only; a step is never changed once released.
constexpr std::array<const char*, 3> kMigrations = {
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE records(key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('term', 0), ('schema_version', 0);",
    // Keys and values apart: without a rowid every comparison on the way to a key reads the whole
    // of the record it looks at, a block of receipts of 100 KiB too.
    "ALTER TABLE records RENAME TO former;"
    "CREATE TABLE records(key BLOB NOT NULL UNIQUE, value BLOB NOT NULL);"
    "INSERT INTO records SELECT key, value FROM former ORDER BY key;"
    "DROP TABLE former;",
    // The same tables, but the record of a call may be that of an ended one (store.proto), which a
    // former build would take for an open call.
    ""};
constexpr int64_t kSchemaVersion = kMigrations.size();

// Where SQLite keeps its locks in a file (the "pending byte" and what follows).
constexpr off_t kLockOffset = 0x40000000;
constexpr off_t kLockBytes = 512;

// Makes the file, for its owner only, and tells of what SQLite has fewer words for. Before SQLite
// opens it: closing any descriptor of a file gives up the locks of the whole process.
absl::Status Prepare(const std::string& path, bool create) {
  const OpenFile file(path, O_RDWR | (create ? O_CREAT : 0));
  if (!file.ok()) return OpeningFaultErrno(path, errno);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kLockOffset;
  lock.l_len = kLockBytes;
  if (fcntl(file.fd(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
    return OpeningFault(path,
                        lock.l_pid > 0 ? fmt::format("process {} has it open", lock.l_pid)
                                       : std::string("another process has it open"),
                        "stop that process, or give this one a --state-dir of its own");
  }
  return absl::OkStatus();
}

}  // namespace

SqliteFile::~SqliteFile() = default;

absl::StatusOr<std::unique_ptr<SqliteFile>> SqliteFile::Open(const SqliteFileOptions& options) {
  CALLBOARD_RETURN_IF_ERROR(Prepare(options.path, /*create=*/true));
  auto file = std::unique_ptr<SqliteFile>(new SqliteFile(options.path));
  CALLBOARD_RETURN_IF_ERROR(file->Connect());
  CALLBOARD_RETURN_IF_ERROR(file->CheckIdentity());
  CALLBOARD_RETURN_IF_ERROR(file->CheckPages("PRAGMA quick_check(1)"));
  CALLBOARD_RETURN_IF_ERROR(file->Begin(options));
  return file;
}

absl::StatusOr<std::string> SqliteFile::Check(const std::string& path) {
  CALLBOARD_RETURN_IF_ERROR(Prepare(path, /*create=*/false));
  SqliteFile file(path);
  CALLBOARD_RETURN_IF_ERROR(file.Connect());
  CALLBOARD_RETURN_IF_ERROR(file.CheckIdentity());
  if (file.version_ == 0) return fmt::format("the store {} is empty", path);
  CALLBOARD_RETURN_IF_ERROR(file.CheckPages("PRAGMA integrity_check(1)"));
  return fmt::format("the store {} is sound: {} records, {} bytes", path,
                     file.Ask("SELECT count(*) FROM records").value_or(0),
                     file.Ask("PRAGMA page_count").value_or(0) * file.page_bytes_);
}

absl::Status SqliteFile::Connect() {
  sqlite3* db = nullptr;
  ForgetSystemError();
  sqlite3_open_v2(path_.c_str(), &db,
                  SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  db_.reset(db);
  if (sqlite3_errcode(db) != SQLITE_OK) return OpeningFault(path_, db);
  if (sqlite3_db_readonly(db, "main") == 1) return OpeningFaultErrno(path_, EACCES);
  // Nothing of this touches the file yet.
  if (!Execute("PRAGMA locking_mode=EXCLUSIVE;"
               "PRAGMA cell_size_check=ON;"
               "PRAGMA trusted_schema=OFF;"
               "PRAGMA mmap_size=0;"
               "PRAGMA temp_store=MEMORY;")) {
    return OpeningFault(path_, db);
  }
  return absl::OkStatus();
}

absl::Status SqliteFile::CheckIdentity() {
  const auto application = Ask("PRAGMA application_id");
  if (!application) return OpeningFault(path_, db_.get());
  if (*application != kApplicationId) {
    const auto tables = Ask("SELECT count(*) FROM sqlite_schema");
    if (!tables) return OpeningFault(path_, db_.get());
    if (*application != 0 || *tables > 0) {
      return OpeningFault(path_, "it is an SQLite file of another program",
                          "move it away, or put the store elsewhere with store.path");
    }
    return absl::OkStatus();
  }
  const auto version = Ask("SELECT value FROM meta WHERE name = 'schema_version'");
  if (!version) return OpeningFault(path_, db_.get());
  version_ = *version;
  if (version_ > kSchemaVersion) {
    return OpeningFault(path_,
                        fmt::format("a newer callboardd wrote it (schema {}, this one knows {})",
                                    version_, kSchemaVersion),
                        "start that version, or give this one a --state-dir of its own");
  }
  return absl::OkStatus();
}

absl::Status SqliteFile::CheckPages(const char* pragma) {
  SqliteStatement check(db_.get(), pragma);
  if (!check.ok() || check.Step() != SQLITE_ROW) return OpeningFault(path_, db_.get());
  const std::string_view finding = check.Bytes(0);
  if (finding == "ok") {
    page_bytes_ = Ask("PRAGMA page_size").value_or(0);
    return absl::OkStatus();
  }
  std::string text(finding);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return DamagedFile(path_, text);
}

absl::Status SqliteFile::Begin(const SqliteFileOptions& options) {
  sqlite3* const db = db_.get();
  // Free pages can be given back only if a file was made for it. Identity and term are for good, so
  // they are synced whatever store.sync says.
  if (!Execute(version_ == 0 ? "PRAGMA auto_vacuum=INCREMENTAL" : "") ||
      !Execute("PRAGMA journal_mode=WAL;"
               "PRAGMA journal_size_limit=16777216;"
               "PRAGMA wal_autocheckpoint=0;"
               "PRAGMA synchronous=FULL;"
               "BEGIN IMMEDIATE")) {
    return OpeningFault(path_, db);
  }
  CALLBOARD_RETURN_IF_ERROR(Migrate(options.new_cluster_id));
  CALLBOARD_RETURN_IF_ERROR(TakeTerm(options.term_min));
  if (!Execute("COMMIT")) return OpeningFault(path_, db);
  if (!options.sync_full && !Execute("PRAGMA synchronous=NORMAL")) return OpeningFault(path_, db);
  sqlite3_wal_hook(
      db,
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<SqliteFile*>(self)->log_pages_ = static_cast<uint64_t>(pages);
        return SQLITE_OK;
      },
      this);
  begin_ = SqliteStatement(db, "BEGIN IMMEDIATE");
  commit_ = SqliteStatement(db, "COMMIT");
  put_ = SqliteStatement(db,
                         "INSERT INTO records VALUES(?1, ?2) "
                         "ON CONFLICT(key) DO UPDATE SET value = excluded.value");
  erase_ = SqliteStatement(db, "DELETE FROM records WHERE key = ?1");
  range_ = SqliteStatement(
      db, "SELECT key, value FROM records WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3");
  if (!begin_.ok() || !commit_.ok() || !put_.ok() || !erase_.ok() || !range_.ok()) {
    return DamagedFile(path_, sqlite3_errmsg(db));
  }
  return absl::OkStatus();
}

absl::Status SqliteFile::Migrate(const std::string& cluster_id) {
  sqlite3* const db = db_.get();
  const bool made_now = version_ == 0;
  for (; version_ < kSchemaVersion; ++version_) {
    if (!Execute(kMigrations[static_cast<size_t>(version_)])) return OpeningFault(path_, db);
  }
  SqliteStatement write(db, "UPDATE meta SET value = ?1 WHERE name = 'schema_version'");
  write.Bind(1, version_);
  if (!write.Run()) return OpeningFault(path_, db);
  if (made_now) {
    SqliteStatement name(db, "INSERT INTO meta VALUES('cluster_id', ?1)");
    name.BindText(1, cluster_id);
    if (!name.Run() || !Execute(fmt::format("PRAGMA application_id={}", kApplicationId).c_str())) {
      return OpeningFault(path_, db);
    }
  }
  SqliteStatement read(db, "SELECT value FROM meta WHERE name = 'cluster_id'");
  if (read.Step() != SQLITE_ROW || read.Bytes(0).empty()) {
    return DamagedFile(path_, "it has no cluster_id");
  }
  cluster_id_ = read.Bytes(0);
  return absl::OkStatus();
}

absl::Status SqliteFile::TakeTerm(uint64_t term_min) {
  const auto former = Ask("SELECT value FROM meta WHERE name = 'term'");
  if (!former || *former < 0 || *former == std::numeric_limits<int64_t>::max()) {
    return DamagedFile(path_, "it has no term");
  }
  term_ = std::max(static_cast<uint64_t>(*former) + 1, term_min);
  SqliteStatement write(db_.get(), "UPDATE meta SET value = ?1 WHERE name = 'term'");
  write.Bind(1, static_cast<int64_t>(term_));
  return write.Run() ? absl::OkStatus() : OpeningFault(path_, db_.get());
}

bool SqliteFile::Execute(const char* sql) {
  ForgetSystemError();
  return sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK;
}

std::optional<int64_t> SqliteFile::Ask(const char* sql) {
  SqliteStatement statement(db_.get(), sql);
  if (!statement.ok() || statement.Step() != SQLITE_ROW) return std::nullopt;
  return statement.Number(0);
}

}  // namespace callboard::server
