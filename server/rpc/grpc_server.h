// The gRPC server of a control plane: both services, reflection, health and keepalive settings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/control_service.h"
#include "server/rpc/link_service.h"

namespace callboard::server {

struct GrpcServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 9766;  // 0: a free one
  // One message from a bridge or program. Beyond: ResourceExhausted.
  int message_bytes_max = 17 * 1024 * 1024;
};

// Started by Start(); Shutdown() cancels what is open and returns when every reactor has ended,
// which needs a running loop: call it from another thread than the loop's.
class GrpcServer {
 public:
  // The error names address and port.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(core::EventLoop& loop,
                                                           ControlPlane& control_plane,
                                                           GrpcServerOptions options);
  ~GrpcServer();

  uint16_t port() const;
  // What the standard health service (grpc.health.v1) answers from now on.
  void SetServing(bool serving);
  void Shutdown(absl::Duration deadline);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace callboard::server
