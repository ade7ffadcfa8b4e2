// A reliable stream of bytes with its kind of transport erased: TCP, later TLS, or in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace callboard::net {

// Loop thread only. At most one Read and one Write are outstanding. Callbacks never run from
// inside Read or Write; they run exactly once unless the stream is destroyed first, after which
// none runs. Close() makes outstanding operations end with Cancelled. DeadlineExceeded: the peer
// acknowledged nothing for too long, and the stream is broken.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Reads at least one byte into `buffer`, which stays valid until the callback. OutOfRange: the
  // peer ended its side in order. Unavailable: reset or broken.
  virtual void Read(std::span<char> buffer,
                    absl::AnyInvocable<void(absl::StatusOr<size_t>)> callback) = 0;

  // Writes all pieces in order (one gathered write); what they point to stays valid until the
  // callback. FailedPrecondition: the stream was broken before any byte of this write was taken.
  // Unavailable: it broke later, some bytes may have reached the peer.
  virtual void Write(std::vector<std::string_view> pieces,
                     absl::AnyInvocable<void(absl::Status)> callback) = 0;

  virtual void Close() = 0;

  // "127.0.0.1:41234", for logs.
  virtual std::string PeerName() const = 0;
};

// Accepts streams until destroyed. Loop thread only.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Start(absl::AnyInvocable<void(std::unique_ptr<ByteStream>)> on_accept) = 0;
};

// Opens streams to one fixed place. Destroying the connector drops connects under way.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual void Connect(
      absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>)> callback) = 0;
};

}  // namespace callboard::net
