// Tests of opening the store's file: every fault is a sentence that says what, which file, and what
// helps.
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/faulty_disk.h"
#include "tests/unit/store/store_fixture.h"

namespace callboard::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class SqliteOpening : public StoreTest {
 protected:
  void TearDown() override { store_ = nullptr; }

  std::string Refusal() {
    const absl::Status status = TryOpen();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(core::Message(status));
  }
  void Fill(int records) {
    Open();
    for (int i = 0; i < records; ++i) {
      Put(fmt::format("key{:05}", i), std::string(1'000, static_cast<char>('a' + i % 26)));
    }
    PutDurably("last", "1");
    store_ = nullptr;
  }
  void Execute(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  void Overwrite(std::streamoff offset, const std::string& bytes) {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset);
    file << bytes;
  }
};

TEST_F(SqliteOpening, AFileIsForItsOwnerOnly) {
  Open();
  const auto mode = std::filesystem::status(path()).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(SqliteOpening, AnotherProcessThatHasItIsNamed) {
  Fill(1);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t other = fork();
  if (other == 0) {
    const bool opened = TryOpen().ok();
    (void)!write(ready[1], opened ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_EQ(Refusal(), fmt::format("cannot open the store {}: process {} has it open; stop that "
                                   "process, or give this one a --state-dir of its own",
                                   path(), other));
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(TryOpen().ok()) << "its death frees the file";
}

TEST_F(SqliteOpening, AStoreOfTheSameProcessIsRefusedToo) {
  Open();
  auto second = server::SqliteStore::Open(loop_, disk_.MakeOffload(), config_);
  EXPECT_THAT(core::Message(second.status()), HasSubstr("another process has it open"));
}

TEST_F(SqliteOpening, AFileOfANewerVersionIsLeftAlone) {
  Fill(1);
  Execute("UPDATE meta SET value = 7 WHERE name = 'schema_version'");
  EXPECT_EQ(Refusal(),
            fmt::format("cannot open the store {}: a newer callboardd wrote it (schema 7, this one "
                        "knows 3); start that version, or give this one a --state-dir of its own",
                        path()));
}

TEST_F(SqliteOpening, AFileOfAnOlderVersionIsTakenOverWhole) {
  Fill(300);
  Execute(
      "CREATE TABLE older(key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
      "INSERT INTO older SELECT key, value FROM records; DROP TABLE records;"
      "ALTER TABLE older RENAME TO records;"
      "UPDATE meta SET value = 1 WHERE name = 'schema_version'");
  std::string all;
  for (int i = 0; i < 300; ++i) {
    all += fmt::format("key{:05}={} ", i, std::string(1'000, static_cast<char>('a' + i % 26)));
  }
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(Reloaded(), all + "last=1");
    store_ = nullptr;
  }
}

TEST_F(SqliteOpening, AnSqliteFileOfAnotherProgramIsLeftAlone) {
  Execute("CREATE TABLE notes(text); INSERT INTO notes VALUES('mine')");
  const std::string refusal = fmt::format(
      "cannot open the store {}: it is an SQLite file of another program; move it away, "
      "or put the store elsewhere with store.path",
      path());
  EXPECT_EQ(Refusal(), refusal);
  Execute("PRAGMA application_id=-5; DROP TABLE notes");
  EXPECT_EQ(Refusal(), refusal);
}

TEST_F(SqliteOpening, WhatIsNoSqliteFileIsLeftAlone) {
  std::ofstream(path()) << std::string(8'192, 'x');
  EXPECT_EQ(Refusal(), fmt::format("cannot open the store {}: it is no SQLite file; move it away, "
                                   "or put the store elsewhere with store.path",
                                   path()));
  EXPECT_EQ(std::filesystem::file_size(path()), 8'192u);
}

TEST_F(SqliteOpening, ADamagedPageIsFoundAtTheStart) {
  Fill(1'000);
  Overwrite(40 * 4'096, std::string(4'096, '\x7f'));
  EXPECT_THAT(Refusal(),
              AllOf(StartsWith(fmt::format("cannot open the store {}: it is damaged (", path())),
                    HasSubstr("put a sound copy in its place, or move it away: "
                              "callboardd then begins with an empty store")));
  EXPECT_THAT(core::Message(server::SqliteFile::Check(path()).status()), HasSubstr("is damaged ("));
}

TEST_F(SqliteOpening, ATruncatedFileIsFoundAtTheStart) {
  Fill(1'000);
  std::filesystem::resize_file(path(), std::filesystem::file_size(path()) / 2);
  EXPECT_THAT(Refusal(), HasSubstr("it is damaged ("));
}

TEST_F(SqliteOpening, AFolderThatIsNotThereIsSaid) {
  config_.path = folder_.path() + "/none/callboard.db";
  EXPECT_EQ(Refusal(),
            fmt::format("cannot open the store {}: No such file or directory; store.path must name "
                        "a file in a folder that exists",
                        config_.path));
  config_.path = folder_.path();
  EXPECT_THAT(Refusal(), HasSubstr("Is a directory"));
}

TEST_F(SqliteOpening, AFullOrReadOnlyOrFailingDiskIsSaid) {
  FaultyDisk fault;
  fault.FailWrites(SQLITE_FULL);
  EXPECT_EQ(Refusal(), fmt::format("cannot open the store {}: its disk is full; free some space "
                                   "there, or put the store elsewhere with store.path",
                                   path()));
  fault.FailWrites(SQLITE_READONLY);
  EXPECT_THAT(Refusal(), HasSubstr("the file or its folder cannot be written ("));
  fault.FailWrites(SQLITE_IOERR_WRITE);
  EXPECT_THAT(Refusal(), HasSubstr("its disk failed ("));
  fault.FailWrites(SQLITE_OK);
  Open();
  PutDurably("a", "1");
  EXPECT_EQ(Reloaded(), "a=1") << "what was begun is made whole";
  store_ = nullptr;
}

TEST_F(SqliteOpening, ATornLogKeepsEveryTransactionBeforeTheTear) {
  Open();
  PutDurably("a", "1");
  PutDurably("b", "2");
  const auto whole = std::filesystem::file_size(path() + "-wal");
  PutDurably("c", std::string(20'000, 'x'));
  // What a machine that lost power leaves: the last transaction in part.
  const std::string copy = folder_.path() + "/copy.db";
  std::filesystem::copy_file(path(), copy);
  std::filesystem::copy_file(path() + "-wal", copy + "-wal");
  const auto torn = std::filesystem::file_size(copy + "-wal");
  ASSERT_GT(torn, whole + 5'000);
  std::filesystem::resize_file(copy + "-wal", torn - 5'000);
  config_.path = copy;
  EXPECT_EQ(Reloaded(), "a=1 b=2");
}

TEST_F(SqliteOpening, AnEmptyFileBecomesAStore) {
  std::ofstream(path()).flush();
  Open();
  PutDurably("a", "1");
  EXPECT_EQ(Reloaded(), "a=1");
}

TEST_F(SqliteOpening, TheCheckTellsOfASoundStoreAndChangesNothing) {
  EXPECT_THAT(core::Message(server::SqliteFile::Check(path()).status()),
              HasSubstr("No such file or directory"));
  Fill(100);
  auto checked = server::SqliteFile::Check(path());
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_THAT(*checked,
              AllOf(StartsWith(fmt::format("the store {} is sound: 101 records, ", path())),
                    testing::EndsWith(" bytes")));
  Open();
  EXPECT_EQ(store_->term(), static_cast<uint64_t>(absl::ToUnixMillis(loop_.WallNow())) + 1)
      << "a check is no start";
  EXPECT_THAT(core::Message(server::SqliteFile::Check(path()).status()),
              HasSubstr("another process has it open"));
}

}  // namespace
}  // namespace callboard::tests
