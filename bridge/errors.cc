// Implementation of the error table.
#include "bridge/errors.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"

namespace callboard::bridge {
namespace {

using core::kInvalidParams;
using core::kServerError;

constexpr std::array<std::pair<int, ReasonRow>, 35> kReasons = {{
    {v1::CANCELLED_BY_CLIENT, {"cancelled_by_client", "cancelled", kServerError, "cancelled"}},
    {v1::CANCELLED_BY_DEADLINE,
     {"cancelled_by_deadline", "timed_out", kServerError, "cancelled: its time was over"}},
    {v1::CANCELLED_BY_PARENT,
     {"cancelled_by_parent", "cancelled", kServerError, "cancelled with the call it belongs to"}},
    {v1::CANCELLED_BY_ADMIN,
     {"cancelled_by_admin", "cancelled", kServerError, "cancelled by an operator"}},
    {v1::CANCELLED_SESSION_ENDED,
     {"cancelled_session_ended", "cancelled", kServerError, "cancelled: its session ended"}},
    {v1::QUEUE_BUDGET_SPENT,
     {"queue_budget_spent", "timed_out", kServerError,
      "waited too long in the queue of the seat; it never started"}},
    {v1::RUN_BUDGET_SPENT,
     {"run_budget_spent", "timed_out", kServerError, "the tool did not answer in time"}},
    {v1::HARD_TIMER, {"hard_timer", "timed_out", kServerError, "the hard timer of the call ended"}},
    {v1::QUEUE_FULL, {"queue_full", "too_many", kServerError, "the queue of the seat is full"}},
    {v1::CORDONED,
     {"cordoned", "retry_later", kServerError, "the seat is closed to new calls by an operator"}},
    {v1::WRONG_INCARNATION,
     {"wrong_incarnation", "not_started", kServerError,
      "the application was restarted since this session used it"}},
    {v1::LEASE_REQUIRED,
     {"lease_required", "retry_later", kServerError, "the seat is leased to somebody else"}},
    {v1::JOURNAL_UNWRITABLE,
     {"journal_unwritable", "retry_later", kServerError,
      "the agent cannot write its journal; nothing was started"}},
    {v1::SEAT_UNKNOWN,
     {"seat_unknown", "not_started", kServerError, "no such instance; see list_instances"}},
    {v1::SEAT_OFFLINE,
     {"seat_offline", "retry_later", kServerError, "the instance is not connected"}},
    {v1::BACKEND_UNREACHABLE,
     {"backend_unreachable", "retry_later", kServerError,
      "the application's MCP server cannot be reached"}},
    {v1::ATTEMPT_REFUSED,
     {"attempt_refused", "not_started", kServerError, "the agent refused the attempt"}},
    {v1::PARAMS_INVALID,
     {"params_invalid", "invalid", kInvalidParams, "the arguments do not fit the tool's schema"}},
    {v1::PARAMS_TOO_LARGE,
     {"params_too_large", "invalid", kInvalidParams, "the arguments are too large"}},
    {v1::DRAINING, {"draining", "retry_later", kServerError, "the server is shutting down"}},
    {v1::STORE_UNAVAILABLE,
     {"store_unavailable", "retry_later", kServerError,
      "the control plane's store fails; nothing was started"}},
    {v1::IDEMPOTENCY_CONFLICT,
     {"idempotency_conflict", "invalid", kInvalidParams,
      "the idempotency key was used with other arguments"}},
    {v1::CONTROL_PLANE_RESTARTED,
     {"control_plane_restarted", "retry_later", kServerError,
      "the control plane was restarted before the call was sent"}},
    {v1::TOOL_UNKNOWN, {"tool_unknown", "invalid", kInvalidParams, "no such tool"}},
    {v1::PARAM_HEADER_MISMATCH,
     {"param_header_mismatch", "invalid", core::kHeaderMismatch,
      "an argument and the header that repeats it differ"}},
    {v1::AGENT_RESTARTED,
     {"agent_restarted", "backend_lost", kServerError, "the agent was restarted during the call"}},
    {v1::DCC_EXITED,
     {"dcc_exited", "backend_lost", kServerError, "the application ended during the call"}},
    {v1::BACKEND_CONNECTION_LOST,
     {"backend_connection_lost", "backend_lost", kServerError,
      "the connection to the application was lost during the call"}},
    {v1::BODY_LOST,
     {"body_lost", "backend_lost", kServerError, "the tool ended, but its answer was lost"}},
    {v1::JOURNAL_LOST,
     {"journal_lost", "may_have_run", kServerError, "the agent's journal of the call was lost"}},
    {v1::LINK_LOST, {"link_lost", "backend_lost", kServerError, "the link to the agent was lost"}},
    {v1::RESULT_TOO_LARGE,
     {"result_too_large", "may_have_run", kServerError, "the tool's answer is too large"}},
    {v1::BACKEND_PROTOCOL_ERROR,
     {"backend_protocol_error", "backend_lost", kServerError,
      "the application's MCP server broke the protocol"}},
    {v1::SETTLED_BEFORE,
     {"settled_before", "may_have_run", kServerError, "the call was already over"}},
    {0, {"unspecified", "may_have_run", kServerError, "the call has no outcome"}},
}};

constexpr std::array<std::pair<int, ReasonRow>, 4> kHundreds = {{
    {3, {"cancelled", "cancelled", kServerError, "cancelled"}},
    {4, {"expired", "timed_out", kServerError, "a budget of the call ran out"}},
    {5, {"rejected", "not_started", kServerError, "the call was not accepted"}},
    {6, {"lost", "may_have_run", kServerError, "what the call was running on is gone"}},
}};

std::string_view StatusReason(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return "invalid_argument";
    case absl::StatusCode::kUnauthenticated:
      return "unauthenticated";
    case absl::StatusCode::kPermissionDenied:
      return "permission_denied";
    case absl::StatusCode::kNotFound:
      return "not_found";
    case absl::StatusCode::kFailedPrecondition:
      return "failed_precondition";
    case absl::StatusCode::kResourceExhausted:
      return "too_many";
    case absl::StatusCode::kDeadlineExceeded:
      return "timed_out";
    case absl::StatusCode::kCancelled:
      return "cancelled";
    case absl::StatusCode::kUnavailable:
      return "control_plane_unavailable";
    case absl::StatusCode::kAborted:
      return "outcome_unknown";
    case absl::StatusCode::kOutOfRange:
      return "control_plane_lost";
    default:
      return "internal";
  }
}

std::string Data(std::string_view reason, bool started) {
  return core::JsonObject()
      .String("reason", reason)
      .String("certainty", CertaintyName(started ? v1::UNKNOWN : v1::NOT_STARTED))
      .Take();
}

}  // namespace

const ReasonRow& DescribeReason(v1::Reason reason) {
  for (const auto& [known, row] : kReasons) {
    if (known == reason) return row;
  }
  for (const auto& [hundred, row] : kHundreds) {
    if (hundred == reason / 100) return row;
  }
  return kReasons.back().second;
}

std::string_view CertaintyName(v1::Certainty certainty) {
  switch (certainty) {
    case v1::NOT_STARTED:
      return "not_started";
    case v1::RUNNING:
      return "running";
    case v1::FINISHED:
      return "finished";
    default:
      return "unknown";
  }
}

std::string StatusData(const absl::Status& status, bool started) {
  // Unavailable says that nothing was started, Aborted that nobody knows.
  const bool refused = IsCallersMistake(status) ||
                       status.code() == absl::StatusCode::kResourceExhausted ||
                       status.code() == absl::StatusCode::kUnavailable;
  const bool unknown = status.code() == absl::StatusCode::kAborted;
  return Data(StatusReason(status), (started && !refused) || unknown);
}

int StatusHttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    case absl::StatusCode::kInternal:
      return 500;
    default:
      return 503;
  }
}

bool IsCallersMistake(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

core::JsonObject DiagnosticsOf(const core::EventLoop& loop, absl::Time started) {
  const absl::Duration age = loop.Now() - started;
  core::JsonObject json;
  json.String("call_start",
              absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", loop.WallNow() - age, absl::UTCTimeZone()));
  json.Int("call_age_ms", absl::ToInt64Milliseconds(age));
  return json;
}

std::string HardTimerData(bool started) { return Data("hard_timer", started); }

std::string NoSuchInstance(std::string_view instance, int meant) {
  constexpr size_t kShownBytesMax = 100;
  return fmt::format("instance '{}' {}", instance.substr(0, kShownBytesMax),
                     meant == 0 ? "is not connected" : "is not unique");
}

}  // namespace callboard::bridge
