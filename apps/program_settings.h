// The settings that every serving program has beside its own: admin port, log, watchdog.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/config/settings.h"

namespace callboard::apps {

struct AdminSettings {
  std::string host = "127.0.0.1";  // admin.host
  std::optional<uint16_t> port;    // admin.port; 0: a free one; nullopt: none, "off"
};

struct ProgramSettings {
  AdminSettings admin;
  std::string log_level = "info";               // log.level
  std::string log_format = "text";              // log.format
  absl::Duration watchdog = absl::Seconds(10);  // runtime.watchdog; 0: none
};

// Reads every key of them. The status tells what is wrong with a port; it goes to
// Settings::Finish().
absl::Status ReadProgramSettings(core::Settings& settings, ProgramSettings* out);

// "off" or a number. `name` is the key or option for the error.
absl::Status ParseAdminPort(std::string_view name, std::string_view text,
                            std::optional<uint16_t>* port);

}  // namespace callboard::apps
