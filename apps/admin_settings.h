// The settings of the admin port, the same for every serving program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/config/settings.h"

namespace callboard::apps {

struct AdminSettings {
  std::string host = "127.0.0.1";  // admin.host
  std::optional<uint16_t> port;    // admin.port; 0: a free one; nullopt: none, "off"
};

// Reads both keys. The status tells what is wrong with a port; it goes to Settings::Finish().
absl::Status ReadAdminSettings(core::Settings& settings, AdminSettings* out);

// "off" or a number. `name` is the key or option for the error.
absl::Status ParseAdminPort(std::string_view name, std::string_view text,
                            std::optional<uint16_t>* port);

}  // namespace callboard::apps
