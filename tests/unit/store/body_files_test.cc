// Kept bodies as files: whole or not there, faults as sentences, what a kill and a start leave.
#include "server/store/body_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "core/runtime/strings.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/store/store_fixture.h"

namespace callboard::tests {
namespace {

// What the disk under a file has room for, from its beginning on.
std::atomic<off_t> disk_bytes = std::numeric_limits<off_t>::max();

}  // namespace
}  // namespace callboard::tests

// In place of the C library's: a disk that is full needs none to be mounted, and no rights.
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  const off_t room = callboard::tests::disk_bytes - offset;
  if (count > 0 && room <= 0) {
    errno = ENOSPC;
    return -1;
  }
  count = std::min(count, static_cast<size_t>(room));
  return syscall(SYS_pwrite64, file, bytes, count, offset);
}

namespace callboard::tests {
namespace {

using server::CallId;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class BodyFilesTest : public testing::Test {
 protected:
  BodyFilesTest() : folder_(temporary_.path() + "/callboard.db.bodies") { Open(); }

  // Kills what has the folder open, and opens it again.
  void Open(bool sync_full = false) {
    files_.reset();
    auto opened = server::BodyFiles::Open(disk_.MakeOffload(), {folder_, sync_full});
    ASSERT_TRUE(opened.ok()) << opened.status();
    files_ = *std::move(opened);
  }
  void Settle() {
    while (disk_.Step()) loop_.RunReady();
    loop_.RunReady();
  }
  static CallId Id(char letter) { return *CallId::From(std::string(16, letter)); }
  std::string PathOf(char letter, const std::string& suffix) const {
    return folder_ + "/" + Id(letter).hex() + suffix;
  }
  absl::Status Append(char letter, uint64_t offset, const std::string& bytes) {
    absl::Status told = absl::UnknownError("nothing yet");
    files_->Append(Id(letter), offset, bytes, [&](const absl::Status& status) { told = status; });
    Settle();
    return told;
  }
  absl::Status Seal(char letter, uint64_t size) {
    absl::Status told = absl::UnknownError("nothing yet");
    files_->Seal(Id(letter), size, [&](const absl::Status& status) { told = status; });
    Settle();
    return told;
  }
  absl::StatusOr<std::string> Read(char letter, uint64_t offset = 0, size_t bytes_max = 100) {
    absl::StatusOr<std::string> told = absl::UnknownError("nothing yet");
    files_->Read(Id(letter), offset, bytes_max,
                 [&](absl::StatusOr<std::string> bytes) { told = std::move(bytes); });
    Settle();
    return told;
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  TemporaryFolder temporary_;
  const std::string folder_;
  VirtualLoop loop_;
  SteppedDisk disk_{loop_};
  std::unique_ptr<server::BodyFiles> files_;
};

TEST_F(BodyFilesTest, GivesBackInPiecesWhatWasWrittenInPieces) {
  for (const bool sync_full : {false, true}) {
    Open(sync_full);
    EXPECT_TRUE(Append('a', 0, "hello ").ok());
    EXPECT_TRUE(Append('a', 6, "world").ok());
    EXPECT_TRUE(Seal('a', 11).ok());
    EXPECT_EQ(*Read('a'), "hello world");
    EXPECT_EQ(*Read('a', 3, 5), "lo wo");
    EXPECT_EQ(*Read('a', 11), "");
    EXPECT_THAT(Names(), ElementsAre(Id('a').hex() + ".body"));
  }
}

TEST_F(BodyFilesTest, KillLeavesWhatIsWholeAndNoPart) {
  EXPECT_TRUE(Append('a', 0, "whole").ok());
  EXPECT_TRUE(Seal('a', 5).ok());
  EXPECT_TRUE(Append('b', 0, "a part").ok());
  std::ofstream(folder_ + "/notes.txt") << "somebody else's";
  Open();
  const auto whole = files_->Load();
  ASSERT_TRUE(whole.ok());
  ASSERT_EQ(whole->size(), 1u);
  EXPECT_EQ((*whole)[0].call, Id('a'));
  EXPECT_EQ((*whole)[0].bytes, 5u);
  EXPECT_THAT(Names(), ElementsAre(Id('a').hex() + ".body", "notes.txt"));
}

TEST_F(BodyFilesTest, PartGoesOnWhereItIsSaidTo) {
  EXPECT_TRUE(Append('a', 0, "hello world").ok());
  EXPECT_TRUE(Append('a', 6, "there").ok());
  EXPECT_TRUE(Append('a', 11, "!").ok());
  EXPECT_TRUE(Seal('a', 12).ok());
  EXPECT_EQ(*Read('a'), "hello there!");
  const absl::Status hole = Append('b', 4, "o");
  EXPECT_TRUE(absl::IsFailedPrecondition(hole)) << hole;
  EXPECT_THAT(std::string(core::Message(hole)), HasSubstr("has 0 bytes, not 4"));
}

TEST_F(BodyFilesTest, OnlyWhatHasItsSizeIsWhole) {
  EXPECT_TRUE(Append('a', 0, "hello").ok());
  const absl::Status status = Seal('a', 6);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::IsNotFound(Read('a').status()));
  EXPECT_TRUE(absl::IsNotFound(Seal('z', 1)));
}

TEST_F(BodyFilesTest, WhatIsRemovedIsGoneAndMissingOnesAreNamed) {
  EXPECT_TRUE(Append('a', 0, "hello").ok());
  EXPECT_TRUE(Seal('a', 5).ok());
  EXPECT_TRUE(Append('b', 0, "a part").ok());
  files_->Remove(Id('a'));
  files_->Remove(Id('b'));
  Settle();
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_THAT(std::string(core::Message(Read('a').status())),
              HasSubstr(PathOf('a', ".body") + " cannot be read: No such file or directory; "
                                               "files and folder are callboardd's own"));
}

TEST_F(BodyFilesTest, FolderThatCannotBeMadeIsRefusedAtTheStart) {
  const auto opened =
      server::BodyFiles::Open(disk_.MakeOffload(), {temporary_.path() + "/no/bodies", false});
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(std::string(core::Message(opened.status())),
              HasSubstr("/no/bodies for kept results: No such file or directory; make it "
                        "writable, or put the store elsewhere with store.path"));
}

TEST_F(BodyFilesTest, FullDiskSaysSoAndGoesOnWhereItWasOnceThereIsRoom) {
  disk_bytes = 1 << 20;
  const std::string piece(600 << 10, 'p');
  EXPECT_TRUE(Append('a', 0, piece).ok());
  const absl::Status full = Append('a', piece.size(), piece);
  EXPECT_TRUE(absl::IsUnavailable(full)) << full;
  EXPECT_THAT(std::string(core::Message(full)),
              HasSubstr("cannot be written: No space left on device; free some space there"));
  EXPECT_EQ(std::filesystem::file_size(PathOf('a', ".part")), 1u << 20) << "a part was written";
  EXPECT_TRUE(Append('a', piece.size(), "the end").ok());
  EXPECT_TRUE(Seal('a', piece.size() + 7).ok());
  EXPECT_EQ(*Read('a', piece.size() - 1), "pthe end");
  disk_bytes = std::numeric_limits<off_t>::max();
}

}  // namespace
}  // namespace callboard::tests
