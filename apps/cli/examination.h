// What `callboard doctor` tells: one line a check, and the exit code of the first that failed.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "apps/cli/exit_codes.h"
#include "apps/cli/verbs.h"
#include "core/mcp/json.h"

namespace callboard::apps {

// Prints one line a check, or all as JSON; the exit code is that of the first that failed. Main
// thread.
class Examination {
 public:
  explicit Examination(bool json) : json_(json) {}

  void Tell(std::string_view what, bool ok, std::string_view found, std::string_view helps,
            ExitCode code) {
    if (!ok && code_ == kExitOk) code_ = code;
    if (json_) {
      if (lines_.size() > 1) lines_ += ',';
      lines_ += core::JsonObject()
                    .String("check", what)
                    .Bool("ok", ok)
                    .String("found", found)
                    .String("helps", ok ? "" : helps)
                    .Take();
      return;
    }
    Print(fmt::format("{:<4}  {:<13} {}{}\n", ok ? "ok" : "FAIL", what, found,
                      ok ? "" : fmt::format("; {}", helps)));
  }

  int Finish() {
    if (json_) Print(lines_ + "]\n");
    return code_;
  }

 private:
  const bool json_;
  std::string lines_ = "[";
  ExitCode code_ = kExitOk;
};

}  // namespace callboard::apps
