// Bodies without a disk: gone with the process.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/flows/body_store.h"

namespace callboard::server {

// For the store that keeps nothing either. Loop thread only; bounded by whoever writes.
class MemoryBodies final : public BodyStore {
 public:
  absl::StatusOr<std::vector<Whole>> Load() override { return std::vector<Whole>(); }
  void Append(const CallId& call, uint64_t offset, std::string bytes, Done done) override;
  void Seal(const CallId& call, uint64_t size, Done done) override;
  void Read(const CallId& call, uint64_t offset, size_t bytes_max,
            absl::AnyInvocable<void(absl::StatusOr<std::string>)> callback) override;
  void Remove(const CallId& call) override;

 private:
  std::map<CallId, std::string> parts_;
  std::map<CallId, std::string> whole_;
};

}  // namespace callboard::server
