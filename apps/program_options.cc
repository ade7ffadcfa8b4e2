// Implementation of the common options.
#include "apps/program_options.h"

#include <fmt/format.h>

#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::apps {
namespace {

constexpr std::string_view kText = core::kLogFormats[0];
constexpr std::string_view kJson = core::kLogFormats[1];

core::LogLevel LevelOf(const ProgramSettings& settings) {
  core::LogLevel level = core::LogLevel::kInfo;
  core::ParseLogLevel(settings.log_level, &level);
  return level;
}

}  // namespace

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

absl::Status ApplyOptions(const ProgramOptions& options, ProgramSettings* settings) {
  if (!options.log_level.empty()) {
    core::LogLevel level = core::LogLevel::kInfo;
    if (!core::ParseLogLevel(options.log_level, &level)) {
      return core::MakeError(absl::StatusCode::kInvalidArgument,
                             fmt::format("--log-level {}: expected debug, info, warn, error or off",
                                         options.log_level));
    }
    settings->log_level = options.log_level;
  }
  if (!options.log_format.empty()) {
    if (options.log_format != kText && options.log_format != kJson) {
      return core::MakeError(
          absl::StatusCode::kInvalidArgument,
          fmt::format("--log-format {}: expected text or json", options.log_format));
    }
    settings->log_format = options.log_format;
  }
  if (options.admin_port.empty()) return absl::OkStatus();
  return ParseAdminPort("--admin-port", options.admin_port, &settings->admin.port);
}

void SetLogLevel(const ProgramSettings& settings) { core::SetLogLevel(LevelOf(settings)); }

int RunLogged(const ProgramSettings& settings, absl::FunctionRef<int()> serve) {
  core::StartLogging(LevelOf(settings), settings.log_format == kJson ? core::LogFormat::kJson
                                                                     : core::LogFormat::kText);
  const int result = serve();
  core::StopLogging();
  return result;
}

}  // namespace callboard::apps
