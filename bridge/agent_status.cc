// Implementation of the states that people are told.
#include "bridge/agent_status.h"

#include <fmt/format.h>

#include "bridge/errors.h"
#include "core/mcp/json.h"

namespace callboard::bridge {
namespace {

std::string Sentence(const v1::CallStatus& status) {
  switch (status.phase()) {
    case v1::CALL_QUEUED:
      return status.ahead() == 0 ? std::string("queued: next in line")
                                 : fmt::format("queued: {} before this call", status.ahead());
    case v1::CALL_CONNECTING:
      return "waiting for the link to the application";
    case v1::CALL_SENDING:
      return "on its way to the application";
    case v1::CALL_RETRYING:
      return fmt::format("retry {} of {}", status.attempt(), status.attempts_max());
    default:
      return "the tool is at work";
  }
}

std::string Render(std::string_view state, const v1::CallStatus& status, uint32_t ahead,
                   std::string_view reason, std::string_view message) {
  core::JsonObject json;
  json.String("state", state).Int("ahead", ahead);
  if (status.attempt() != 0) {
    json.Int("attempt", status.attempt()).Int("attempts_max", status.attempts_max());
  }
  return json.String("reason", reason).String("message", message).Take();
}

}  // namespace

StatusWish ParseStatusWish(const std::string* header) {
  if (header == nullptr) return StatusWish::kNone;
  return *header == "events" ? StatusWish::kEvents : StatusWish::kHeader;
}

std::string_view AgentState(v1::CallPhase phase) {
  switch (phase) {
    case v1::CALL_QUEUED:
      return "queued";
    case v1::CALL_SENDING:
      return "sending";
    case v1::CALL_WAITING:
      return "waiting";
    case v1::CALL_RETRYING:
      return "retrying";
    case v1::CALL_SUCCEEDED:
      return "success";
    case v1::CALL_FAILED:
    case v1::CALL_TIMED_OUT:
    case v1::CALL_CANCELLED:
    case v1::CALL_OUTCOME_UNKNOWN:
      return "failed";
    default:
      return "connecting";
  }
}

std::string_view AgentReason(const v1::CallOutcome& outcome) {
  if (outcome.class_() == v1::RESULT) return outcome.facts().is_error() ? "tool_error" : "";
  if (outcome.class_() == v1::RPC_ERROR) return "rpc_error";
  return DescribeReason(outcome.reason()).reason;
}

std::string EndedAgentState(std::string_view reason) {
  return reason.empty() ? std::string("success") : fmt::format("failed; reason={}", reason);
}

std::string RenderAgentStatus(const v1::CallStatus& status) {
  const std::string message = status.message().empty() ? Sentence(status) : status.message();
  return Render(AgentState(status.phase()), status, status.ahead(), "", message);
}

std::string RenderAgentStatus(const v1::CallStatus& last, const v1::CallOutcome& outcome) {
  const std::string_view reason = AgentReason(outcome);
  std::string_view message = outcome.message();
  if (message.empty()) message = outcome.facts().detail();
  if (message.empty() && reason.empty()) message = "done";
  if (message.empty() && outcome.class_() == v1::RESULT) message = "the tool says it failed";
  if (message.empty() && outcome.class_() == v1::RPC_ERROR) message = "the tool's server refused";
  if (message.empty()) message = DescribeReason(outcome.reason()).message;
  return Render(reason.empty() ? "success" : "failed", last, 0, reason, message);
}

}  // namespace callboard::bridge
