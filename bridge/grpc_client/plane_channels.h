// The connections to control planes: which one is used, and who waits for one.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "bridge/grpc_client/grpc_control_plane_client.h"
#include "callboard/v1/control.grpc.pb.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/loop_gate.h"
#include "core/telemetry/metrics_text.h"

namespace callboard::bridge {

// One control plane that may be asked.
struct PlaneChannel {
  // A question that waits for the connection: gRPC works at one only while an RPC wants it.
  struct Probe {
    grpc::ClientContext context;
    v1::SessionRef request;
    v1::Session response;
  };

  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::ControlPlane::Stub> stub;
  std::shared_ptr<Probe> probe;  // under way, or null

  bool up = false;  // when looked at last
  uint64_t ups = 0;
  uint64_t downs = 0;
};

// Loop thread; owned by the client. While somebody waits, and while the one in use is away, every
// control plane is probed; each connection is looked at once in kWatchEvery.
class PlaneChannels {
 public:
  using Use = absl::AnyInvocable<void(absl::StatusOr<PlaneChannel*>)>;

  static constexpr absl::Duration kWatchEvery = absl::Seconds(1);

  // Begins to connect.
  PlaneChannels(core::EventLoop& loop, std::shared_ptr<core::LoopGate> gate,
                const GrpcControlPlaneOptions& options);

  // Runs `use` with a connected control plane, inline if there is one, else within connect_wait;
  // Unavailable then, ResourceExhausted if too many wait.
  void WhenConnected(Use use);
  // By address: whether it is connected, and how often it was and was lost.
  void WriteMetrics(core::MetricsText& text) const;
  // Nothing waits any more; what waited is dropped unrun, and probes are cancelled.
  void Clear();

 private:
  struct Waiting {
    absl::Time until;
    Use use;
  };

  PlaneChannel* Connected();
  // Asks gRPC for the state of a connection, and to make it.
  static bool IsUp(PlaneChannel& plane);
  void Watch();
  // Serves who waits: with a connection, or because the time is over.
  void Look();
  void ProbeAll();
  void Probe(PlaneChannel& plane);
  absl::Status NobodyAnswers() const;

  core::EventLoop& loop_;
  std::shared_ptr<core::LoopGate> gate_;
  const absl::Duration connect_wait_;
  const size_t waiting_max_;
  std::vector<std::unique_ptr<PlaneChannel>> planes_;
  size_t used_ = 0;
  bool connected_ = false;
  absl::Time lost_at_;
  std::deque<Waiting> waiting_;  // all wait equally long: ordered by `until`
  core::Timer watch_;
  core::Timer look_;  // when the first of them has waited long enough
  core::Lifetime lifetime_;
};

}  // namespace callboard::bridge
