// The exit codes of `callboard`, and which one an error or an outcome gives.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "callboard/v1/control.pb.h"

namespace callboard::apps {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,       // the call failed: isError, an error of the backend, cancelled
  kExitUsage = 2,        // wrong options, arguments or configuration
  kExitUnreachable = 3,  // nobody answers at the address
  kExitNotFound = 4,
  kExitRefused = 5,   // a limit, a state or a policy; nothing was started
  kExitTimedOut = 6,  // a budget is spent; the tool may still be at work
  kExitUnknown = 7,   // the call may or may not have run; never send it again unseen
  // Of `doctor` alone, by the first check that failed (kExitUnreachable for the address).
  kExitNotServing = 10,
  kExitBridge = 11,
  kExitNoSeats = 12,
  kExitSeatUnwell = 13,
  kExitRegistry = 14,
  kExitStateFolder = 15,
  kExitPath = 16,
};

ExitCode ExitCodeOf(const absl::Status& status);
ExitCode ExitCodeOf(const v1::CallOutcome& outcome);

// The table for help and documentation.
std::string_view ExitCodesText();

}  // namespace callboard::apps
