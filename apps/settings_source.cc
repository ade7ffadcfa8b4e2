// Implementation of AddSettingsSources.
#include "apps/settings_source.h"

#include <unistd.h>

#include "core/runtime/status_macros.h"

extern char** environ;

namespace callboard::apps {

absl::Status AddSettingsSources(const std::string& config,
                                const std::vector<std::string>& assignments,
                                core::Settings* settings) {
  if (!config.empty()) CALLBOARD_RETURN_IF_ERROR(settings->AddFile(config));
  settings->AddEnvironment("CALLBOARD_", environ);
  for (const auto& assignment : assignments) {
    CALLBOARD_RETURN_IF_ERROR(settings->AddAssignment(assignment));
  }
  return absl::OkStatus();
}

}  // namespace callboard::apps
