// Tests of a store whose disk fails while it runs, and of what is well again afterwards.
#include <filesystem>

#include "tests/support/faulty_disk.h"
#include "tests/unit/store/store_fixture.h"

namespace callboard::tests {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class SqliteFailure : public StoreTest {
 protected:
  void TearDown() override { store_ = nullptr; }
  std::string Sentence() const { return std::string(core::Message(store_->status())); }

  FaultyDisk fault_;
};

TEST_F(SqliteFailure, AllWhoWaitAreToldWhyAndLaterOnesAtOnce) {
  Open();
  PutDurably("a", "1");
  fault_.FailWrites(SQLITE_FULL);
  Note("b", Put("b", "2"));
  loop_.RunReady();
  Note("c", Put("c", "3"));  // not even handed over
  Settle();
  const std::string sentence = fmt::format(
      "the store {} cannot be written: its disk is full; free some space there, callboardd tries "
      "again by itself",
      path());
  EXPECT_EQ(store_->status(), absl::UnavailableError(sentence));
  EXPECT_THAT(told_, ElementsAre("b: " + sentence, "c: " + sentence));
  Note("d", Put("d", "4"));
  EXPECT_EQ(told_.back(), "d: " + sentence);
  Note("a", 1);
  EXPECT_EQ(told_.back(), "a: ok") << "what was durable before is so still";
  EXPECT_EQ(store_->gauges().failures, 1u);
}

TEST_F(SqliteFailure, EachFaultIsToldByItsOwnCauseWhateverWentWrongBefore) {
  Open();
  PutDurably("a", "1");
  fault_.FailWrites(SQLITE_IOERR_WRITE, EROFS);
  Note("b", Put("b", "2"));
  Settle();
  EXPECT_THAT(Sentence(), HasSubstr("cannot be written (Read-only file system)"));
  fault_.FailWrites(SQLITE_FULL);
  loop_.RunFor(absl::Seconds(1));
  Settle();
  EXPECT_THAT(Sentence(), HasSubstr("its disk is full"));
  fault_.FailWrites(SQLITE_IOERR_WRITE, ENOSPC);
  loop_.RunFor(absl::Seconds(1));
  Settle();
  EXPECT_THAT(Sentence(), HasSubstr("its disk is full"));
  fault_.FailWrites(SQLITE_IOERR_WRITE);
  loop_.RunFor(absl::Seconds(1));
  Settle();
  EXPECT_THAT(Sentence(), testing::Not(HasSubstr("its disk is full")));
}

TEST_F(SqliteFailure, ItTriesEverySecondAndWritesTheNewestOfAllThatCameMeanwhile) {
  Open();
  PutDurably("a", "1");
  fault_.FailWrites(SQLITE_IOERR_WRITE);
  Note("b", Put("b", "old"));
  Settle();
  EXPECT_THAT(Sentence(), HasSubstr("its disk failed ("));
  Put("b", "new");
  Put("a", "");
  Put("c", "3");
  for (int i = 0; i < 3; ++i) {
    loop_.RunFor(absl::Seconds(1));
    Settle();
  }
  EXPECT_EQ(store_->gauges().failures, 4u);
  EXPECT_EQ(Read("a", "z"), "b=new c=3") << "from memory, as it would be";
  EXPECT_EQ(store_->gauges().pending_records, 3u);

  fault_.FailWrites(SQLITE_OK);
  loop_.RunFor(absl::Milliseconds(900));
  Settle();
  EXPECT_FALSE(store_->status().ok());
  loop_.RunFor(absl::Milliseconds(100));
  Settle();
  EXPECT_TRUE(store_->status().ok()) << store_->status();
  EXPECT_EQ(store_->gauges().pending_records, 0u);
  EXPECT_EQ(store_->gauges().pending_bytes, 0u);
  told_.clear();
  Note("e", Put("e", "5"));
  Settle();
  EXPECT_THAT(told_, ElementsAre("e: ok"));
  EXPECT_EQ(Reloaded(), "b=new c=3 e=5");
}

TEST_F(SqliteFailure, AKillWhileItFailsLosesOnlyWhatNobodyWasToldOf) {
  Open();
  PutDurably("a", "1");
  fault_.FailWrites(SQLITE_FULL);
  Note("b", Put("b", "2"));
  Settle();
  fault_.FailWrites(SQLITE_OK);
  EXPECT_EQ(Reloaded(), "a=1");
}

TEST_F(SqliteFailure, BeyondItsBoundTheStoreFailsUntilItIsOpenedAnew) {
  config_.pending_bytes_max = 10'000;
  Open();
  fault_.FailWrites(SQLITE_FULL);
  Note("first", Put("first", "1"));
  Settle();
  told_.clear();
  int kept = 0;
  while (store_->gauges().lost_records == 0) {
    Put(fmt::format("key{:02}", ++kept), std::string(1'000, 'x'));
  }
  Put("later", "1");
  EXPECT_EQ(store_->gauges().lost_records, 2u);
  EXPECT_LE(store_->gauges().pending_bytes, 10'000u);
  EXPECT_THAT(Sentence(), StartsWith(fmt::format("the store {} could not be written for so long "
                                                 "that what waits for it exceeds "
                                                 "store.pending_bytes_max = 10000 bytes;",
                                                 path())));
  EXPECT_THAT(Sentence(), HasSubstr("restart callboardd: changes since then are lost"));
  EXPECT_EQ(Read("a", "z"), Sentence());

  fault_.FailWrites(SQLITE_OK);
  loop_.RunFor(absl::Seconds(2));
  Settle();
  EXPECT_THAT(Sentence(), HasSubstr("changes since then are lost")) << "not well by itself";
  EXPECT_EQ(store_->gauges().pending_records, 0u) << "but what was kept is written";
  Note("after", Put("after", "1"));
  EXPECT_THAT(told_.back(), HasSubstr("changes since then are lost"));
  const std::string all = Reloaded();
  EXPECT_THAT(all, StartsWith("first=1 key01="));
  EXPECT_THAT(all, testing::Not(HasSubstr(fmt::format("key{:02}", kept))));
  EXPECT_TRUE(store_->status().ok());
}

TEST_F(SqliteFailure, AChangeThatReplacesAnotherTakesNoMoreRoom) {
  config_.pending_bytes_max = 10'000;
  Open();
  fault_.FailWrites(SQLITE_FULL);
  Note("first", Put("first", "1"));
  Settle();
  for (int i = 0; i < 100; ++i) Put("same", std::string(4'000, 'x'));
  EXPECT_EQ(store_->gauges().lost_records, 0u);
}

TEST_F(SqliteFailure, ADiskThatDoesNotAnswerIsAFailureUntilItDoes) {
  Open();
  Note("a", Put("a", "1"));
  loop_.RunFor(absl::Milliseconds(9'999));
  EXPECT_THAT(told_, IsEmpty());
  loop_.RunFor(absl::Milliseconds(1));
  EXPECT_THAT(told_, ElementsAre(AllOf(StartsWith("a: the store "),
                                       HasSubstr("has not been written for 10s"))));
  Note("b", Put("b", "2"));
  EXPECT_THAT(told_.back(), StartsWith("b: the store "));
  Settle();
  EXPECT_TRUE(store_->status().ok());
  loop_.RunFor(absl::Milliseconds(50));
  Settle();
  EXPECT_EQ(Reloaded(), "a=1 b=2");
}

TEST_F(SqliteFailure, ADiskThatStandsStillWhileTendedIsToldToo) {
  Open();
  loop_.RunFor(absl::Seconds(1));
  ASSERT_EQ(disk_.waiting(), 1u);
  Note("a", Put("a", "1"));
  loop_.RunFor(absl::Seconds(10));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("has not been written for 10s")));
  Settle();
  EXPECT_TRUE(store_->status().ok());
}

TEST_F(SqliteFailure, AFileThatWasRemovedTakesNothing) {
  Open();
  PutDurably("a", "1");
  std::filesystem::rename(path(), path() + ".away");
  Note("b", Put("b", "2"));
  Settle();
  EXPECT_THAT(told_, ElementsAre(HasSubstr("the file was removed or replaced while callboardd used "
                                           "it; put it back, or restart callboardd")));
  std::filesystem::rename(path() + ".away", path());
  loop_.RunFor(absl::Seconds(1));
  Settle();
  EXPECT_TRUE(store_->status().ok());
}

TEST_F(SqliteFailure, TendingThatFailsLosesNothingAndIsTriedAgain) {
  Open();
  PutDurably("a", "1");
  fault_.FailWrites(SQLITE_FULL);
  loop_.RunFor(absl::Seconds(1));
  Settle();
  EXPECT_TRUE(store_->status().ok()) << "what is committed is in the log";
  EXPECT_GT(store_->gauges().log_bytes, 0u);
  fault_.FailWrites(SQLITE_OK);
  Note("b", Put("b", "2"));
  Settle();
  EXPECT_THAT(told_, ElementsAre("b: ok"));
  loop_.RunFor(absl::Seconds(10));
  Settle();
  EXPECT_EQ(store_->gauges().log_bytes, 0u);
  EXPECT_EQ(Reloaded(), "a=1 b=2");
}

TEST_F(SqliteFailure, ALogThatCouldNotBeTendedIsSoLaterUnderLoadToo) {
  Open();
  fault_.FailWritesOfTheFile(SQLITE_IOERR_WRITE);
  for (int i = 0; i < 300; ++i) Put(fmt::format("key{:03}", i), std::string(60'000, 'x'));
  PutDurably("last", "1");
  EXPECT_TRUE(store_->status().ok());
  EXPECT_GT(store_->gauges().log_bytes, 16u << 20);
  fault_.FailWritesOfTheFile(SQLITE_OK);
  const auto work_for = [this](int hundredths) {
    for (int i = 0; i < hundredths; ++i) {
      Put("never idle", fmt::format("{}", i));
      loop_.RunFor(absl::Milliseconds(10));
      Settle();
    }
  };
  work_for(900);
  EXPECT_GT(store_->gauges().log_bytes, 16u << 20) << "not at every commit";
  work_for(200);
  EXPECT_LT(store_->gauges().log_bytes, 16u << 20);
}

TEST_F(SqliteFailure, ACallbackThatIsToldOfAFailureMayDestroyTheStore) {
  Open();
  fault_.FailWrites(SQLITE_FULL);
  store_->WhenDurable(Put("a", "1"), [this](const absl::Status&) { store_ = nullptr; });
  Note("b", Put("b", "2"));
  Settle();
  EXPECT_EQ(store_, nullptr);
  loop_.RunFor(absl::Seconds(10));
  EXPECT_THAT(told_, IsEmpty());
}

}  // namespace
}  // namespace callboard::tests
