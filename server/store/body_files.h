// Bodies as files in a folder, one each, worked on by a thread of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/runtime/lifetime.h"
#include "core/runtime/offload.h"
#include "server/flows/body_store.h"

namespace callboard::server {

struct BodyFilesConfig {
  // Made if it is not there. Belongs to one process at a time, which whoever opens it sees to.
  std::string folder;
  // What is whole is on the disk itself, and not only with the system.
  bool sync_full = false;
};

// Loop thread. A part is <call id>.part, what is whole <call id>.body: the one becomes the other by
// its name, so that a kill leaves either. Files are open only while something is done to them. Each
// error says which file, why and what helps. Destruction waits for what the thread is at and drops
// the rest, as a kill would.
class BodyFiles final : public BodyStore {
 public:
  // `disk` runs this folder's work alone, in order. FailedPrecondition: the folder cannot be made.
  // Blocks: for the start of a program only.
  static absl::StatusOr<std::unique_ptr<BodyFiles>> Open(std::unique_ptr<core::Offload> disk,
                                                         BodyFilesConfig config);

  // Blocks, as Open.
  absl::StatusOr<std::vector<Whole>> Load() override;
  void Append(const CallId& call, uint64_t offset, std::string bytes, Done done) override;
  void Seal(const CallId& call, uint64_t size, Done done) override;
  void Read(const CallId& call, uint64_t offset, size_t bytes_max,
            absl::AnyInvocable<void(absl::StatusOr<std::string>)> callback) override;
  void Remove(const CallId& call) override;

 private:
  BodyFiles(std::unique_ptr<core::Offload> disk, BodyFilesConfig config);

  // Runs `work` on the disk's thread, then `told` with its result here.
  template <class Work, class Told>
  void OnDisk(Work work, Told told);

  const std::shared_ptr<const BodyFilesConfig> config_;  // the thread's, too
  core::Lifetime lifetime_;
  std::unique_ptr<core::Offload> disk_;  // first to go: joins its thread
};

}  // namespace callboard::server
