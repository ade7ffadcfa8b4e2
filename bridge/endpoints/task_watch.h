// What a listener of MCP 2026-07-28 is told of tasks of ours: what each asks, and how it ends.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "bridge/bridge_core.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"

namespace callboard::bridge {

// Waits for each of its calls at the control plane, again and again until it is over, and tells
// when what it asks its client is something else than before. One that is no task, or is no longer
// kept, is told nothing of. While the control plane is away it goes on asking. Owned by its
// listener; loop thread. Bounds: those of whoever makes the list.
class TaskWatch {
 public:
  // The task as it is now; over, with its outcome.
  using Tell = absl::AnyInvocable<void(const v1::Call&)>;

  TaskWatch(BridgeCore& core, const std::vector<std::string>& call_ids);

  // To be called once.
  void Begin(Tell tell);

 private:
  void Wait(const std::string& call_id);
  void OnCall(const std::string& call_id, const absl::StatusOr<v1::Call>& call);

  BridgeCore& core_;
  Tell tell_;
  struct Open {
    core::Timer again;                  // runs until it is waited for again
    std::set<std::string> known_input;  // keys of what it asks, as was told
  };
  std::map<std::string, Open> open_;  // by call id
  core::Lifetime lifetime_;
};

}  // namespace callboard::bridge
