// Where bodies too large for memory wait: the port, and the builder that spills into it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend_agent/payload.h"

namespace callboard::agent {

// A spool file being written.
class SpoolWriter {
 public:
  virtual ~SpoolWriter() = default;
  // ResourceExhausted: the spool's bound is reached or the disk is full.
  virtual absl::Status Append(std::string_view bytes) = 0;
  // Ends writing. Nothing is appended afterwards.
  virtual std::shared_ptr<SpoolFile> Finish() = 0;
};

// The folder of spool files. Bounded [1 GiB]. Loop thread only. Implementations:
// storage/posix_spool (product), MemorySpool in tests/support (tests and simulation).
class Spool {
 public:
  virtual ~Spool() = default;
  virtual absl::StatusOr<std::unique_ptr<SpoolWriter>> Create() = 0;
  // A kept file of an earlier run; NotFound if it is gone.
  virtual absl::StatusOr<std::shared_ptr<SpoolFile>> OpenKept(const std::string& name) = 0;
  virtual void Remove(const std::string& name) = 0;
  // At start: removes what earlier runs left behind, except the files that the journal names.
  virtual void RemoveAllBut(const std::vector<std::string>& names) = 0;
  virtual uint64_t bytes() const = 0;
  virtual uint64_t bytes_max() const = 0;
};

// Collects one message: in memory up to kInlineBodyMax, then in the spool. Raw line feeds become
// spaces on the way (JSON text in one line).
class PayloadBuilder {
 public:
  PayloadBuilder(Spool& spool, uint64_t bytes_max) : spool_(spool), bytes_max_(bytes_max) {}

  // ResourceExhausted names both sizes when the message grows beyond bytes_max, or says why the
  // spool took no more; what was collected is dropped then, further bytes are only counted, and
  // every Append says the same until Take().
  absl::Status Append(std::string_view bytes);
  uint64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // The message; the builder is empty afterwards and may be used again.
  Payload Take();

 private:
  Spool& spool_;
  uint64_t bytes_max_;
  uint64_t size_ = 0;
  absl::Status failure_;
  std::string memory_;
  std::unique_ptr<SpoolWriter> file_;
};

}  // namespace callboard::agent
