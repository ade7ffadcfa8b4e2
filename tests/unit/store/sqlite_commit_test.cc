// Tests of what is committed when, who is told, and what is there at the next start.
#include <filesystem>

#include "tests/support/faulty_disk.h"
#include "tests/unit/store/store_fixture.h"

namespace callboard::tests {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using SqliteCommit = StoreTest;

TEST_F(SqliteCommit, WhatATurnOfTheLoopAppendsIsOneCommitToldInOrder) {
  Open();
  for (int i = 1; i <= 5; ++i) Note(fmt::format("{}", i), Put(fmt::format("key{}", i), "v"));
  EXPECT_THAT(told_, IsEmpty()) << "nothing is durable before the disk has it";
  Settle();
  EXPECT_THAT(told_, ElementsAre("1: ok", "2: ok", "3: ok", "4: ok", "5: ok"));
  EXPECT_EQ(store_->gauges().commits, 1u);
  Note("again", 3);
  EXPECT_EQ(told_.back(), "again: ok") << "inline when it is durable already";
}

TEST_F(SqliteCommit, ThoseWhoWaitAreToldInTheOrderOfPositions) {
  Open();
  const uint64_t first = Put("a", "1");
  const uint64_t second = Put("b", "2");
  Note("second", second);
  Note("first", first);
  Settle();
  EXPECT_THAT(told_, ElementsAre("first: ok", "second: ok"));
}

TEST_F(SqliteCommit, WhatNobodyWaitsForIsCollectedForFiftyMilliseconds) {
  Open();
  Put("a", "1");
  loop_.RunFor(absl::Milliseconds(49));
  Put("b", "2");
  EXPECT_EQ(disk_.waiting(), 0u);
  loop_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(disk_.waiting(), 1u) << "counted from the first of them";
  Settle();
  EXPECT_EQ(store_->gauges().commits, 1u);
  EXPECT_EQ(store_->gauges().pending_records, 0u);
  EXPECT_EQ(Reloaded(), "a=1 b=2");
}

TEST_F(SqliteCommit, OneWhoWaitsTakesAllThatWasHeldWithIt) {
  Open();
  Put("a", "1");
  loop_.RunFor(absl::Milliseconds(10));
  Note("b", Put("b", "2"));
  Settle();
  EXPECT_THAT(told_, ElementsAre("b: ok"));
  EXPECT_EQ(store_->gauges().commits, 1u);
  EXPECT_EQ(Reloaded(), "a=1 b=2");
}

TEST_F(SqliteCommit, AFullBatchIsNotHeld) {
  Open();
  for (int i = 0; i < 32; ++i) Put(fmt::format("key{}", i), std::string(40'000, 'x'));
  Settle();
  EXPECT_EQ(store_->gauges().commits, 1u);
}

TEST_F(SqliteCommit, WhatComesDuringACommitIsTheNextOne) {
  Open();
  Note("0", Put("key0", "v"));
  loop_.RunReady();
  ASSERT_EQ(disk_.waiting(), 1u);
  for (int i = 1; i <= 100; ++i) Note(fmt::format("{}", i), Put(fmt::format("key{}", i), "v"));
  loop_.RunReady();
  EXPECT_EQ(disk_.waiting(), 1u) << "one commit at a time";
  disk_.Step();
  loop_.RunReady();
  EXPECT_THAT(told_, ElementsAre("0: ok"));
  loop_.RunFor(config_.spacing);
  Settle();
  EXPECT_EQ(told_.size(), 101u);
  EXPECT_EQ(store_->gauges().commits, 2u);
}

TEST_F(SqliteCommit, WhereSeveralWaitTheyShareCommitsThatBeginASpacingApart) {
  Open();
  Note("0", Put("key0", "v"));
  loop_.RunReady();
  Note("1", Put("key1", "v"));
  disk_.Step();
  loop_.RunFor(config_.spacing / 2);
  EXPECT_EQ(disk_.waiting(), 0u) << "two waited at a time";
  Note("2", Put("key2", "v"));
  loop_.RunFor(config_.spacing / 2);
  EXPECT_EQ(disk_.waiting(), 1u);
  Settle();
  EXPECT_THAT(told_, ElementsAre("0: ok", "1: ok", "2: ok"));
  EXPECT_EQ(store_->gauges().commits, 2u);
}

TEST_F(SqliteCommit, WhoWaitsAloneWaitsForNoOther) {
  Open();
  for (int i = 0; i < 3; ++i) {
    Note("key", Put("key", fmt::format("{}", i)));
    Settle();
    EXPECT_EQ(told_.size(), i + 1u);
  }
}

TEST_F(SqliteCommit, TheNewestValueOfAKeyIsKeptAndAnEmptyOneErases) {
  Open();
  PutDurably("gone", "1");
  Put("changed", "1");
  Put("changed", "2");
  Put("gone", "");
  Put("brief", "1");
  PutDurably("brief", "");
  EXPECT_EQ(Reloaded(), "changed=2");
}

TEST_F(SqliteCommit, EveryRecordIsLoadedInTheOrderOfKeysAsBytes) {
  Open();
  PutDurably("b", "2");
  PutDurably(std::string("a\0z", 3), "zero");
  PutDurably("\xff", "last");
  PutDurably("a", std::string("\0\x01", 2));
  PutDurably("a/b", std::string(200'000, 'x'));
  Open();
  std::vector<std::string> keys;
  ASSERT_TRUE(store_
                  ->Load([&](const server::StoreRecord& record) {
                    keys.push_back(record.key);
                    if (record.key == "a") {
                      EXPECT_EQ(record.value, std::string("\0\x01", 2));
                    }
                    if (record.key == "a/b") {
                      EXPECT_EQ(record.value.size(), 200'000u);
                    }
                  })
                  .ok());
  EXPECT_THAT(keys, ElementsAre("a", std::string("a\0z", 3), "a/b", "b", "\xff"));
}

TEST_F(SqliteCommit, LoadingIsForTheStart) {
  Open();
  PutDurably("a", "1");
  EXPECT_FALSE(store_->Load([](const server::StoreRecord&) {}).ok());
}

TEST_F(SqliteCommit, APositionThatWasNeverAppendedIsTheCallersMistake) {
  Open();
  Note("ahead", Put("a", "1") + 1);
  EXPECT_THAT(told_, ElementsAre("ahead: asked for a position that was never appended"));
  EXPECT_EQ(store_->Append({}), 1u) << "tells the last position";
}

TEST_F(SqliteCommit, WhatWasNotCommittedWhenTheProcessIsKilledIsNotThere) {
  Open();
  PutDurably("a", "1");
  Note("b", Put("b", "2"));
  loop_.RunReady();
  EXPECT_EQ(Reloaded(), "a=1");
  Settle();
  EXPECT_THAT(told_, IsEmpty()) << "nobody is told by a store that is gone";
}

TEST_F(SqliteCommit, ACallbackMayDestroyTheStore) {
  Open();
  store_->WhenDurable(Put("a", "1"), [this](const absl::Status&) { store_ = nullptr; });
  Note("b", Put("b", "2"));
  Settle();
  EXPECT_EQ(store_, nullptr);
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(Reloaded(), "a=1 b=2");
}

TEST_F(SqliteCommit, ACallbackMayAppendAndWaitForMore) {
  Open();
  store_->WhenDurable(Put("a", "1"), [this](const absl::Status&) { Note("b", Put("b", "2")); });
  Settle();
  EXPECT_THAT(told_, ElementsAre("b: ok"));
}

TEST_F(SqliteCommit, TheTermGrowsWithEveryStartAlsoWhenTheClockIsSetBack) {
  Open();
  const auto wall = static_cast<uint64_t>(absl::ToUnixMillis(loop_.WallNow()));
  EXPECT_EQ(store_->term(), wall);
  Open();
  EXPECT_EQ(store_->term(), wall + 1) << "within the same millisecond";
  loop_.RunFor(absl::Seconds(5));
  Open();
  EXPECT_EQ(store_->term(), wall + 5'000);

  store_ = nullptr;
  VirtualLoop yesterday(loop_.WallNow() - absl::Hours(24));
  SteppedDisk disk(yesterday);
  auto store = server::SqliteStore::Open(yesterday, disk.MakeOffload(), config_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->term(), wall + 5'001);
}

TEST_F(SqliteCommit, TheInstallationsIdIsThatOfTheFile) {
  Open();
  EXPECT_EQ(store_->cluster_id(), "c1a57e7");
  config_.new_cluster_id = "another";
  Open();
  EXPECT_EQ(store_->cluster_id(), "c1a57e7");
}

TEST_F(SqliteCommit, OnlyFullSyncWaitsForTheDiskItself) {
  FaultyDisk disk;
  Open();
  int before = disk.syncs();
  PutDurably("a", "1");
  PutDurably("b", "2");
  EXPECT_EQ(disk.syncs(), before);
  config_.sync_full = true;
  Open();
  before = disk.syncs();
  PutDurably("c", "3");
  PutDurably("d", "4");
  EXPECT_GE(disk.syncs(), before + 2);
  store_ = nullptr;
}

TEST_F(SqliteCommit, AnIdleStoreIsTendedAndGivesFreePagesBack) {
  Open();
  const std::string large(60'000, 'x');
  for (int i = 0; i < 300; ++i) Put(fmt::format("key{:03}", i), large);
  PutDurably("last", "1");
  EXPECT_EQ(store_->gauges().log_bytes, 0u) << "a log of that size does not wait for idle time";
  EXPECT_GT(store_->gauges().file_bytes, 16u << 20);

  for (int i = 0; i < 300; ++i) Put(fmt::format("key{:03}", i), "");
  PutDurably("last", "2");
  const auto tended = [this] {
    loop_.RunFor(absl::Milliseconds(100));
    Settle();
    return store_->gauges().file_bytes < (2u << 20) && store_->gauges().log_bytes == 0;
  };
  int slices = 0;
  while (!tended() && slices < 600) ++slices;
  EXPECT_LT(slices, 100);
  EXPECT_GT(slices, 9) << "not before a second of idleness";
  EXPECT_LT(std::filesystem::file_size(path()), 2u << 20);
  for (int i = 0; i < 30; ++i) tended();
  const uint64_t steps = loop_.steps();
  loop_.RunFor(absl::Hours(1));
  EXPECT_EQ(loop_.steps(), steps) << "a store that is tended sleeps";
  EXPECT_EQ(Reloaded(), "last=2");
}

TEST_F(SqliteCommit, ReadingSeesWhatIsOnDiskAndWhatIsOnItsWay) {
  Open();
  PutDurably("e/1", "disk");
  PutDurably("e/2", "disk");
  PutDurably("e/3", "disk");
  PutDurably("f/1", "other");
  Note("under way", Put("e/2", "under way"));
  loop_.RunReady();
  ASSERT_EQ(disk_.waiting(), 1u);
  Put("e/1", "");
  Put("e/0", "new");
  EXPECT_EQ(Read("e/", "e0"), "e/0=new e/2=under way e/3=disk");
  EXPECT_EQ(Read("e/", "e0", 2), "e/0=new e/2=under way");
  EXPECT_EQ(Read("e/0", "e/2"), "e/0=new") << "the end is not included";
  EXPECT_EQ(Read("e/3", "e/3"), "");
  EXPECT_EQ(Read("z", "a"), "");
  EXPECT_EQ(Read("e/", "e0", 0), "");
}

TEST_F(SqliteCommit, AReaderSeesTheMomentOfItsQuestion) {
  Open();
  PutDurably("a", "1");
  std::string found;
  store_->Read("a", "z", 10, [&](absl::StatusOr<std::vector<server::StoreRecord>> records) {
    for (const auto& record : *records) found += record.key + record.value;
  });
  Put("a", "2");
  Note("b", Put("b", "2"));
  Settle();
  EXPECT_EQ(found, "a1");
}

}  // namespace
}  // namespace callboard::tests
