// Implementation of the common options.
#include "apps/program_options.h"

#include <fmt/format.h>

#include "apps/settings_source.h"
#include "core/runtime/status_macros.h"
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
  app.add_option("--log-format", options->log_format,
                 "text or json, one object a line; wins over the setting log.format");
  app.add_option("--admin-port", options->admin_port,
                 "Port of /metrics, for Prometheus; 0 picks a free one; off; wins over the "
                 "setting admin.port");
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

absl::StatusOr<core::LogFormat> LogFormatOf(const ProgramOptions& options,
                                            const std::string& configured) {
  const std::string& name = options.log_format.empty() ? configured : options.log_format;
  if (name == "text") return core::LogFormat::kText;
  if (name == "json") return core::LogFormat::kJson;
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("--log-format {}: expected text or json", name));
}

absl::StatusOr<AdminSettings> AdminOf(const ProgramOptions& options, AdminSettings configured) {
  if (options.admin_port.empty()) return configured;
  CALLBOARD_RETURN_IF_ERROR(ParseAdminPort("--admin-port", options.admin_port, &configured.port));
  return configured;
}

}  // namespace callboard::apps
