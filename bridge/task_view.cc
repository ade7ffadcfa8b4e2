// Implementation of calls as tasks.
#include "bridge/task_view.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "bridge/facade/rendering.h"
#include "bridge/initialize_result.h"
#include "bridge/modern_result.h"
#include "bridge/spliced_text.h"
#include "bridge/translator.h"
#include "core/mcp/envelope.h"
#include "core/mcp/json.h"
#include "core/runtime/milliseconds.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

using core::JsonObject;

constexpr std::string_view kTaskPrefix = "callboard-";
constexpr size_t kCallIdBytes = 16;
constexpr size_t kTimeBytes = 6;

// The time is what a call's id begins with (RFC 9562, version 7).
absl::Time CreatedOf(const v1::Call& call) {
  uint64_t unix_ms = 0;
  for (const char byte : std::string_view(call.call_id()).substr(0, kTimeBytes)) {
    unix_ms = (unix_ms << 8) | static_cast<unsigned char>(byte);
  }
  return absl::FromUnixMillis(static_cast<int64_t>(unix_ms));
}

std::string Iso(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

// Of a call that is over, the same whenever it is asked for: ages are counted anew each time.
absl::Duration LifeOf(const v1::Call& call) {
  const uint64_t measured_ms = call.queue_ms() + call.run_ms();
  if (measured_ms > 0) return core::FromMillis(measured_ms);
  return absl::Trunc(core::FromMillis(call.age_ms() - std::min(call.age_ms(), call.ended_ms())),
                     absl::Seconds(1));
}

// The outcome that is told; of one that is not kept what its record says.
v1::CallOutcome OutcomeOf(const v1::Call& call, bool large) {
  const v1::CallOutcome& kept = call.outcome();
  const bool whole = large || !kept.body().has_size();
  if (kept.class_() != v1::OUTCOME_CLASS_UNSPECIFIED && !kept.late() && whole) return kept;
  v1::CallOutcome outcome;
  outcome.set_call_id(call.call_id());
  outcome.set_certainty(call.certainty());
  outcome.set_reason(call.reason());
  outcome.set_message(call.message());
  switch (call.phase()) {
    case v1::CALL_CANCELLED:
      outcome.set_class_(v1::CANCELLED);
      break;
    case v1::CALL_TIMED_OUT:
      outcome.set_class_(v1::EXPIRED);
      break;
    default:
      outcome.set_class_(v1::LOST);
  }
  if (call.reason() == v1::REASON_UNSPECIFIED) {
    outcome.set_reason(v1::BODY_LOST);
    outcome.set_message(
        "the call has ended, but its result is not kept: old ones go, and those over 64 KiB are "
        "only had of a control plane that keeps them");
  }
  return outcome;
}

std::string_view StatusOf(const v1::CallOutcome& outcome) {
  if (outcome.class_() == v1::RESULT) return "completed";
  return outcome.class_() == v1::CANCELLED ? "cancelled" : "failed";
}

JsonObject Begin(std::string_view result_type, const v1::Call& call, std::string_view status,
                 const BridgeConfig& config) {
  const absl::Time created = CreatedOf(call);
  const absl::Time updated = created + (IsOver(call) ? LifeOf(call) : absl::ZeroDuration());
  JsonObject task;
  task.String("resultType", result_type)
      .String("taskId", TaskIdOf(call.call_id()))
      .String("status", status);
  if (!call.message().empty()) task.String("statusMessage", call.message());
  task.String("createdAt", Iso(created))
      .String("lastUpdatedAt", Iso(updated))
      .Int("ttlMs", absl::ToInt64Milliseconds(config.task_ttl))
      .Int("pollIntervalMs", absl::ToInt64Milliseconds(config.task_poll));
  return task;
}

}  // namespace

bool HasTasks(std::string_view capabilities) {
  const auto tasks = core::FindPath(capabilities, {"extensions", core::kTasks});
  return tasks && core::IsObject(*tasks);
}

std::string WithTasks(std::string_view capabilities) {
  if (HasTasks(capabilities)) return std::string(capabilities);
  return core::SetPath(capabilities, {"extensions", core::kTasks}, "{}");
}

std::string WithoutTasks(std::string_view capabilities) {
  const auto extensions = core::FindMember(capabilities, "extensions");
  if (!extensions || !core::FindMember(*extensions, core::kTasks)) {
    return std::string(capabilities);
  }
  return core::SetMember(capabilities, "extensions", core::RemoveMember(*extensions, core::kTasks));
}

bool IsTaskMethod(std::string_view method) {
  return method == "tasks/get" || method == "tasks/update" || method == "tasks/cancel";
}

std::string TasksRequiredData() {
  return JsonObject().Raw("requiredCapabilities", WithTasks("{}")).Take();
}

std::string TaskIdOf(std::string_view call_id) {
  return std::string(kTaskPrefix).append(absl::BytesToHexString(core::ToAbsl(call_id)));
}

std::optional<std::string> CallIdOfTask(std::string_view task_id) {
  if (!task_id.starts_with(kTaskPrefix)) return std::nullopt;
  const std::string_view digits = task_id.substr(kTaskPrefix.size());
  const bool hex = std::all_of(digits.begin(), digits.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  if (!hex || digits.size() != 2 * kCallIdBytes) return std::nullopt;
  return absl::HexStringToBytes(core::ToAbsl(digits));
}

bool IsTask(const v1::Call& call) {
  return call.session_id().empty() && call.method() == "tools/call";
}

std::string NewTaskResult(const v1::Call& call, const BridgeConfig& config) {
  return Begin("task", call, "working", config).Take();
}

bool HasLargeTaskResult(const v1::Call& call) {
  return HasLargeResult(call) && !call.outcome().late();
}

std::string TaskResult(const v1::Call& call, const BridgeConfig& config,
                       std::string_view body_token) {
  if (!IsOver(call)) {
    const std::map<std::string, std::string> asked(call.input_requests().begin(),
                                                   call.input_requests().end());
    if (asked.empty()) return Begin("complete", call, "working", config).Take();
    JsonObject requests;
    for (const auto& [key, request] : asked) requests.Raw(key, request);
    return Begin("complete", call, "input_required", config)
        .Raw("inputRequests", requests.Take())
        .Take();
  }
  const bool large = !body_token.empty() && HasLargeTaskResult(call);
  const v1::CallOutcome outcome = OutcomeOf(call, large);
  JsonObject task = Begin("complete", call, StatusOf(outcome), config);
  if (outcome.class_() == v1::CANCELLED) return task.Take();
  if (large && outcome.class_() == v1::RPC_ERROR) return task.Raw("error", body_token).Take();
  if (large) {
    const std::string members = ModernMembers("tools/call", outcome.facts());
    return task.Raw("result", SplicedText::ObjectWith(members, body_token)).Take();
  }
  const std::string response = RenderOutcome({"0", core::McpRevision::k2026_07_28,
                                              /*is_tool_call=*/true, call.seat_id()},
                                             outcome)
                                   .head;
  // As the request itself would have been answered.
  const std::string server_info = FacadeServerInfo(config);
  const std::string modern = ToModernResponse({"tools/call", {}, server_info}, response).text;
  for (const std::string_view member : {"result", "error"}) {
    if (const auto value = core::FindMember(modern, member)) task.Raw(member, *value);
  }
  return task.Take();
}

std::string TaskNotice(const v1::Call& call, const BridgeConfig& config,
                       std::string_view body_token) {
  return core::RemoveMember(TaskResult(call, config, body_token), "resultType");
}

}  // namespace callboard::bridge
