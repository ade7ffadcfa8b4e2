// Implementation of the look for addresses.
#include "apps/cli/address.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

// One thing to look for.
struct Sought {
  std::string flag;  // its name
  std::vector<const char*> environment;
  const char* key;       // in the files
  const char* fallback;  // also the example
};

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
absl::StatusOr<std::optional<std::string>> FromFile(const std::string& path, const Sought& sought) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  try {
    const toml::table table = toml::parse_file(path);
    const toml::node* node = table.get(sought.key);
    if (node == nullptr) return std::nullopt;
    if (auto address = node->value<std::string>(); address && !address->empty()) return address;
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("{}: {} must be a text such as \"{}\"", path, sought.key, sought.fallback));
  } catch (const toml::parse_error& problem) {
    const auto where = problem.source().begin;
    return core::MakeError(absl::StatusCode::kInvalidArgument,
                           fmt::format("{}, line {}, column {}: {}", path, where.line, where.column,
                                       problem.description()));
  }
}

absl::StatusOr<FoundAddress> Find(const std::string& given, const Sought& sought) {
  if (!given.empty()) return FoundAddress{given, sought.flag};
  for (const char* name : sought.environment) {
    if (std::string value = Environment(name); !value.empty()) {
      return FoundAddress{std::move(value), name};
    }
  }
  for (const std::string& path : {std::string("callboard.toml"), UserFile()}) {
    auto found = FromFile(path, sought);
    if (!found.ok()) return found.status();
    if (found->has_value()) return FoundAddress{**std::move(found), path};
  }
  return FoundAddress{sought.fallback, "default"};
}

}  // namespace

absl::StatusOr<FoundAddress> FindControlPlane(const std::string& flag) {
  return Find(flag, {"--address",
                     {"CALLBOARD_CONTROL_PLANE", "CALLBOARD_ADDRESS"},
                     "control_plane",
                     "127.0.0.1:9766"});
}

absl::StatusOr<FoundAddress> FindMcpUrl(const std::string& flag) {
  return Find(flag, {"--url", {"CALLBOARD_URL"}, "url", kDefaultMcpUrl});
}

}  // namespace callboard::apps
