// A store on a real file whose disk works only when the test lets it, in virtual time.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/strings.h"
#include "server/store/sqlite_store.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/virtual_loop.h"

namespace callboard::tests {

// The disk's thread: does a piece of work when asked to.
class SteppedDisk {
 public:
  explicit SteppedDisk(core::EventLoop& loop) : loop_(loop) {}

  // What a store gets; it may not outlive this object.
  std::unique_ptr<core::Offload> MakeOffload() { return std::make_unique<Queue>(*this); }

  size_t waiting() const { return work_.size(); }
  bool Step() {
    if (work_.empty()) return false;
    auto [work, done] = std::move(work_.front());
    work_.pop_front();
    work();
    loop_.Post(std::move(done));
    return true;
  }

 private:
  class Queue final : public core::Offload {
   public:
    explicit Queue(SteppedDisk& disk) : disk_(disk) {}
    ~Queue() override { disk_.work_.clear(); }
    void Run(absl::AnyInvocable<void()> work, absl::AnyInvocable<void()> done) override {
      disk_.work_.emplace_back(std::move(work), std::move(done));
    }

   private:
    SteppedDisk& disk_;
  };

  core::EventLoop& loop_;
  std::deque<std::pair<absl::AnyInvocable<void()>, absl::AnyInvocable<void()>>> work_;
};

class StoreTest : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/callboard.db"; }

  absl::Status TryOpen() {
    store_ = nullptr;
    auto opened = server::SqliteStore::Open(loop_, disk_.MakeOffload(), config_);
    if (!opened.ok()) return opened.status();
    store_ = *std::move(opened);
    return absl::OkStatus();
  }
  void Open() {
    const absl::Status opened = TryOpen();
    ASSERT_TRUE(opened.ok()) << opened;
  }
  void SetUp() override {
    config_.path = path();
    config_.new_cluster_id = "c1a57e7";
  }

  uint64_t Put(const std::string& key, const std::string& value) {
    return store_->Append({{key, value}});
  }
  // Notes "name: ok" or "name: <sentence>" in told_ when it is durable.
  void Note(const std::string& name, uint64_t position) {
    store_->WhenDurable(position, [this, name](const absl::Status& status) {
      told_.push_back(status.ok() ? name + ": ok"
                                  : fmt::format("{}: {}", name, core::Message(status)));
    });
  }
  // Lets disk and loop work until neither has anything due.
  void Settle() {
    do {
      loop_.RunReady();
    } while (disk_.Step());
  }
  void PutDurably(const std::string& key, const std::string& value) {
    store_->WhenDurable(Put(key, value),
                        [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
    Settle();
  }
  // "key=value key=value" as loaded at the next start.
  std::string Reloaded() {
    Open();
    std::string all;
    const absl::Status loaded = store_->Load([&](const server::StoreRecord& record) {
      all += fmt::format("{}{}={}", all.empty() ? "" : " ", record.key, record.value);
    });
    EXPECT_TRUE(loaded.ok()) << loaded;
    return all;
  }
  std::string Read(const std::string& from, const std::string& to, size_t limit = 100) {
    std::string all = "nothing yet";
    store_->Read(from, to, limit, [&](absl::StatusOr<std::vector<server::StoreRecord>> found) {
      all = found.ok() ? "" : std::string(core::Message(found.status()));
      for (const server::StoreRecord& record : found.value_or(std::vector<server::StoreRecord>())) {
        all += fmt::format("{}{}={}", all.empty() ? "" : " ", record.key, record.value);
      }
    });
    Settle();
    return all;
  }

  TemporaryFolder folder_;
  VirtualLoop loop_;
  SteppedDisk disk_{loop_};
  server::SqliteStoreConfig config_;
  std::unique_ptr<server::SqliteStore> store_;
  std::vector<std::string> told_;
};

}  // namespace callboard::tests
