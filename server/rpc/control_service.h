// The control API over gRPC: maps control.proto onto the control plane's door.
#pragma once

#include <memory>

#include "core/runtime/event_loop.h"
#include "server/flows/control_plane.h"

namespace grpc {
class Service;
}

namespace callboard::server {

// Requests are handed to the loop and answered from there. `control_plane` must outlive the
// grpc::Server, and the loop must run until its Shutdown() has returned.
class ControlService {
 public:
  ControlService(core::EventLoop& loop, ControlPlane& control_plane);
  ~ControlService();
  grpc::Service* service();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace callboard::server
