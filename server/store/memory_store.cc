// Implementation of MemoryStore.
#include "server/store/memory_store.h"

#include <utility>

namespace callboard::server {

MemoryStore::MemoryStore(core::EventLoop& loop, std::string cluster_id)
    : term_(static_cast<uint64_t>(absl::ToUnixMillis(loop.WallNow()))),
      cluster_id_(std::move(cluster_id)) {}

uint64_t MemoryStore::Append(std::vector<StoreRecord> records) {
  for (StoreRecord& record : records) {
    if (record.value.empty()) {
      records_.erase(record.key);
    } else {
      records_[record.key] = std::move(record.value);
    }
    ++position_;
  }
  return position_;
}

void MemoryStore::WhenDurable(uint64_t position, absl::AnyInvocable<void(absl::Status)> callback) {
  if (position > position_) {
    callback(absl::InvalidArgumentError("asked for a position that was never appended"));
    return;
  }
  callback(absl::OkStatus());
}

absl::Status MemoryStore::Load(absl::AnyInvocable<void(const StoreRecord&)> visit) {
  for (const auto& [key, value] : records_) visit({key, value});
  return absl::OkStatus();
}

void MemoryStore::Read(
    std::string from, std::string to, size_t limit,
    absl::AnyInvocable<void(absl::StatusOr<std::vector<StoreRecord>>)> callback) {
  std::vector<StoreRecord> found;
  for (auto at = records_.lower_bound(from);
       at != records_.end() && at->first < to && found.size() < limit; ++at) {
    found.push_back({at->first, at->second});
  }
  callback(std::move(found));
}

}  // namespace callboard::server
