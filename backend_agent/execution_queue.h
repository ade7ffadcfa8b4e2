// Who goes next at a seat: lanes with a bound on running and waiting calls, fair between
// principals.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "callboard/v1/types.pb.h"

namespace callboard::agent {

// Beyond a depth a call is rejected (queue full); beyond named_lanes_max too.
struct QueueLimits {
  size_t main_in_flight = 1;  // the DCC's main thread, and each named lane
  size_t main_depth = 64;
  size_t free_in_flight = 8;
  size_t free_depth = 256;
  size_t named_lanes_max = 16;
};

struct LaneId {
  v1::Lane lane = v1::MAIN;
  std::string name;  // only of NAMED
  auto operator<=>(const LaneId&) const = default;
};

// A plain table: no time, no calls out. Order within a lane: higher priority first; then round
// robin between fair keys, within a key round robin between sessions, within a session first come
// first served. Loop thread only.
class ExecutionQueue {
 public:
  struct Entry {
    std::string call_id;
    LaneId lane;
    int priority = 0;
    std::string fair_key;
    std::string session_id;
    absl::Time deadline = absl::InfiniteFuture();
  };

  explicit ExecutionQueue(QueueLimits limits) : limits_(limits) {}

  // False: the lane is full.
  bool Push(Entry entry);
  // Takes a waiting call out; false if none of that id waits.
  bool Remove(const std::string& call_id);
  // The next call that may run now, of any lane; its slot is taken until Release(its lane).
  std::optional<std::string> Take();
  void Release(const LaneId& lane);

  // While closed nothing is taken from any lane, or from the main lane and the named ones.
  void SetOpen(bool open) { open_ = open; }
  void SetMainOpen(bool open) { main_open_ = open; }

  // The waiting calls whose deadline is not after `now`, taken out, in order of deadline.
  std::vector<std::string> TakeExpired(absl::Time now);
  absl::Time next_deadline() const;

  // Calls `tell` for each waiting call whose place has changed since it was last told and is not 0:
  // `ahead` calls (waiting and running) go first.
  void TellPlaces(absl::FunctionRef<void(const std::string& call_id, uint32_t ahead)> tell);

  size_t waiting() const { return waiting_.size(); }
  std::vector<std::string> waiting_ids() const;

 private:
  struct Waiting {
    std::string call_id;
    absl::Time deadline;
    uint32_t told_ahead = 0;
  };
  struct SessionGroup {
    std::string session_id;
    std::deque<Waiting> calls;
  };
  struct FairGroup {
    std::string fair_key;
    std::list<SessionGroup> sessions;  // front: whose turn it is
  };
  using Level = std::list<FairGroup>;  // front: whose turn it is
  struct Lane {
    size_t in_flight = 0;
    size_t depth = 0;
    std::map<int, Level, std::greater<>> levels;  // by priority
  };
  struct Place {
    LaneId lane;
    int priority;
    std::string fair_key;
    std::string session_id;
    absl::Time deadline;
  };

  size_t in_flight_max(const LaneId& id) const {
    return id.lane == v1::FREE ? limits_.free_in_flight : limits_.main_in_flight;
  }
  bool MayRun(const LaneId& id, const Lane& lane) const;
  static std::string TakeFront(Lane& lane);
  void DropIfIdle(const LaneId& id);

  QueueLimits limits_;
  bool open_ = true;
  bool main_open_ = true;
  std::map<LaneId, Lane> lanes_;
  std::map<std::string, Place> waiting_;
  std::multimap<absl::Time, std::string> deadlines_;
};

}  // namespace callboard::agent
