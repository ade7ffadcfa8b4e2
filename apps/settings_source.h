// Where the settings of a program come from: its file, the environment, the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/settings.h"

namespace callboard::apps {

using EffectiveSettings = std::vector<core::Settings::Effective>;

// Adds them in that order, so that a later one wins. `config` may be empty.
void AddSettingsSources(const std::string& config, const std::vector<std::string>& assignments,
                        core::Settings* settings);

// The settings that `read` (ReadServerSettings, ReadAgentSettings) takes from those sources.
// `effective`, if given, gets each key with its value.
template <class T>
absl::StatusOr<T> LoadSettings(const std::string& config,
                               const std::vector<std::string>& assignments,
                               absl::Status (*read)(core::Settings&, T*),
                               EffectiveSettings* effective = nullptr) {
  core::Settings settings;
  AddSettingsSources(config, assignments, &settings);
  T result;
  if (auto status = read(settings, &result); !status.ok()) return status;
  if (effective != nullptr) *effective = settings.effective();
  return result;
}

// Of the keys whose values differ, those that `hot` says can change while a program runs are taken
// into `now`; the others stay as they are there.
struct SettingsChange {
  std::vector<std::string> taken;  // "budgets.queue=10m"
  std::vector<std::string> kept;   // keys that need a restart
};
SettingsChange TakeHotSettings(const EffectiveSettings& next, bool (*hot)(std::string_view key),
                               EffectiveSettings* now);
// Both say so in the log.
void LogSettingsChange(const SettingsChange& change);
void LogNotReloaded(const absl::Status& why);

}  // namespace callboard::apps
