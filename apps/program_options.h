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
  std::string log_level = "info";
};

// --version, --state-dir, --config, --set and --log-level. `example`: a setting of this program.
void AddProgramOptions(CLI::App& app, const std::string& example, ProgramOptions* options);

absl::StatusOr<core::LogLevel> LogLevelOf(const ProgramOptions& options);

}  // namespace callboard::apps
