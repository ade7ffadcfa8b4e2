// The state of a call as people are told it (C2): the extension x-agent-status. Pure.
#pragma once

#include <string>
#include <string_view>

#include "callboard/v1/control.pb.h"

namespace callboard::bridge {

// Request header, response header and type of the events.
constexpr std::string_view kAgentStatus = "x-agent-status";

// What a request's header x-agent-status asks for. Nobody who did not ask sees anything of it.
enum class StatusWish {
  kNone,
  kHeader,  // the state when the headers are written
  kEvents,  // that, and events on the call's own stream: the header's value is "events"
};
StatusWish ParseStatusWish(const std::string* header);

// "queued", "connecting", "sending", "waiting", "retrying", "success" or "failed".
std::string_view AgentState(v1::CallPhase phase);
// "" if it did not fail, else why: "run_budget_spent", "tool_error", ...
std::string_view AgentReason(const v1::CallOutcome& outcome);

// The response header's value for a call that has ended.
std::string EndedAgentState(std::string_view reason);

// {"state":..,"ahead":..,"attempt":..,"attempts_max":..,"reason":..,"message":..}
std::string RenderAgentStatus(const v1::CallStatus& status);
// The same of the end; attempts are those of the last status.
std::string RenderAgentStatus(const v1::CallStatus& last, const v1::CallOutcome& outcome);

}  // namespace callboard::bridge
