// Port of the files behind kept outcomes: large bodies, written in order and read in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/domain/ids.h"

namespace callboard::server {

// One body per call. Until it is sealed it is a part, of which a kill leaves nothing; from then on
// it is whole, and as durable as what the store has. What is asked of one body happens in the order
// of the asking. Loop thread only; callbacks run inline or later, exactly once unless this is
// destroyed first. It counts and bounds nothing: whoever writes does.
class BodyStore {
 public:
  struct Whole {
    CallId call;
    uint64_t bytes = 0;
  };
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~BodyStore() = default;

  // At start, before anything else: what is whole, in no order. Parts are gone.
  virtual absl::StatusOr<std::vector<Whole>> Load() = 0;
  // The part goes on at `offset`: what it has behind that is forgotten. FailedPrecondition if it
  // has less; Unavailable if it cannot be written at present.
  virtual void Append(const CallId& call, uint64_t offset, std::string bytes, Done done) = 0;
  // The part, which has `size` bytes, is all.
  virtual void Seal(const CallId& call, uint64_t size, Done done) = 0;
  // Of a whole body up to `bytes_max` bytes from `offset` on. NotFound: it is not there.
  virtual void Read(const CallId& call, uint64_t offset, size_t bytes_max,
                    absl::AnyInvocable<void(absl::StatusOr<std::string>)> callback) = 0;
  // Whatever there is of it goes.
  virtual void Remove(const CallId& call) = 0;
};

}  // namespace callboard::server
