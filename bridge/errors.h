// How outcomes and statuses become JSON-RPC errors: the one table of it (C1).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "callboard/v1/types.pb.h"
#include "core/mcp/json.h"
#include "core/runtime/event_loop.h"

namespace callboard::bridge {

// What a client is told of a call that has no answer of the backend.
struct ReasonRow {
  std::string_view reason;  // exact: "queue_full"
  // What to do about it: not_started, may_have_run, timed_out, retry_later, backend_lost,
  // too_many, cancelled, invalid.
  std::string_view kind;
  int code;                  // of JSON-RPC
  std::string_view message;  // when the control plane gave none
};

// Reasons that are not known here (of a newer control plane) are described by their hundred.
const ReasonRow& DescribeReason(v1::Reason reason);

std::string_view CertaintyName(v1::Certainty certainty);

// The member `data` of an error, for failures between bridge and control plane: `started` says
// whether the call may have begun.
std::string StatusData(const absl::Status& status, bool started);
int StatusHttpCode(const absl::Status& status);
// Whether the status is about what the caller asked for rather than about our own state.
bool IsCallersMistake(const absl::Status& status);

// Why {instance} of a path leads nowhere: so many seats are meant by it, not one.
std::string NoSuchInstance(std::string_view instance, int meant);

// {"reason":"hard_timer",...}: the control plane was silent for too long.
std::string HardTimerData(bool started);
// What a call leaves behind that ended without the control plane (C4): the beginning of it.
core::JsonObject DiagnosticsOf(const core::EventLoop& loop, absl::Time started);

}  // namespace callboard::bridge
