// The store's file: opened with all checks, written in batches, read by ranges, kept small.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/flows/store.h"
#include "server/store/sqlite_statement.h"

namespace callboard::server {

// The newest value of each key that has changed; an empty one erases. In the order of the keys, so
// that a batch goes through the file once from front to back.
using StoreBatch = std::map<std::string, std::string>;

struct SqliteFileOptions {
  std::string path;
  // fsync at each commit: also a power failure loses nothing that was committed.
  bool sync_full = false;
  // Taken for a file that is made now.
  std::string new_cluster_id;
  // The term is at least that.
  uint64_t term_min = 1;
};

// One connection that holds the file exclusively until it is destroyed, which also keeps SQLite's
// shared memory (and SIGBUS on a full disk) out. One thread at a time. What Write has returned OK
// for survives a kill of the process. Errors at opening are FailedPrecondition, later ones
// Unavailable; after those the connection may be used on.
class SqliteFile {
 public:
  // Creates or migrates the file as needed, checks its structure and commits a new term.
  static absl::StatusOr<std::unique_ptr<SqliteFile>> Open(const SqliteFileOptions& options);
  // The full check of a file that nobody has open: a sentence about a sound one. Changes nothing.
  static absl::StatusOr<std::string> Check(const std::string& path);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  uint64_t term() const { return term_; }
  const std::string& cluster_id() const { return cluster_id_; }
  const std::string& path() const { return path_; }

  // For a store that failed: whether its disk has room for more than the next small change, so that
  // it does not fail and recover by turns.
  absl::Status CheckRoom() const;
  // All of it or nothing. Returns how many bytes wait in the write-ahead log.
  absl::StatusOr<uint64_t> Write(const StoreBatch& batch);
  // Everything, keys ascending.
  absl::Status Visit(absl::AnyInvocable<void(const StoreRecord&)>& visit);
  // from <= key < to, ascending.
  absl::StatusOr<std::vector<StoreRecord>> Read(const std::string& from, const std::string& to,
                                                size_t limit);

  struct Tended {
    uint64_t file_bytes = 0;
    uint64_t log_bytes = 0;
    bool again = false;  // a further slice is of use
  };
  // Moves the write-ahead log into the file and gives a slice of its free pages back to the disk.
  absl::StatusOr<Tended> Tend();

 private:
  explicit SqliteFile(std::string path) : path_(std::move(path)) {}

  // Steps of opening. What they leave to SQLite they find out by its connection's error.
  absl::Status Connect();
  absl::Status CheckIdentity();
  absl::Status CheckPages(const char* pragma);
  absl::Status Begin(const SqliteFileOptions& options);
  absl::Status Migrate(const std::string& cluster_id);
  absl::Status TakeTerm(uint64_t term_min);

  bool Execute(const char* sql);
  // The first column of the first row; nothing on an error.
  std::optional<int64_t> Ask(const char* sql);
  uint64_t LogBytes() const;
  absl::Status Undone(std::string_view verb);

  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close(db); }
  };

  const std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
  SqliteStatement begin_, commit_, put_, erase_, range_;
  int64_t version_ = 0;  // of the schema; 0: the file is empty
  uint64_t term_ = 0;
  std::string cluster_id_;
  int64_t page_bytes_ = 0;
  uint64_t log_pages_ = 0;
};

}  // namespace callboard::server
