// A stream of events that its consumer pulls one by one, so that a slow consumer is back-pressure.
#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace callboard::core {

// Contract: at most one Next() is outstanding. Asking for the next event says that the former one
// has been consumed (written to its reader), which is what gives a sender's window back. The
// callback comes later or inline. An error status ends the source: OutOfRange is the orderly end.
// Destroying the source means the consumer is gone; its callback is then never called. Loop thread
// only.
template <class T>
class EventSource {
 public:
  virtual ~EventSource() = default;
  virtual void Next(absl::AnyInvocable<void(absl::StatusOr<T>)> callback) = 0;
};

}  // namespace callboard::core
