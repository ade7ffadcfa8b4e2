// A store without a disk: everything is durable at once and gone with the process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/runtime/event_loop.h"
#include "server/flows/store.h"

namespace callboard::server {

// Loop thread only. The term is the wall-clock time of the start in milliseconds, so it grows with
// each start while the clock does. Holds one value per live key: bounded by who appends.
class MemoryStore final : public Store {
 public:
  MemoryStore(core::EventLoop& loop, std::string cluster_id);

  uint64_t term() const override { return term_; }
  const std::string& cluster_id() const override { return cluster_id_; }
  uint64_t Append(std::vector<StoreRecord> records) override;
  void WhenDurable(uint64_t position, absl::AnyInvocable<void(absl::Status)> callback) override;
  absl::Status Load(absl::AnyInvocable<void(const StoreRecord&)> visit) override;
  void Read(std::string from, std::string to, size_t limit,
            absl::AnyInvocable<void(absl::StatusOr<std::vector<StoreRecord>>)> callback) override;
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  const uint64_t term_;
  const std::string cluster_id_;
  std::map<std::string, std::string> records_;
  uint64_t position_ = 0;
};

}  // namespace callboard::server
