// Every seat the control plane knows: identity, incarnation, presence, health, how it is named.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "callboard/v1/agent.pb.h"
#include "callboard/v1/control.pb.h"

namespace callboard::server {

// How a seat can be reached now.
enum class Presence {
  kLinked,    // its agent's link is up
  kDetached,  // the link is cut; calls wait for it to come back
  kStale,     // detached for longer than stale_after
  kDead,      // detached for longer than dead_after, or its DCC is gone
};

struct SeatRecord {
  v1::SeatState state;
  std::string agent_id;
  std::string boot_id;  // of the agent's run that told of it last; empty: not known
  std::string host;
  Presence presence = Presence::kLinked;
  absl::Time last_seen;
  absl::Time detached_at;                     // set unless kLinked
  std::map<std::string, std::string> labels;  // agent's labels under the seat's own
  std::string display_name;  // unique; stays while the seat keeps its configured name
};

struct SeatRegistryLimits {
  size_t seats_max = 10'000;  // beyond: the new seat is refused, counted
  absl::Duration stale_after = absl::Seconds(30);
  absl::Duration dead_after = absl::Minutes(5);
  absl::Duration forget_after = absl::Hours(24);
};

// Pure table. Keyed by seat_id and iterated in that order. Names: the seat's configured name; if
// two agents use one name, the later seat is shown as "<name>-<id8>". "Now" of a message is the
// latest time the table was told.
class SeatRegistry {
 public:
  explicit SeatRegistry(SeatRegistryLimits limits) : limits_(limits) {}

  enum class Change { kNone, kUpdated, kAdded, kNewIncarnation, kBackOnline };

  // The newest whole state of a seat as its agent tells it. A lower incarnation than the known one
  // is ignored. ResourceExhausted at seats_max, InvalidArgument without seat_id. A seat whose
  // process is gone is kDead at once.
  absl::StatusOr<Change> Update(const v1::SeatState& state, const std::string& agent_id,
                                const std::string& host,
                                const std::map<std::string, std::string>& agent_labels,
                                absl::Time now);
  // A seat of a former control plane as it was kept, not linked. Nothing happens at seats_max.
  void Restore(SeatRecord record);
  // The agent's link ended. Update() of its seats brings them back.
  void Detach(const std::string& agent_id, absl::Time now);
  // A heartbeat: its linked seats are seen.
  void Seen(const std::string& agent_id, absl::Time now);
  // Which run of its agent has told of it. Nothing happens if it is unknown.
  void SetBoot(std::string_view seat_id, const std::string& boot_id);
  // Removed by its owner (row gone, no longer configured).
  void Remove(const std::string& seat_id);
  // Ages detached seats and forgets those past forget_after; returns those whose presence changed
  // and those that are forgotten.
  std::vector<std::string> Sweep(absl::Time now);

  // nullptr if unknown. The pointer is valid until the next non-const call.
  const SeatRecord* Find(std::string_view seat_id) const;

  // The one seat a target names, unless it is dead. Names go before ids, ids before prefixes;
  // labels choose the lowest seat_id of the linked seats that carry them all. NotFound says which
  // names there are (at most 10) or, for a dead seat, when it was last seen; InvalidArgument for an
  // ambiguous prefix names the candidates or says that a prefix needs 8 characters.
  absl::StatusOr<const SeatRecord*> Resolve(const v1::Target& target) const;

  // "<app>.<id8>" of a seat, where id8 is the shortest prefix of at least 8 digits that is unique
  // among seat ids. An app without a name is "mcp"; a dot in it becomes "_".
  std::string SlugPrefix(const SeatRecord& seat) const;
  // The name shown to people, unique.
  const std::string& DisplayName(const SeatRecord& seat) const { return seat.display_name; }

  // All rows for list_instances, filtered (every word of the query must be in name, ids, app,
  // version, scene, host or labels) and in order of name. Limit and offset are the caller's;
  // `tools` of a row stays 0 and last_seen_ms is an age.
  std::vector<v1::InstanceRow> Rows(const v1::ListInstancesRequest& request, absl::Time now) const;
  v1::InstanceRow Row(const SeatRecord& seat, absl::Time now) const;

  std::map<std::string, uint64_t> IncarnationsOf(const std::string& agent_id) const;
  std::vector<std::string> SeatsOf(const std::string& agent_id) const;
  // Of the run of the agent that told of its seats last; empty if it has none, or it is not known.
  std::string BootOf(const std::string& agent_id) const;
  const std::map<std::string, SeatRecord, std::less<>>& all() const { return seats_; }
  size_t size() const { return seats_.size(); }

 private:
  void Rename(const std::string& seat_id, SeatRecord& record);
  void Erase(const std::string& seat_id);
  std::string ShortId(std::string_view seat_id) const;
  // Seats that an instance text names, dead ones too: several only if it is ambiguous.
  std::vector<const SeatRecord*> Candidates(std::string_view instance) const;
  bool Matches(const SeatRecord& seat, const v1::ListInstancesRequest& request,
               const std::vector<std::string>& words) const;
  absl::Status NoSuchInstance(std::string_view wanted) const;
  absl::StatusOr<const SeatRecord*> Living(const SeatRecord& seat, std::string_view wanted) const;

  SeatRegistryLimits limits_;
  std::map<std::string, SeatRecord, std::less<>> seats_;
  std::map<std::string, std::string, std::less<>> seat_of_name_;  // display name -> seat_id
  // (the DCC's instance id in lower case without dashes, seat_id)
  std::set<std::pair<std::string, std::string>> instance_ids_;
  absl::Time latest_ = absl::InfinitePast();
};

}  // namespace callboard::server
