// Journal file and spool on a real disk, and the builder of payloads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backend_agent/call_journal.h"
#include "backend_agent/storage/posix_journal_file.h"
#include "backend_agent/storage/posix_spool.h"
#include "tests/support/memory_spool.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/virtual_loop.h"

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

// A journal on disk as an agent's run leaves it: a settled call, a finished one, one at work.
class JournalOnDisk : public Storage {
 protected:
  struct Run {
    std::string id;
    std::vector<std::string> unsettled;
    bool same_machine_boot;
    std::string body;  // of the call "finished"
    bool body_lost;
    bool tombstone;
    bool writable;
  };

  void Write() {
    Use(folder, [](agent::CallJournal& journal) {
      for (const char* call_id : {"settled", "finished", "running"}) {
        agent::JournaledCall call;
        call.call_id = call_id;
        call.seat_id = "seat";
        ASSERT_TRUE(journal.Started(std::move(call)).ok());
      }
      v1::Outcome outcome;
      outcome.set_class_(v1::RESULT);
      outcome.set_certainty(v1::FINISHED);
      const std::string large(100'000, 'x');
      ASSERT_TRUE(journal.Finished("settled", outcome, agent::Payload("{}")).ok());
      ASSERT_TRUE(journal.Finished("finished", outcome, agent::Payload(large)).ok());
      journal.Settled({{"settled", 1, v1::RESULT, v1::FINISHED}});
      journal.RaiseIncarnation("seat", 3);
    });
  }
  Run Read(const std::string& from) {
    Run run;
    Use(from, [&](agent::CallJournal& journal) {
      run.id = journal.id();
      run.same_machine_boot = journal.same_machine_boot();
      run.tombstone = journal.FindTombstone("settled") != nullptr;
      run.body_lost = false;
      for (const agent::JournaledCall* call : journal.Unsettled()) {
        run.unsettled.push_back(call->call_id);
        if (!call->outcome) continue;
        run.body = call->body.view();
        run.body_lost = call->body_lost;
      }
      run.writable = journal.Job("running", "job").ok();
    });
    return run;
  }
  template <class Fn>
  void Use(const std::string& at, Fn use) {
    auto file = agent::PosixJournalFile::Open(at + "/journal");
    auto spool = agent::PosixSpool::Open(at + "/spool");
    ASSERT_TRUE(file.ok() && spool.ok());
    agent::CallJournal journal(**file, **spool, loop, random, limits);
    ASSERT_TRUE(journal.Recover().ok());
    use(journal);
  }
  std::string Path() const { return folder + "/journal"; }

  VirtualLoop loop;
  core::SeededRandom random{3};
  agent::AgentLimits limits;
};

TEST_F(JournalOnDisk, IsWhatItWasForTheNextRun) {
  Write();
  const Run first = Read(folder);
  EXPECT_EQ(first.unsettled, (std::vector<std::string>{"finished", "running"}));
  EXPECT_EQ(first.body.size(), 100'000u);
  EXPECT_TRUE(first.tombstone);
  EXPECT_TRUE(first.same_machine_boot);
  EXPECT_EQ(Read(folder).id, first.id);
}

TEST_F(JournalOnDisk, TornTailIsCutOffAndTheJournalBegunAnew) {
  Write();
  const Run whole = Read(folder);
  std::filesystem::resize_file(Path(), std::filesystem::file_size(Path()) - 3);
  const Run torn = Read(folder);
  EXPECT_NE(torn.id, whole.id);
  EXPECT_EQ(torn.unsettled, whole.unsettled);
  EXPECT_EQ(torn.body, whole.body);
  EXPECT_TRUE(torn.tombstone);
  EXPECT_TRUE(torn.writable);
  EXPECT_EQ(Read(folder).id, torn.id) << "what was begun anew is whole";
}

TEST_F(JournalOnDisk, LostBodyLeavesItsOutcome) {
  Write();
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/spool")) {
    std::filesystem::remove(entry.path());
  }
  const Run run = Read(folder);
  EXPECT_EQ(run.unsettled, (std::vector<std::string>{"finished", "running"}));
  EXPECT_TRUE(run.body_lost);
  EXPECT_TRUE(run.body.empty());
}

TEST_F(JournalOnDisk, ShortenedBodyIsLostAndNotSentAsIfItWereWhole) {
  Write();
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/spool")) {
    std::filesystem::resize_file(entry.path(), 99'999);
  }
  EXPECT_TRUE(Read(folder).body_lost);
}

TEST_F(JournalOnDisk, CopyHasItsOwnIdAndKnowsTheSameCalls) {
  Write();
  const Run original = Read(folder);
  const TemporaryFolder other;
  std::filesystem::copy(
      folder, other.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  const Run copy = Read(other.path());
  EXPECT_NE(copy.id, original.id);
  EXPECT_EQ(copy.unsettled, original.unsettled);
  EXPECT_EQ(copy.body, original.body);
  EXPECT_TRUE(copy.same_machine_boot);
  EXPECT_EQ(Read(other.path()).id, copy.id);
  EXPECT_EQ(Read(folder).id, original.id) << "the original is as it was";
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
