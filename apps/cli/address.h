// Where the control plane and its MCP are: the command line, the environment, a file, or the usual
// place.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace callboard::apps {

struct FoundAddress {
  std::string address;  // HOST:PORT; of FindMcpUrl an URL
  std::string source;   // "--address", "CALLBOARD_CONTROL_PLANE", a file's path, "default"
};

// The first of: `flag`, $CALLBOARD_CONTROL_PLANE, $CALLBOARD_ADDRESS, `control_plane` in
// ./callboard.toml, the same in callboard/config.toml below $XDG_CONFIG_HOME or ~/.config, and
// 127.0.0.1:9766. InvalidArgument: a file that was looked into is broken. Main thread only.
absl::StatusOr<FoundAddress> FindControlPlane(const std::string& flag);

// Where MCP is served: the first of `flag`, $CALLBOARD_URL, `url` in the same files, and
// http://127.0.0.1:9765/mcp.
inline constexpr const char* kDefaultMcpUrl = "http://127.0.0.1:9765/mcp";
absl::StatusOr<FoundAddress> FindMcpUrl(const std::string& flag);

}  // namespace callboard::apps
