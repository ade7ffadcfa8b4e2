// What a listener of MCP 2026-07-28 is told of tasks of ours: how each ends.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "bridge/bridge_core.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"

namespace callboard::bridge {

// Waits for each of its calls at the control plane, again and again until it is over. One that is
// no task, or is no longer kept, is told nothing of. While the control plane is away it goes on
// asking. Owned by its listener; loop thread. Bounds: those of whoever makes the list.
class TaskWatch {
 public:
  // Params of notifications/tasks.
  using Tell = absl::AnyInvocable<void(std::string)>;

  TaskWatch(BridgeCore& core, const std::vector<std::string>& call_ids);

  // To be called once.
  void Begin(Tell tell);

 private:
  void Wait(const std::string& call_id);
  void OnCall(const std::string& call_id, const absl::StatusOr<v1::Call>& call);

  BridgeCore& core_;
  Tell tell_;
  std::map<std::string, core::Timer> open_;  // by call id; runs until it is asked for again
  core::Lifetime lifetime_;
};

}  // namespace callboard::bridge
