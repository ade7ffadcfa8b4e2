// Port of the log behind the control plane's tables: append, durable watermark, load at start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace callboard::server {

// One change of one record: the record's whole new value under its key ("session/<id>",
// "stream/<session>/<stream>/<n>"); an empty value erases the key.
struct StoreRecord {
  std::string key;
  std::string value;
};

// Loop thread only. Appends are durable in order; the watermark says how far.
class Store {
 public:
  virtual ~Store() = default;

  // The term of this start or take-over: greater than every term this store ever gave.
  virtual uint64_t term() const = 0;
  // Identity of the whole installation, the same at every start on this store.
  virtual const std::string& cluster_id() const = 0;

  // Appends in order and returns the position of the last record.
  virtual uint64_t Append(std::vector<StoreRecord> records) = 0;
  // Runs `callback` once everything up to `position` is durable (at once and inline if it is), or
  // with the store's error.
  virtual void WhenDurable(uint64_t position, absl::AnyInvocable<void(absl::Status)> callback) = 0;
  // Every live record, once, at start; keys in ascending order.
  virtual absl::Status Load(absl::AnyInvocable<void(const StoreRecord&)> visit) = 0;
};

}  // namespace callboard::server
