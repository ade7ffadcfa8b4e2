// Implementation of the common options.
#include "apps/program_options.h"

#include <fmt/format.h>

#include "apps/settings_source.h"
#include "core/runtime/strings.h"

namespace callboard::apps {

void AddProgramOptions(CLI::App& app, const std::string& example, ProgramOptions* options) {
  app.set_version_flag("--version", CALLBOARD_VERSION);
  app.add_option("--state-dir", options->state_dir, "Folder for all this program writes");
  app.add_option("--config", options->config, "TOML file with the settings of docs/operations.md");
  app.add_option("--set", options->assignments, "One setting: --set " + example)
      ->allow_extra_args(false);
  app.add_option("--log-level", options->log_level,
                 "debug, info, warn, error or off; wins over the setting log.level");
}

absl::StatusOr<core::LogLevel> LogLevelOf(const ProgramOptions& options,
                                          const std::string& configured) {
  if (options.log_level.empty()) return LogLevelOf(configured);
  core::LogLevel level = core::LogLevel::kInfo;
  if (core::ParseLogLevel(options.log_level, &level)) return level;
  return core::MakeError(
      absl::StatusCode::kInvalidArgument,
      fmt::format("--log-level {}: expected debug, info, warn, error or off", options.log_level));
}

}  // namespace callboard::apps
