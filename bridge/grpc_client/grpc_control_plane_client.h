// Reaches a control plane over gRPC: the product's ControlPlaneClient of a bridge of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bridge/control_plane_client.h"
#include "core/runtime/event_loop.h"

namespace callboard::bridge {

struct GrpcControlPlaneOptions {
  // "127.0.0.1:9766". The first that answers is used until it no longer does.
  std::vector<std::string> addresses;
  // How long a request waits for a control plane to be there before it is given up unsent.
  absl::Duration connect_wait = absl::Seconds(5);
  // Deadline of what the control plane answers from memory.
  absl::Duration unary_wait = absl::Seconds(30);
  // The same for LoadSkill, which asks the application.
  absl::Duration skill_wait = absl::Minutes(13);
  // HTTP/2 pings, and how long one may stay unanswered.
  absl::Duration keepalive = absl::Seconds(5);
  absl::Duration backoff_first = absl::Milliseconds(100);
  absl::Duration backoff_max = absl::Seconds(10);
  // Requests that wait for a control plane. Beyond: ResourceExhausted.
  size_t waiting_max = 20'000;
};

// Requests are given to gRPC only while a connection stands, so what is given up before is known
// not to have started: Unavailable. What is lost later is asked again where that is harmless (all
// but Invoke and LoadSkill); an Invoke is Unavailable once its stream was accepted (listen to it),
// else it and a LoadSkill are Aborted: nobody knows whether they ran. A Listen that is lost is
// Unavailable. Statuses of the control plane itself are passed on as they are.
//
// Loop thread. Sources may be destroyed before or after it, but before the loop; the client before
// the loop too. Bounds: one event of a source in memory and what HTTP/2's windows let in.
std::unique_ptr<ControlPlaneClient> MakeGrpcControlPlaneClient(core::EventLoop& loop,
                                                               GrpcControlPlaneOptions options);

}  // namespace callboard::bridge
