// Port of the log behind the control plane's tables: append, durable watermark, load at start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/telemetry/metrics_text.h"

namespace callboard::server {

// One change of one record: the record's whole new value under its key; an empty value erases the
// key. Which keys there are and what they hold is said in protos/callboard/v1/store.proto. Values
// are small: bodies over 64 KiB are kept by reference.
struct StoreRecord {
  std::string key;
  std::string value;
};

// Loop thread only. Appends are durable in order; the watermark says how far. A store that fails
// while running (disk full, read-only) says so by status() and by the callbacks of WhenDurable; it
// keeps what was appended, up to a bound of its own, and writes it when it can again.
class Store {
 public:
  virtual ~Store() = default;

  // The term of this start or take-over: greater than every term this store ever gave.
  virtual uint64_t term() const = 0;
  // Identity of the whole installation, the same at every start on this store.
  virtual const std::string& cluster_id() const = 0;

  // Appends in order and returns the position of the last record. The records of one append become
  // durable together.
  virtual uint64_t Append(std::vector<StoreRecord> records) = 0;
  // Runs `callback` once everything up to `position` is durable (at once and inline if it is), or
  // with the store's error: at once while it fails, and for all that wait when it begins to fail.
  virtual void WhenDurable(uint64_t position, absl::AnyInvocable<void(absl::Status)> callback) = 0;
  // Every live record, once, at start; keys in ascending order.
  virtual absl::Status Load(absl::AnyInvocable<void(const StoreRecord&)> visit) = 0;
  // The live records with from <= key < to, ascending, at most `limit`, all appends so far
  // included. For the replay of what has left memory. `callback` runs inline or later, exactly once
  // unless the store is destroyed first.
  virtual void Read(
      std::string from, std::string to, size_t limit,
      absl::AnyInvocable<void(absl::StatusOr<std::vector<StoreRecord>>)> callback) = 0;
  // OK, or why nothing becomes durable at present.
  virtual absl::Status status() const = 0;
  // Its own figures, if it has any.
  virtual void WriteMetrics(core::MetricsText&) const {}
};

}  // namespace callboard::server
