// The network between bridges that are processes of their own and the control plane.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "bridge/control_plane_client.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"
#include "server/flows/control_plane.h"

namespace callboard::sim {

// RPCs as gRPC carries them: each late by the network's latency in both directions, in order; a
// few events of a source are under way before its reader asks for them, and are lost with the
// connection. Loop thread; outlives the processes it connects.
class BridgeNetwork {
 public:
  BridgeNetwork(core::EventLoop& loop, core::Random& random);
  ~BridgeNetwork();

  // The control plane that serves from now on, until it is taken away again (nullptr): then all
  // that is under way is lost, and further RPCs are Unavailable.
  void Serve(server::ControlPlane* plane);
  // Its RPCs are lost for both sides.
  void Break(std::string_view bridge);
  // For the process of that name. Destroying it is the end of that process.
  std::unique_ptr<bridge::ControlPlaneClient> MakeClient(std::string bridge);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace callboard::sim
