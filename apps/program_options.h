// The command line options that every serving program has, and how it begins and reloads by them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "apps/program_settings.h"
#include "apps/settings_source.h"
#include "core/runtime/status_macros.h"

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

// What the command line says of log and admin port wins over `settings`.
absl::Status ApplyOptions(const ProgramOptions& options, ProgramSettings* settings);
// Of settings that have been read.
void SetLogLevel(const ProgramSettings& settings);

// The settings of a program, which are ProgramSettings and more, with what the command line says.
template <class T>
absl::StatusOr<T> LoadSettings(const ProgramOptions& options,
                               absl::Status (*read)(core::Settings&, T*),
                               EffectiveSettings* effective) {
  auto settings = LoadSettings(options.config, options.assignments, read, effective);
  if (settings.ok()) CALLBOARD_RETURN_IF_ERROR(ApplyOptions(options, &*settings));
  return settings;
}

// SIGHUP, in all programs: what can change at once (`hot`) is taken into `effective`, what cannot
// is named in the log. Settings with a fault, or that `accept` refuses, are told and change
// nothing: nullopt.
template <class T>
std::optional<T> ReloadSettings(
    const ProgramOptions& options, absl::Status (*read)(core::Settings&, T*),
    bool (*hot)(std::string_view key), EffectiveSettings* effective,
    absl::FunctionRef<absl::Status(const T&)> accept = [](const T&) { return absl::OkStatus(); }) {
  EffectiveSettings next;
  auto settings = LoadSettings(options, read, &next);
  absl::Status status = settings.status();
  if (status.ok()) status = accept(*settings);
  if (!status.ok()) {
    LogNotReloaded(status);
    return std::nullopt;
  }
  LogSettingsChange(TakeHotSettings(next, hot, effective));
  SetLogLevel(*settings);
  return *std::move(settings);
}

// Logs as `settings` say until `serve` has returned, whose result it returns.
int RunLogged(const ProgramSettings& settings, absl::FunctionRef<int()> serve);

}  // namespace callboard::apps
