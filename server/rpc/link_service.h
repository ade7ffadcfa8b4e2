// The gRPC service agents dial: turns each Attach stream into a link on the control thread.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "core/runtime/event_loop.h"
#include "server/flows/control_plane.h"

namespace grpc {
class Service;
}

namespace callboard::server {

// `on_attach` runs on the loop for each new stream; the link it gets follows core::Link's contract.
// The service must outlive the grpc::Server it is registered with, and the loop must run until that
// server's Shutdown() has returned (reactors end on the loop).
class LinkService {
 public:
  using OnAttach = absl::AnyInvocable<void(std::unique_ptr<AgentLink>, PeerIdentity)>;

  LinkService(core::EventLoop& loop, OnAttach on_attach);
  ~LinkService();
  grpc::Service* service();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace callboard::server
