// Implementation of FindControlPlane.
#include "apps/cli/address.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

constexpr const char* kDefault = "127.0.0.1:9766";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string UserFile() {
  std::string folder = Environment("XDG_CONFIG_HOME");
  if (folder.empty()) folder = Environment("HOME") + "/.config";
  return folder + "/callboard/config.toml";
}

// Other members of the file are other programs'. nullopt: no such file, or it says nothing.
absl::StatusOr<std::optional<std::string>> FromFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  try {
    const toml::table table = toml::parse_file(path);
    const toml::node* node = table.get("control_plane");
    if (node == nullptr) return std::nullopt;
    if (auto address = node->value<std::string>(); address && !address->empty()) return address;
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("{}: control_plane must be a text such as \"127.0.0.1:9766\"", path));
  } catch (const toml::parse_error& problem) {
    const auto where = problem.source().begin;
    return core::MakeError(absl::StatusCode::kInvalidArgument,
                           fmt::format("{}, line {}, column {}: {}", path, where.line, where.column,
                                       problem.description()));
  }
}

}  // namespace

absl::StatusOr<ControlPlaneAddress> FindControlPlane(const std::string& flag) {
  if (!flag.empty()) return ControlPlaneAddress{flag, "--address"};
  for (const char* name : {"CALLBOARD_CONTROL_PLANE", "CALLBOARD_ADDRESS"}) {
    if (std::string value = Environment(name); !value.empty()) {
      return ControlPlaneAddress{std::move(value), name};
    }
  }
  for (const std::string& path : {std::string("callboard.toml"), UserFile()}) {
    auto found = FromFile(path);
    if (!found.ok()) return found.status();
    if (found->has_value()) return ControlPlaneAddress{**std::move(found), path};
  }
  return ControlPlaneAddress{kDefault, "default"};
}

}  // namespace callboard::apps
