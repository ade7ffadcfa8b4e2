// What a URL opens sessions on: the facade, selected tools, or one instance.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/visit.h"
#include "callboard/v1/control.pb.h"
#include "core/mcp/versions.h"

namespace callboard::bridge {

struct Surface {
  std::string tools;                   // the selectors; empty: none
  std::optional<v1::InstanceRow> row;  // of one instance
};

// `then` runs with the row of the instance that the visit's path names, unless there is none or not
// just one: 404, which names those that are live.
void FindInstance(BridgeCore& core, const VisitPtr& visit,
                  absl::AnyInvocable<void(const v1::InstanceRow&)> then);

// `params` of initialize; `revision` as negotiated.
v1::OpenSessionRequest ToOpenSession(const Surface& surface, core::McpRevision revision,
                                     std::string_view params);
std::string InitializeResult(const BridgeConfig& config, const Surface& surface,
                             core::McpRevision revision);

// Of a control plane that has taken a session with selected tools for one of the facade.
absl::Status OldControlPlane();

}  // namespace callboard::bridge
