// Implementation of MemoryBodies.
#include "server/store/memory_bodies.h"

#include <algorithm>
#include <utility>

#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::server {

void MemoryBodies::Append(const CallId& call, uint64_t offset, std::string bytes, Done done) {
  std::string& part = parts_[call];
  if (part.size() < offset) {
    return done(core::MakeError(
        absl::StatusCode::kFailedPrecondition,
        fmt::format("the part of {} ends at {}, not at {}", call.hex(), part.size(), offset)));
  }
  part.resize(offset);
  part.append(bytes);
  done(absl::OkStatus());
}

void MemoryBodies::Seal(const CallId& call, uint64_t size, Done done) {
  auto part = parts_.find(call);
  if (part == parts_.end() || part->second.size() != size) {
    return done(core::MakeError(absl::StatusCode::kFailedPrecondition,
                                fmt::format("{} does not have {} bytes", call.hex(), size)));
  }
  whole_[call] = std::move(part->second);
  parts_.erase(part);
  done(absl::OkStatus());
}

void MemoryBodies::Read(const CallId& call, uint64_t offset, size_t bytes_max,
                        absl::AnyInvocable<void(absl::StatusOr<std::string>)> callback) {
  auto body = whole_.find(call);
  if (body == whole_.end()) {
    return callback(
        core::MakeError(absl::StatusCode::kNotFound, fmt::format("{} has no body", call.hex())));
  }
  callback(body->second.substr(std::min<uint64_t>(offset, body->second.size()), bytes_max));
}

void MemoryBodies::Remove(const CallId& call) {
  parts_.erase(call);
  whole_.erase(call);
}

}  // namespace callboard::server
