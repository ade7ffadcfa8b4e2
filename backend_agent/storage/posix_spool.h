// The spool as a folder of mapped files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend_agent/spool.h"

namespace callboard::agent {

// One folder, used by one agent (the lock of the journal guards the state folder). Loop thread
// only. Files count against the bound from their first byte until they are deleted; those of an
// earlier run count until RemoveAllBut() has been called. Files and writers may outlive the spool.
class PosixSpool final : public Spool {
 public:
  static constexpr uint64_t kBytesMax = 1ull << 30;

  // Creates the folder if it is missing.
  static absl::StatusOr<std::unique_ptr<PosixSpool>> Open(std::string folder,
                                                          uint64_t bytes_max = kBytesMax);
  ~PosixSpool() override;

  absl::StatusOr<std::unique_ptr<SpoolWriter>> Create() override;
  absl::StatusOr<std::shared_ptr<SpoolFile>> OpenKept(const std::string& name) override;
  void Remove(const std::string& name) override;
  void RemoveAllBut(const std::vector<std::string>& names) override;
  uint64_t bytes() const override;
  uint64_t bytes_max() const override;

  struct Folder;

 private:
  explicit PosixSpool(std::shared_ptr<Folder> folder);

  std::shared_ptr<Folder> folder_;
};

}  // namespace callboard::agent
