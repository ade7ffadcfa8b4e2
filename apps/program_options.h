// The command line options that every serving program has.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/telemetry/log.h"

namespace callboard::apps {

struct ProgramOptions {
  std::string state_dir;
  std::string config;
  std::vector<std::string> assignments;
  std::string log_level;  // empty: the setting log.level
};

// --version, --state-dir, --config, --set and --log-level. `example`: a setting of this program.
void AddProgramOptions(CLI::App& app, const std::string& example, ProgramOptions* options);

// Of --log-level, or else of `configured`, the checked setting log.level.
absl::StatusOr<core::LogLevel> LogLevelOf(const ProgramOptions& options,
                                          const std::string& configured);

}  // namespace callboard::apps
