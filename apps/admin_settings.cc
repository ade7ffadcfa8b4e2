// Implementation of the admin port's settings.
#include "apps/admin_settings.h"

#include <fmt/format.h>

#include <charconv>

#include "core/runtime/strings.h"

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

absl::Status ReadAdminSettings(core::Settings& settings, AdminSettings* out) {
  settings.Read("admin.host", &out->host);
  std::string port = out->port ? fmt::format("{}", *out->port) : "off";
  settings.Read("admin.port", &port);
  return ParseAdminPort("admin.port", port, &out->port);
}

}  // namespace callboard::apps
