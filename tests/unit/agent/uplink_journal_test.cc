// The journal's records and its bounds.
#include <gtest/gtest.h>

#include "backend_agent/call_journal.h"
#include "tests/support/memory_journal_file.h"
#include "tests/support/memory_spool.h"
#include "tests/support/virtual_loop.h"

namespace callboard::tests {
namespace {

class Journal : public testing::Test {
 protected:
  agent::CallJournal Open() {
    agent::CallJournal journal(file, spool, loop, random, limits);
    EXPECT_TRUE(journal.Recover().ok());
    return journal;
  }
  static void Start(agent::CallJournal& journal, const std::string& call_id) {
    agent::JournaledCall call;
    call.call_id = call_id;
    call.seat_id = "seat";
    call.owner_term = 4;
    ASSERT_TRUE(journal.Started(call).ok());
  }
  static void Finish(agent::CallJournal& journal, const std::string& call_id, std::string body) {
    v1::Outcome outcome;
    outcome.set_class_(v1::RESULT);
    outcome.set_certainty(v1::FINISHED);
    ASSERT_TRUE(journal.Finished(call_id, outcome, agent::Payload(std::move(body))).ok());
  }

  VirtualLoop loop;
  core::SeededRandom random{11};
  MemoryJournalFile file;
  MemorySpool spool;
  agent::AgentLimits limits;
};

TEST_F(Journal, KeepsCallsInOrderOfStarting) {
  auto journal = Open();
  Start(journal, "b");
  Start(journal, "a");
  Finish(journal, "a", "{}");
  ASSERT_TRUE(journal.Job("b", "job-7").ok());
  auto again = Open();
  auto calls = again.Unsettled();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]->call_id, "b");
  EXPECT_EQ(calls[0]->backend_job, "job-7");
  EXPECT_EQ(calls[0]->owner_term, 4u);
  EXPECT_FALSE(calls[0]->outcome);
  EXPECT_EQ(calls[1]->body.view(), "{}");
  EXPECT_EQ(again.id(), journal.id());
}

TEST_F(Journal, TornTailLosesOneRecordAndTheId) {
  auto journal = Open();
  Start(journal, "a");
  Start(journal, "b");
  const std::string whole = file.content;
  const std::string id = journal.id();
  size_t renewed = 0;
  for (size_t cut = 1; cut < 20; ++cut) {
    file.content = whole.substr(0, whole.size() - cut);
    auto again = Open();
    ASSERT_EQ(again.Unsettled().size(), 1u);
    EXPECT_EQ(again.Unsettled()[0]->call_id, "a");
    if (again.id() != id) ++renewed;
  }
  EXPECT_EQ(renewed, 19u);
}

TEST_F(Journal, DamagedRecordEndsWhatIsTrusted) {
  auto journal = Open();
  Start(journal, "a");
  const size_t second = file.content.size();
  Start(journal, "b");
  Start(journal, "c");
  file.content[second + 12] = static_cast<char>(file.content[second + 12] ^ 1);
  auto again = Open();
  ASSERT_EQ(again.Unsettled().size(), 1u);
  EXPECT_NE(again.id(), journal.id());
  // What was begun anew is whole.
  auto third = Open();
  EXPECT_EQ(third.id(), again.id());
  EXPECT_EQ(third.Unsettled().size(), 1u);
}

TEST_F(Journal, AnythingInTheFileIsSurvived) {
  for (int round = 0; round < 500; ++round) {
    file.content = random.Bytes(random.Below(200));
    Open();
  }
  auto journal = Open();
  Start(journal, "a");
  Finish(journal, "a", "{}");
  const std::string whole = file.content;
  for (size_t i = 0; i < whole.size(); ++i) {
    file.content = whole;
    file.content[i] = static_cast<char>(random.Next64());
    EXPECT_LE(Open().Unsettled().size(), 1u);
  }
}

TEST_F(Journal, UnreadableFileIsBegunAnew) {
  auto journal = Open();
  Start(journal, "a");
  file.unreadable = true;
  auto again = Open();
  EXPECT_NE(again.id(), journal.id());
  EXPECT_TRUE(again.Unsettled().empty());
  Start(again, "b");
}

TEST_F(Journal, StaysWithinItsBoundAndKeepsOutcomesWhoseBodiesItEvicts) {
  limits.journal_bytes_max = 256 << 10;
  auto journal = Open();
  for (int i = 0; i < 40; ++i) {
    Start(journal, std::to_string(i));
    Finish(journal, std::to_string(i), std::string(20'000, 'x'));
    EXPECT_LE(journal.bytes(), limits.journal_bytes_max);
    EXPECT_EQ(journal.bytes(), file.content.size());
  }
  auto again = Open();
  auto calls = again.Unsettled();
  ASSERT_EQ(calls.size(), 40u);
  EXPECT_TRUE(calls[0]->body_lost);
  EXPECT_TRUE(calls[0]->outcome);
  EXPECT_EQ(calls[39]->body.size(), 20'000u);
  EXPECT_EQ(again.id(), journal.id());
}

TEST_F(Journal, SettledCallsAreCompactedAway) {
  auto journal = Open();
  for (int i = 0; i < 1'000; ++i) {
    const std::string call_id = std::to_string(i);
    Start(journal, call_id);
    Finish(journal, call_id, std::string(20'000, 'x'));
    journal.Settled({{call_id, 1, v1::RESULT, v1::FINISHED}});
  }
  EXPECT_LT(journal.bytes(), 16u << 20);
  EXPECT_GE(file.replacements, 2);
  auto again = Open();
  EXPECT_TRUE(again.Unsettled().empty());
  ASSERT_NE(again.FindTombstone("0"), nullptr);
  EXPECT_EQ(again.FindTombstone("499")->outcome_class, v1::RESULT);
}

TEST_F(Journal, TombstonesAreBoundedInNumberAndAge) {
  limits.tombstones_max = 3;
  auto journal = Open();
  for (const char* call_id : {"a", "b", "c", "d"}) {
    journal.Settled({{call_id, 1, v1::RESULT, v1::FINISHED}});
  }
  EXPECT_EQ(journal.FindTombstone("a"), nullptr);
  EXPECT_NE(journal.FindTombstone("b"), nullptr);
  loop.RunFor(absl::Hours(25));
  EXPECT_EQ(journal.FindTombstone("b"), nullptr);
}

TEST_F(Journal, FilesNobodyNamesAreRemovedAtStart) {
  auto journal = Open();
  Start(journal, "a");
  Finish(journal, "a", std::string(100'000, 'x'));
  auto stray = spool.Create();
  ASSERT_TRUE((*stray)->Append("left over").ok());
  (*stray)->Finish()->Keep();
  EXPECT_EQ(spool.file_count(), 2u);
  auto again = Open();
  EXPECT_EQ(spool.file_count(), 1u);
  EXPECT_EQ(again.Unsettled()[0]->body.size(), 100'000u);
}

}  // namespace
}  // namespace callboard::tests
