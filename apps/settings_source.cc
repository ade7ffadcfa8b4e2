// Implementation of settings and their sources.
#include "apps/settings_source.h"

#include <unistd.h>

#include <map>

#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

extern char** environ;

namespace callboard::apps {

void AddSettingsSources(const std::string& config, const std::vector<std::string>& assignments,
                        core::Settings* settings) {
  if (!config.empty()) settings->AddFile(config);
  settings->AddEnvironment("CALLBOARD_", environ);
  for (const auto& assignment : assignments) settings->AddAssignment(assignment);
}

SettingsChange TakeHotSettings(const EffectiveSettings& next, bool (*hot)(std::string_view key),
                               EffectiveSettings* now) {
  SettingsChange change;
  // Keys of tables (labels.*) come and go.
  std::map<std::string, core::Settings::Effective> former;
  for (auto& setting : *now) former[setting.key] = setting;
  for (const auto& setting : next) {
    auto found = former.extract(setting.key);
    if (!found.empty() && found.mapped().value == setting.value) continue;
    if (!hot(setting.key)) {
      change.kept.push_back(setting.key);
      continue;
    }
    change.taken.push_back(fmt::format("{}={}", setting.key, setting.value));
    for (auto& mine : *now) {
      if (mine.key == setting.key) mine = setting;
    }
  }
  for (const auto& [key, setting] : former) change.kept.push_back(key);
  return change;
}

void LogNotReloaded(const absl::Status& why) {
  core::LogWarn("settings_not_reloaded", {{"reason", core::Message(why)}});
}

void LogSettingsChange(const SettingsChange& change) {
  core::LogInfo("settings_reloaded",
                {{"changed", fmt::format("{}", fmt::join(change.taken, " "))}});
  if (change.kept.empty()) return;
  core::LogWarn("settings_need_restart",
                {{"keys", fmt::format("{}", fmt::join(change.kept, " "))}});
}

}  // namespace callboard::apps
