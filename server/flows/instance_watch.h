// WatchInstances: the seats as they are, then each change.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "server/flows/plane.h"
#include "server/flows/ready_queue.h"

namespace callboard::server {

// Adds to a row of the seat registry what other tables know: its tools, and what it works on.
void CompleteRow(const Plane& plane, v1::InstanceRow& row);

class InstanceWatch;

// Who watches. Loop thread; outlived by nothing it holds: a watch that is destroyed leaves by
// itself.
class InstanceWatchers {
 public:
  explicit InstanceWatchers(Plane& plane) : plane_(plane) {}
  ~InstanceWatchers();
  // ResourceExhausted ends the source at once when kWatchersMax watch already.
  std::unique_ptr<core::EventSource<v1::InstanceEvent>> Open(v1::ListInstancesRequest request);
  void OnSeatChanged(const std::string& seat_id);

 private:
  friend class InstanceWatch;
  static constexpr size_t kWatchersMax = 10'000;

  Plane& plane_;
  std::set<std::pair<uint64_t, InstanceWatch*>> watches_;  // in the order they came
  uint64_t next_ = 1;
};

// Owned by the watcher. Changes of one seat are coalesced until they are asked for, so memory is
// bounded by the number of seats.
class InstanceWatch final : public PulledSource<v1::InstanceEvent> {
 public:
  InstanceWatch(InstanceWatchers& watchers, Plane& plane, uint64_t number,
                v1::ListInstancesRequest request);
  ~InstanceWatch() override;

  void OnSeatChanged(const std::string& seat_id);
  void PlaneGone();

 protected:
  void OnDemand() override {}
  std::optional<absl::StatusOr<v1::InstanceEvent>> Take() override;

 private:
  InstanceWatchers* watchers_;  // nullptr: gone
  Plane& plane_;
  const uint64_t number_;
  const v1::ListInstancesRequest request_;
  std::set<std::string> changed_;
  std::set<std::string> shown_;
};

}  // namespace callboard::server
