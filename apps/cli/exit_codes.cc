// Implementation of the exit codes.
#include "apps/cli/exit_codes.h"

namespace callboard::apps {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitRefused;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimedOut;
    case absl::StatusCode::kAborted:
      return kExitUnknown;
    default:
      return kExitFailed;
  }
}

ExitCode ExitCodeOf(const v1::CallOutcome& outcome) {
  switch (outcome.class_()) {
    case v1::RESULT:
      return outcome.facts().is_error() ? kExitFailed : kExitOk;
    case v1::EXPIRED:
      return kExitTimedOut;
    case v1::REJECTED:
      if (outcome.reason() == v1::PARAMS_INVALID || outcome.reason() == v1::PARAMS_TOO_LARGE) {
        return kExitUsage;
      }
      return outcome.reason() == v1::SEAT_UNKNOWN ? kExitNotFound : kExitRefused;
    case v1::LOST:
      return outcome.certainty() == v1::UNKNOWN || outcome.certainty() == v1::RUNNING ? kExitUnknown
                                                                                      : kExitFailed;
    default:
      return kExitFailed;
  }
}

std::string_view ExitCodesText() {
  return "Exit codes:\n"
         "  0  ok\n"
         "  1  the call failed (isError, an error of the tool's server, cancelled)\n"
         "  2  usage: options, arguments or configuration are wrong\n"
         "  3  nobody answers at the address\n"
         "  4  no such seat or tool\n"
         "  5  refused: a limit, a state or a policy; nothing was started\n"
         "  6  timed out; the tool may still be at work\n"
         "  7  outcome unknown: the call may have run\n"
         "  10-16  doctor: not serving, bridge, no seats, a seat is unwell, registry, state "
         "folder, path\n";
}

}  // namespace callboard::apps
