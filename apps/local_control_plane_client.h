// The bridge's port to a control plane that lives in the same process, on the same thread.
#pragma once

#include <memory>

#include "bridge/control_plane_client.h"
#include "server/flows/control_plane.h"

namespace callboard::apps {

// Forwards every call; both sides speak control.proto's messages. `control_plane` outlives it.
std::unique_ptr<bridge::ControlPlaneClient> MakeLocalControlPlaneClient(
    server::ControlPlane& control_plane);

}  // namespace callboard::apps
