// A store in memory that takes its time: nothing is durable before the delay of the moment is over.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/event_loop.h"
#include "server/flows/store.h"

namespace callboard::sim {

// One per process of the control plane; nothing survives it but the growing term. `delay` outlives
// it and may change at any time.
class SimStore final : public server::Store {
 public:
  SimStore(core::EventLoop& loop, const absl::Duration& delay, std::string cluster_id)
      : loop_(loop),
        delay_(delay),
        term_(static_cast<uint64_t>(absl::ToUnixMillis(loop.WallNow()))),
        cluster_id_(std::move(cluster_id)) {}

  uint64_t term() const override { return term_; }
  const std::string& cluster_id() const override { return cluster_id_; }

  uint64_t Append(std::vector<server::StoreRecord> records) override {
    position_ += records.size();
    return position_;
  }
  void WhenDurable(uint64_t, absl::AnyInvocable<void(absl::Status)> callback) override {
    while (!timers_.empty() && !timers_.front().pending()) timers_.pop_front();
    if (delay_ == absl::ZeroDuration() && timers_.empty()) return callback(absl::OkStatus());
    last_due_ = std::max(last_due_, loop_.Now() + delay_);
    timers_.push_back(loop_.At(
        last_due_, [callback = std::move(callback)]() mutable { callback(absl::OkStatus()); }));
  }
  absl::Status Load(absl::AnyInvocable<void(const server::StoreRecord&)>) override {
    return absl::OkStatus();
  }
  void Read(std::string, std::string, size_t,
            absl::AnyInvocable<void(absl::StatusOr<std::vector<server::StoreRecord>>)> callback)
      override {
    callback(std::vector<server::StoreRecord>());
  }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  core::EventLoop& loop_;
  const absl::Duration& delay_;
  const uint64_t term_;
  const std::string cluster_id_;
  uint64_t position_ = 0;
  absl::Time last_due_ = absl::InfinitePast();
  std::deque<core::Timer> timers_;
};

}  // namespace callboard::sim
