// The tower's door: one control plane, its agents' links below and the control API above.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "callboard/v1/agent.pb.h"
#include "callboard/v1/control.pb.h"
#include "core/mcp/tool_selection.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/event_source.h"
#include "core/runtime/link.h"
#include "core/runtime/offload.h"
#include "core/runtime/random.h"
#include "core/telemetry/metrics_text.h"
#include "server/domain/limits.h"
#include "server/flows/body_store.h"
#include "server/flows/store.h"

namespace callboard::server {

// The control plane's end of one Attach.
using AgentLink = core::Link<v1::ServerFrame, v1::AgentFrame>;

// What the transport knows of who dialled in. Checked from version 1 on.
struct PeerIdentity {
  std::string address;          // "ipv4:127.0.0.1:41234", for logs
  std::string transport_agent;  // SAN of a client certificate; empty without TLS
  std::string authorization;    // metadata; empty if none was sent
};

struct ControlPlaneConfig {
  std::string control_plane_id;         // the same after a restart on the same store
  std::vector<std::string> alternates;  // addresses of others, told to agents
  core::ToolSelection pinned_tools;     // what the selector "pinned" stands for
  // Secret, by which clients without a session resume their calls; the same after a restart. Empty:
  // one that ends with this process.
  std::string request_state_key;
  Budgets budgets;
  Limits limits;
};

// Why a link of an agent ended.
enum class LinkDrop {
  kClosed,     // by the agent, with its process, or by the network
  kSilent,     // nothing was heard of it for budgets.link_read_idle
  kTakenOver,  // the agent has a newer one
};
constexpr size_t kLinkDrops = 3;
// "closed", "silent", "taken_over".
std::string_view LinkDropName(LinkDrop drop);

// Counts for tests, the simulation's bounds check and metrics.
struct ControlPlaneGauges {
  size_t agents = 0;
  size_t seats = 0;
  size_t sessions = 0;
  size_t streams = 0;
  size_t open_executions = 0;
  size_t ended_executions = 0;
  size_t requests = 0;
  size_t replay_bytes = 0;
  size_t pending_settles = 0;
  uint64_t ignored_items = 0;  // of agents: of a newer protocol, or about the calls of others
  size_t open_asks = 0;
  size_t bodies_coming = 0;  // results on their way into the store of bodies
  uint64_t sessions_opened = 0;
  size_t sessions_awaited = 0;  // of former processes, whose clients have not come back yet
  uint64_t sessions_taken_up = 0;
  uint64_t sessions_lost = 0;  // that ended before
  uint64_t links_first = 0;    // accepted of agents that had none yet
  uint64_t links_again = 0;
  uint64_t links_resumed = 0;  // of agents that were known, to this process or by the store
  uint64_t links_re_registered = 0;
  std::array<uint64_t, v1::Refused::Code_ARRAYSIZE> links_refused = {};
  std::array<uint64_t, kLinkDrops> link_drops = {};
};

template <class T>
using Reply = absl::AnyInvocable<void(absl::StatusOr<T>)>;

// All methods on the loop thread. Replies come inline or later, exactly once, unless the control
// plane is destroyed first. Everything passed in outlives it. Destroying it is what a kill is to a
// process: links drop, sources end, nothing is said.
class ControlPlane {
 public:
  ControlPlane(core::EventLoop& loop, core::Random& random, core::Offload& offload, Store& store,
               BodyStore& bodies, ControlPlaneConfig config);
  ~ControlPlane();

  // An agent has opened an Attach.
  void AttachAgent(std::unique_ptr<AgentLink> link, PeerIdentity peer);

  void OpenSession(v1::OpenSessionRequest request, Reply<v1::Session> reply);
  absl::StatusOr<v1::Session> GetSession(const std::string& session_id);
  // Replies when no restart can bring it back; a store that fails delays nobody. NotFound.
  void CloseSession(v1::SessionRef ref, Reply<v1::CloseSessionResponse> reply);

  // Errors of the request itself (unknown session, no such seat, invalid arguments) come as an
  // Outcome of class REJECTED with a message, except NotFound for the session: the source's status.
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Invoke(v1::InvokeRequest request);
  std::unique_ptr<core::EventSource<v1::ListenEvent>> Listen(v1::ListenRequest request);
  // What is accepted is durable, but while the store fails.
  void Send(v1::SendRequest request, Reply<v1::SendResponse> reply);

  void GetCall(v1::CallRef ref, Reply<v1::Call> reply);
  void WaitCall(v1::CallRef ref, Reply<v1::Call> reply);
  void CancelCall(v1::CallRef ref, Reply<v1::Call> reply);
  // The outcome that is kept with the receipt, with its body; waits for the end of the call.
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> FetchOutcome(v1::CallRef ref);
  v1::ListCallsResponse ListCalls(const v1::ListCallsRequest& request);

  v1::SearchToolsResponse SearchTools(const v1::SearchToolsRequest& request);
  absl::StatusOr<v1::DescribeToolResponse> DescribeTool(const v1::DescribeToolRequest& request);
  void LoadSkill(v1::LoadSkillRequest request, Reply<v1::LoadSkillResponse> reply);
  absl::StatusOr<v1::GetListResponse> GetList(const v1::GetListRequest& request);
  v1::ListInstancesResponse ListInstances(const v1::ListInstancesRequest& request);
  std::unique_ptr<core::EventSource<v1::InstanceEvent>> WatchInstances(
      v1::ListInstancesRequest request);

  // Graceful end (S6): refuses new sessions and agents, sends GoAway to agents, ends streams with
  // End{drain}. When no call is open, or `grace` is over, nothing more is taken from agents, what
  // is known goes to the store, and `done` runs once it is durable (or cannot become so).
  void Drain(absl::Duration grace, absl::AnyInvocable<void()> done);

  // From now on, for new calls: the run, queue and skill budgets and the limits on agents, on calls
  // of a session and on params; for open sessions too: the pinned tools. The rest stays.
  // InvalidArgument, and nothing changes, if that breaks the order of the budgets.
  absl::Status Reconfigure(const Budgets& budgets, const Limits& limits,
                           const core::ToolSelection& pinned_tools);

  // OK, or why the store keeps nothing at present: new sessions and what must be durable are then
  // refused, running calls go on.
  absl::Status store_status() const;

  uint64_t term() const;
  ControlPlaneGauges gauges() const;
  void WriteMetrics(core::MetricsText& text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace callboard::server
