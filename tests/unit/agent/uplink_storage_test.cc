// Journal file and spool on a real disk, and the builder of payloads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backend_agent/storage/posix_journal_file.h"
#include "backend_agent/storage/posix_spool.h"
#include "tests/support/memory_spool.h"
#include "tests/support/temporary_folder.h"

namespace callboard::tests {
namespace {

class Storage : public testing::Test {
 protected:
  size_t FileCount() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
  }

  const TemporaryFolder own_folder;
  const std::string folder = own_folder.path();
};

TEST_F(Storage, JournalFileAppendsReplacesAndIsReadAgain) {
  const std::string path = folder + "/journal";
  {
    auto file = agent::PosixJournalFile::Open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ((*file)->ReadAll().value(), "");
    ASSERT_TRUE((*file)->Append("one").ok());
    ASSERT_TRUE((*file)->Append("two").ok());
    EXPECT_EQ((*file)->ReadAll().value(), "onetwo");
    ASSERT_TRUE((*file)->Replace("three").ok());
    ASSERT_TRUE((*file)->Append("four").ok());
    EXPECT_FALSE((*file)->machine_boot_id().empty());
    auto second = agent::PosixJournalFile::Open(path);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  }
  auto file = agent::PosixJournalFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->ReadAll().value(), "threefour");
}

TEST_F(Storage, SpoolFileLivesAsLongAsItsReferences) {
  auto spool = agent::PosixSpool::Open(folder);
  ASSERT_TRUE(spool.ok());
  agent::PayloadBuilder builder(**spool, 1 << 20);
  const std::string text(200'000, 'y');
  ASSERT_TRUE(builder.Append(text).ok());
  agent::Payload payload = builder.Take();
  EXPECT_EQ(payload.view(), text);
  EXPECT_EQ((*spool)->bytes(), text.size());
  agent::Payload part = payload.Part(payload.view().substr(10, 20));
  payload = {};
  EXPECT_EQ(part.size(), 20u);
  EXPECT_EQ(FileCount(), 1u);
  part = {};
  EXPECT_EQ(FileCount(), 0u);
  EXPECT_EQ((*spool)->bytes(), 0u);
}

TEST_F(Storage, KeptFilesAreFoundByTheNextRunAndOthersRemoved) {
  std::string kept;
  {
    auto spool = agent::PosixSpool::Open(folder).value();
    for (int i = 0; i < 2; ++i) {
      auto writer = spool->Create().value();
      ASSERT_TRUE(writer->Append("content " + std::to_string(i)).ok());
      auto file = writer->Finish();
      file->Keep();
      kept = file->name();
    }
  }
  auto spool = agent::PosixSpool::Open(folder).value();
  EXPECT_EQ(spool->bytes(), 18u);
  spool->RemoveAllBut({kept});
  EXPECT_EQ(FileCount(), 1u);
  auto file = spool->OpenKept(kept).value();
  EXPECT_EQ(file->view(), "content 1");
  EXPECT_NE(spool->Create().value()->Finish()->name(), kept);
  spool->Remove(kept);
  EXPECT_EQ(file->view(), "content 1") << "readers are not disturbed";
  EXPECT_EQ(FileCount(), 0u);
  EXPECT_EQ(spool->OpenKept(kept).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Storage, SpoolRefusesWhatIsBeyondItsBound) {
  auto spool = agent::PosixSpool::Open(folder, 100).value();
  auto writer = spool->Create().value();
  ASSERT_TRUE(writer->Append(std::string(80, 'x')).ok());
  EXPECT_EQ(writer->Append(std::string(21, 'x')).code(), absl::StatusCode::kResourceExhausted);
  writer.reset();
  EXPECT_EQ(spool->bytes(), 0u);
  EXPECT_EQ(FileCount(), 0u);
}

TEST(PayloadBuilder, SpillsAtTheInlineBoundAndMakesOneLine) {
  MemorySpool spool;
  agent::PayloadBuilder builder(spool, 1 << 20);
  ASSERT_TRUE(builder.Append("{\n\r\"a\":1}").ok());
  EXPECT_EQ(builder.Take().view(), "{  \"a\":1}");
  EXPECT_TRUE(builder.empty());
  const std::string piece(40'000, 'x');
  ASSERT_TRUE(builder.Append(piece).ok());
  EXPECT_EQ(spool.file_count(), 0u);
  ASSERT_TRUE(builder.Append(piece + "\n").ok());
  EXPECT_EQ(spool.file_count(), 1u);
  EXPECT_EQ(builder.size(), 80'001u);
  EXPECT_EQ(builder.Take().view(), piece + piece + " ");
}

TEST(PayloadBuilder, RefusesTooMuchAndSaysHowMuch) {
  MemorySpool spool;
  agent::PayloadBuilder builder(spool, 100'000);
  ASSERT_TRUE(builder.Append(std::string(70'000, 'x')).ok());
  absl::Status status = builder.Append(std::string(40'000, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("110000"), absl::string_view::npos);
  EXPECT_NE(status.message().find("100000"), absl::string_view::npos);
  EXPECT_EQ(spool.file_count(), 0u);
  EXPECT_FALSE(builder.Append("x").ok());
  EXPECT_EQ(builder.size(), 110'001u);
  builder.Take();
  EXPECT_TRUE(builder.Append("x").ok());
}

}  // namespace
}  // namespace callboard::tests
