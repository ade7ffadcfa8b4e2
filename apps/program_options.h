// The command line options that every serving program has.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "apps/admin_settings.h"
#include "core/telemetry/log.h"

namespace callboard::apps {

struct ProgramOptions {
  std::string state_dir;
  std::string config;
  std::vector<std::string> assignments;
  std::string log_level;   // empty: the setting log.level
  std::string log_format;  // empty: the setting log.format
  std::string admin_port;  // empty: the setting admin.port
};

// --version, --state-dir, --config, --set, --log-level, --log-format and --admin-port. `example`: a
// setting of this program.
void AddProgramOptions(CLI::App& app, const std::string& example, ProgramOptions* options);

// Of --log-level, or else of `configured`, the checked setting log.level.
absl::StatusOr<core::LogLevel> LogLevelOf(const ProgramOptions& options,
                                          const std::string& configured);
// Of --log-format, or else of `configured`, the checked setting log.format.
absl::StatusOr<core::LogFormat> LogFormatOf(const ProgramOptions& options,
                                            const std::string& configured);
// `configured` with what --admin-port says.
absl::StatusOr<AdminSettings> AdminOf(const ProgramOptions& options, AdminSettings configured);

}  // namespace callboard::apps
