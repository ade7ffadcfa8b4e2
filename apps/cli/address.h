// Where the control plane is: the command line, the environment, a file, or the usual place.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace callboard::apps {

struct ControlPlaneAddress {
  std::string address;  // HOST:PORT
  std::string source;   // "--address", "CALLBOARD_CONTROL_PLANE", a file's path, "default"
};

// The first of: `flag`, $CALLBOARD_CONTROL_PLANE, $CALLBOARD_ADDRESS, `control_plane` in
// ./callboard.toml, the same in callboard/config.toml below $XDG_CONFIG_HOME or ~/.config, and
// 127.0.0.1:9766. InvalidArgument: a file that was looked into is broken. Main thread only.
absl::StatusOr<ControlPlaneAddress> FindControlPlane(const std::string& flag);

}  // namespace callboard::apps
