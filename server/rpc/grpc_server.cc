// Implementation of GrpcServer.
#include "server/rpc/grpc_server.h"

#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <mutex>

#include "core/runtime/strings.h"

namespace callboard::server {

struct GrpcServer::Impl {
  Impl(core::EventLoop& loop, ControlPlane& plane)
      : links(loop,
              [&plane](std::unique_ptr<AgentLink> link, PeerIdentity peer) {
                plane.AttachAgent(std::move(link), std::move(peer));
              }),
        control(loop, plane) {}

  LinkService links;
  ControlService control;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(core::EventLoop& loop,
                                                              ControlPlane& control_plane,
                                                              GrpcServerOptions options) {
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });

  auto impl = std::make_unique<Impl>(loop, control_plane);
  const std::string address = fmt::format("{}:{}", options.host, options.port);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &impl->port);
  // A port in use is an error and never shared with another process (SO_REUSEPORT).
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // L4: agents ping every 5 s; gRPC's default would call that "too many pings".
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.SetMaxReceiveMessageSize(options.message_bytes_max);
  builder.RegisterService(impl->links.service());
  builder.RegisterService(impl->control.service());
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) {
    return core::MakeError(absl::StatusCode::kUnavailable,
                           fmt::format("cannot listen for gRPC on {}: the port is taken or the "
                                       "address is not this machine's; choose another port",
                                       address));
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;

uint16_t GrpcServer::port() const { return static_cast<uint16_t>(impl_->port); }

void GrpcServer::SetServing(bool serving) {
  if (auto* health = impl_->server->GetHealthCheckService()) health->SetServingStatus(serving);
}

void GrpcServer::Shutdown(absl::Duration deadline) {
  impl_->server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(deadline));
  impl_->server->Wait();
}

}  // namespace callboard::server
