// Implementation of the common settings.
#include "apps/program_settings.h"

#include <fmt/format.h>

#include <charconv>

#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::apps {

absl::Status ParseAdminPort(std::string_view name, std::string_view text,
                            std::optional<uint16_t>* port) {
  if (text == "off") {
    port->reset();
    return absl::OkStatus();
  }
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("{} '{}': expected a port (0 picks a free one) or off", name, text));
  }
  *port = number;
  return absl::OkStatus();
}

absl::Status ReadProgramSettings(core::Settings& settings, ProgramSettings* out) {
  settings.ReadChoice("log.level", &out->log_level, core::kLogLevels);
  settings.ReadChoice("log.format", &out->log_format, core::kLogFormats);
  settings.Read("runtime.watchdog", &out->watchdog);
  settings.Read("admin.host", &out->admin.host);
  std::string port = out->admin.port ? fmt::format("{}", *out->admin.port) : "off";
  settings.Read("admin.port", &port);
  return ParseAdminPort("admin.port", port, &out->admin.port);
}

}  // namespace callboard::apps
