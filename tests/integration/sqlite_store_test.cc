// The SQLite store on a real file with its own thread beside a real loop, also under the
// sanitizers.
#include "server/store/sqlite_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/strings.h"
#include "tests/integration/loop_thread.h"
#include "tests/support/faulty_disk.h"
#include "tests/support/temporary_folder.h"

namespace callboard {
namespace {

using namespace std::chrono_literals;
using tests::FaultyDisk;
using tests::LoopThread;

class SqliteStoreThread : public testing::Test {
 protected:
  ~SqliteStoreThread() override {
    thread_.Call([this] { store_.reset(); });
  }
  void Open() {
    const absl::Status opened = thread_.Call([this] {
      store_.reset();
      server::SqliteStoreConfig config;
      config.path = folder_.path() + "/callboard.db";
      config.new_cluster_id = "c1";
      auto store = server::SqliteStore::Open(thread_.loop(),
                                             core::MakeThreadOffload(thread_.loop()), config);
      if (store.ok()) store_ = *std::move(store);
      return store.status();
    });
    ASSERT_TRUE(opened.ok()) << opened;
  }
  size_t CountLoaded() {
    return thread_.Call([this] {
      size_t count = 0;
      EXPECT_TRUE(store_->Load([&](const server::StoreRecord&) { ++count; }).ok());
      return count;
    });
  }
  // What one who waits for a change of that key is told.
  absl::Status Put(const std::string& key) {
    std::promise<absl::Status> told;
    thread_.Call([&] {
      store_->WhenDurable(store_->Append({{key, "v"}}),
                          [&](const absl::Status& status) { told.set_value(status); });
    });
    return told.get_future().get();
  }
  bool Eventually(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!thread_.Call(condition)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }

  tests::TemporaryFolder folder_;
  LoopThread thread_;
  std::unique_ptr<server::SqliteStore> store_;
};

TEST_F(SqliteStoreThread, TwoThousandWaitersAreToldInOrderByFewerCommits) {
  Open();
  std::vector<uint64_t> told;
  std::promise<void> all;
  for (int i = 0; i < 2'000; ++i) {
    thread_.loop().Post([&, i] {
      const uint64_t position = store_->Append({{fmt::format("event/{:05}", i), "e"}});
      store_->WhenDurable(position, [&, position](const absl::Status& status) {
        if (status.ok()) told.push_back(position);
        if (position == 2'000) all.set_value();
      });
    });
  }
  all.get_future().get();
  const auto gauges = thread_.Call([this] { return store_->gauges(); });
  EXPECT_LT(gauges.commits, 2'000u) << "commits are shared";
  EXPECT_GT(gauges.last_commit, absl::ZeroDuration());
  ASSERT_EQ(told.size(), 2'000u);
  for (size_t i = 0; i < told.size(); ++i) ASSERT_EQ(told[i], i + 1);
  Open();
  EXPECT_EQ(CountLoaded(), 2'000u);
}

TEST_F(SqliteStoreThread, WhatNobodyWaitsForIsWrittenSoon) {
  Open();
  thread_.Call([this] { return store_->Append({{"a", "1"}}); });
  EXPECT_TRUE(Eventually([this] { return store_->gauges().commits == 1; }));
}

TEST_F(SqliteStoreThread, AStoreThatIsDestroyedTellsNobodyAndKeepsWhatItTold) {
  std::atomic<size_t> told = 0;
  for (int round = 0; round < 5; ++round) {
    Open();
    EXPECT_GE(CountLoaded(), told.load());
    Open();
    thread_.Call([&] {
      for (int i = 0; i < 500; ++i) {
        const uint64_t position = store_->Append({{fmt::format("{}/{}", round, i), "v"}});
        store_->WhenDurable(position, [&](const absl::Status& status) {
          if (status.ok()) ++told;
        });
      }
    });
    if (round % 2 == 1) {
      EXPECT_TRUE(Put(fmt::format("{}/last", round)).ok());
    }
    thread_.Call([this] { store_.reset(); });
    const size_t told_by_then = told;
    thread_.Call([] {});  // after all that its thread had posted
    EXPECT_EQ(told, told_by_then);
  }
  EXPECT_GE(told, 1'000u);
}

TEST_F(SqliteStoreThread, ReadingBesideWritingSeesEveryAppendBeforeIt) {
  Open();
  std::promise<size_t> found;
  thread_.Call([&] {
    for (int i = 0; i < 1'000; ++i) {
      const uint64_t position = store_->Append({{fmt::format("{:05}", i), "v"}});
      if (i == 300) store_->WhenDurable(position, [](const absl::Status&) {});
    }
  });
  thread_.Call([&] {
    store_->Append({{"01000", "v"}});
    store_->Read("00500", "x", 10'000,
                 [&](const auto& records) { found.set_value(records->size()); });
    store_->Append({{"01001", "v"}});
  });
  EXPECT_EQ(found.get_future().get(), 501u);
}

TEST_F(SqliteStoreThread, AFullDiskIsToldAndForgottenWhenThereIsRoom) {
  FaultyDisk disk;
  Open();
  ASSERT_TRUE(Put("a").ok());
  disk.FailWrites(SQLITE_FULL);
  EXPECT_THAT(core::Message(Put("b")), testing::HasSubstr("its disk is full"));
  EXPECT_FALSE(thread_.Call([this] { return store_->status(); }).ok());
  disk.FailWrites(SQLITE_OK);
  EXPECT_TRUE(Eventually([this] { return store_->status().ok(); }));
  EXPECT_TRUE(Put("c").ok());
  Open();
  EXPECT_EQ(CountLoaded(), 3u) << "b too, which failed at first";
  thread_.Call([this] { store_.reset(); });
}

}  // namespace
}  // namespace callboard
