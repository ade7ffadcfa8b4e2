// The sessions this bridge has seen of late: spares a question to the control plane per request.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "callboard/v1/control.pb.h"
#include "core/mcp/versions.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {

struct SessionInfo {
  std::string id;
  core::McpRevision revision = core::kNewestLegacyRevision;
  bool facade = true;
  std::string seat_id;  // of a session with one seat
  std::string tools;  // of a session that shows selected tools: the selectors in their one spelling
  uint64_t term = 0;
  // The last {instance} of a path that was found to mean seat_id.
  std::string instance_name;
};

SessionInfo ToSessionInfo(const v1::Session& session);

// Never the authority: an entry is believed for `recheck` and forgotten as soon as the control
// plane says so. Loop thread. Beyond `entries_max` the least recently used is forgotten; a new
// entry drops those at the end of that order that are no longer believed.
class SessionCache {
 public:
  SessionCache(size_t entries_max, absl::Duration recheck)
      : entries_max_(entries_max), recheck_(recheck) {}

  // nullptr: ask the control plane. Valid until the next call of a non-const method.
  SessionInfo* Find(std::string_view id, absl::Time now);
  // Adds, or confirms an entry (keeping its instance_name).
  SessionInfo& Confirm(SessionInfo info, absl::Time now);
  void Forget(std::string_view id);

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    SessionInfo info;
    absl::Time confirmed;
  };

  void ForgetLast();

  size_t entries_max_;
  absl::Duration recheck_;
  std::list<Entry> entries_;  // most recently used first
  core::StringMap<std::list<Entry>::iterator> by_id_;
};

}  // namespace callboard::bridge
