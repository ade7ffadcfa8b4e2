// A store that takes its time, fails, and loses at a kill what was not durable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/event_loop.h"
#include "server/domain/ids.h"
#include "server/flows/store.h"

namespace callboard::sim {

// What outlives the processes of the control plane. `delay` and `failing` may change at any time.
struct SimDisk {
  std::map<std::string, std::string> records;
  uint64_t last_term = 0;
  absl::Duration delay;                           // from an append to its durability
  bool failing = false;                           // nothing becomes durable
  absl::Time sound_since = absl::InfinitePast();  // when it last ceased to fail
  std::map<server::CallId, std::string> bodies;   // of the store of bodies, whole
  // Of these the store of bodies has had all, or was told that they are not wanted.
  std::set<server::CallId> bodies_done;
  size_t torn_after = 0;  // so many appends that were not durable reach the disk at a kill
  // Runs for each record that becomes durable.
  absl::AnyInvocable<void(const server::StoreRecord&)> on_durable;
};

// One per process of the control plane. Destroying it is what a kill is to the process: of what was
// not durable a part may have reached the disk, in order. Loop thread only.
class SimStore final : public server::Store {
 public:
  SimStore(core::EventLoop& loop, SimDisk& disk, std::string cluster_id)
      : loop_(loop), disk_(disk), cluster_id_(std::move(cluster_id)), view_(disk.records) {
    const auto now = static_cast<uint64_t>(absl::ToUnixMillis(loop.WallNow()));
    disk.last_term = term_ = std::max(now, disk.last_term + 1);
  }

  ~SimStore() override {
    if (disk_.failing) return;
    for (size_t i = 0; i < std::min(disk_.torn_after, marks_.size()); ++i) {
      while (durable_ < marks_[i].position) Write();
    }
  }

  uint64_t term() const override { return term_; }
  const std::string& cluster_id() const override { return cluster_id_; }

  uint64_t Append(std::vector<server::StoreRecord> records) override {
    for (server::StoreRecord& record : records) {
      Apply(view_, record);
      ++position_;
      pending_.push_back(std::move(record));
    }
    last_due_ = std::max(last_due_, loop_.Now() + disk_.delay);
    marks_.push_back({position_, last_due_});
    CatchUp();
    Arm();
    return position_;
  }
  void WhenDurable(uint64_t position, absl::AnyInvocable<void(absl::Status)> callback) override {
    if (position <= durable_) return callback(absl::OkStatus());
    if (disk_.failing) return callback(status());
    waiting_.emplace_back(position, std::move(callback));
    Arm();
  }
  absl::Status Load(absl::AnyInvocable<void(const server::StoreRecord&)> visit) override {
    for (const auto& [key, value] : disk_.records) visit({key, value});
    return absl::OkStatus();
  }
  void Read(std::string from, std::string to, size_t limit,
            absl::AnyInvocable<void(absl::StatusOr<std::vector<server::StoreRecord>>)> callback)
      override {
    std::vector<server::StoreRecord> found;
    for (auto at = view_.lower_bound(from);
         at != view_.end() && at->first < to && found.size() < limit; ++at) {
      found.push_back({at->first, at->second});
    }
    if (disk_.delay == absl::ZeroDuration()) return callback(std::move(found));
    while (!reads_.empty() && !reads_.front().pending()) reads_.pop_front();
    reads_.push_back(loop_.After(
        disk_.delay, [found = std::move(found), callback = std::move(callback)]() mutable {
          callback(std::move(found));
        }));
  }
  absl::Status status() const override {
    return disk_.failing ? absl::UnavailableError("the disk is full") : absl::OkStatus();
  }

  // The disk has begun to fail or to work again.
  void OnDiskChanged() {
    if (disk_.failing) {
      for (auto& [position, callback] : std::exchange(waiting_, {})) callback(status());
    } else {
      // What was shown without it must not be lost any more.
      for (Mark& mark : marks_) mark.due = loop_.Now();
      last_due_ = loop_.Now();
      Arm();
    }
  }

 private:
  using Waiting = std::pair<uint64_t, absl::AnyInvocable<void(absl::Status)>>;
  struct Mark {
    uint64_t position;
    absl::Time due;
  };

  static void Apply(std::map<std::string, std::string>& records,
                    const server::StoreRecord& record) {
    if (record.value.empty()) {
      records.erase(record.key);
    } else {
      records[record.key] = record.value;
    }
  }

  // What is due reaches the disk.
  void CatchUp() {
    if (disk_.failing) return;
    uint64_t reached = durable_;
    while (!marks_.empty() && marks_.front().due <= loop_.Now()) {
      reached = marks_.front().position;
      marks_.pop_front();
    }
    while (durable_ < reached) Write();
    std::deque<Waiting> done;
    while (!waiting_.empty() && waiting_.front().first <= durable_) {
      done.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    for (auto& [position, callback] : done) callback(absl::OkStatus());
  }

  void Write() {
    const server::StoreRecord record = std::move(pending_.front());
    pending_.pop_front();
    ++durable_;
    Apply(disk_.records, record);
    if (disk_.on_durable != nullptr) disk_.on_durable(record);
  }

  void Arm() {
    if (timer_.pending() || disk_.failing || marks_.empty()) return;
    timer_ = loop_.At(marks_.front().due, [this] {
      CatchUp();
      Arm();
    });
  }

  core::EventLoop& loop_;
  SimDisk& disk_;
  uint64_t term_ = 0;
  const std::string cluster_id_;
  std::map<std::string, std::string> view_;  // all appends so far
  std::deque<server::StoreRecord> pending_;
  std::deque<Mark> marks_;
  std::deque<Waiting> waiting_;
  uint64_t position_ = 0;
  uint64_t durable_ = 0;
  absl::Time last_due_ = absl::InfinitePast();
  core::Timer timer_;
  std::deque<core::Timer> reads_;
};

}  // namespace callboard::sim
