// Where the settings of a program come from: its file, the environment, the command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/settings.h"

namespace callboard::apps {

// Adds them in that order, so that a later one wins. `config` may be empty.
absl::Status AddSettingsSources(const std::string& config,
                                const std::vector<std::string>& assignments,
                                core::Settings* settings);

// The settings that `read` (ReadServerSettings, ReadAgentSettings) takes from those sources.
template <class T>
absl::StatusOr<T> LoadSettings(const std::string& config,
                               const std::vector<std::string>& assignments,
                               absl::Status (*read)(core::Settings&, T*)) {
  core::Settings settings;
  if (auto status = AddSettingsSources(config, assignments, &settings); !status.ok()) {
    return status;
  }
  T result;
  if (auto status = read(settings, &result); !status.ok()) return status;
  return result;
}

}  // namespace callboard::apps
