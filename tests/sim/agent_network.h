// The network between agents and control plane: ordered links with latency and faults on demand.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "backend_agent/agent.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"
#include "server/flows/control_plane.h"
#include "tests/sim/trace.h"

namespace callboard::sim {

class Wire;

// Loop thread only; outlives dialers and links. Frames are serialised when written and parsed when
// they arrive: only what a wire can carry gets across. Faults act on every open link of one agent.
class AgentNetwork {
 public:
  using Accept = absl::AnyInvocable<void(std::unique_ptr<server::AgentLink>, server::PeerIdentity)>;
  enum class Dials { kAccepted, kRefused, kSwallowed };

  AgentNetwork(core::EventLoop& loop, core::Random& random, Trace& trace);
  ~AgentNetwork();

  // The control plane's process is there / is gone.
  void Listen(Accept accept);
  void StopListening();

  std::unique_ptr<agent::LinkDialer> MakeDialer(std::string agent);

  // Both ends are told Unavailable; what was under way is lost.
  void Break(const std::string& agent);
  // All bytes vanish from now on and nobody is told.
  void HalfOpen(const std::string& agent);
  // Nothing gets through and no write completes until unclogged.
  void Clog(const std::string& agent, bool clogged);
  void SetDials(const std::string& agent, Dials dials);

 private:
  friend class Wire;
  struct Agent {
    Dials dials = Dials::kAccepted;
    bool clogged = false;
    std::vector<std::weak_ptr<Wire>> wires;
  };
  class Dialer;

  absl::Duration Latency();
  std::vector<std::shared_ptr<Wire>> WiresOf(const std::string& agent);

  core::EventLoop& loop_;
  core::Random& random_;
  Trace& trace_;
  const absl::Duration base_latency_;
  std::shared_ptr<Accept> accept_;
  std::map<std::string, Agent> agents_;
};

}  // namespace callboard::sim
