// Implementation of BridgeNetwork.
#include "tests/sim/bridge_network.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "apps/local_control_plane_client.h"
#include "core/runtime/lifetime.h"

namespace callboard::sim {
namespace {

// Events of one source that are under way at a time.
constexpr size_t kUnderWayMax = 4;

absl::Status Lost() {
  return absl::UnavailableError("the connection to the control plane is lost");
}

// One RPC, from its beginning to its last message.
struct Rpc {
  std::string bridge;
  bool over = false;
  absl::AnyInvocable<void()> on_lost;  // at the bridge
  absl::AnyInvocable<void()> drop;     // at the control plane
};

}  // namespace

struct BridgeNetwork::State : std::enable_shared_from_this<State> {
  State(core::EventLoop& event_loop, absl::Duration one_way) : loop(event_loop), latency(one_way) {}

  // At the other end.
  void Later(absl::AnyInvocable<void()> arrive) {
    const uint64_t number = ++last_timer;
    timers[number] = loop.After(latency, [this, number, arrive = std::move(arrive)]() mutable {
      auto timer = timers.extract(number);
      arrive();
    });
  }
  std::shared_ptr<Rpc> Begin(const std::string& bridge) {
    auto rpc = std::make_shared<Rpc>();
    rpc->bridge = bridge;
    rpcs[++last_rpc] = rpc;
    return rpc;
  }
  void End(Rpc& rpc) {
    if (std::exchange(rpc.over, true)) return;
    std::erase_if(rpcs, [&rpc](const auto& entry) { return entry.second.get() == &rpc; });
  }
  void Lose(const std::shared_ptr<Rpc>& rpc) {
    if (rpc->over) return;
    End(*rpc);
    if (rpc->drop) rpc->drop();
    Later([rpc] { rpc->on_lost(); });
  }
  void LoseAll(std::optional<std::string_view> bridge) {
    std::vector<std::shared_ptr<Rpc>> lost;
    for (const auto& [number, rpc] : rpcs) {
      if (!bridge || rpc->bridge == *bridge) lost.push_back(rpc);
    }
    for (const auto& rpc : lost) Lose(rpc);
  }

  core::EventLoop& loop;
  const absl::Duration latency;
  std::unique_ptr<bridge::ControlPlaneClient> plane;  // nullptr: nobody is there
  std::map<uint64_t, std::shared_ptr<Rpc>> rpcs;
  uint64_t last_rpc = 0;
  std::map<uint64_t, core::Timer> timers;
  uint64_t last_timer = 0;
};

namespace {

using State = BridgeNetwork::State;

// The bridge's end of a stream of events.
template <class Event, class Request>
class RemoteSource final : public core::EventSource<Event> {
 public:
  using Open = std::unique_ptr<core::EventSource<Event>> (bridge::ControlPlaneClient::*)(Request);

  RemoteSource(std::shared_ptr<State> state, const std::string& bridge, Request request, Open open)
      : state_(std::move(state)), rpc_(state_->Begin(bridge)), far_(std::make_shared<Far>()) {
    far_->arrive = lifetime_.Wrap([this](absl::StatusOr<Event> event) {
      arrived_.push_back(std::move(event));
      Give();
    });
    rpc_->on_lost = [far = far_] { far->arrive(Lost()); };
    rpc_->drop = [far = far_] { far->source.reset(); };
    state_->Later([state = state_.get(), rpc = rpc_, far = far_, request = std::move(request),
                   open]() mutable {
      if (rpc->over) return;
      if (state->plane == nullptr) return state->Lose(rpc);
      far->source = (state->plane.get()->*open)(std::move(request));
      Pull(*state, rpc, far);
    });
  }
  ~RemoteSource() override {
    if (rpc_->over) return;
    state_->Later([state = state_.get(), rpc = rpc_] {
      if (rpc->over) return;
      state->End(*rpc);
      rpc->drop();
    });
  }

  void Next(absl::AnyInvocable<void(absl::StatusOr<Event>)> callback) override {
    callback_ = std::move(callback);
    Give();
  }

 private:
  // The control plane's end.
  struct Far {
    std::unique_ptr<core::EventSource<Event>> source;
    bool asked = false;
    size_t under_way = 0;
    absl::AnyInvocable<void(absl::StatusOr<Event>)> arrive;
  };

  static void Pull(State& state, const std::shared_ptr<Rpc>& rpc, const std::shared_ptr<Far>& far) {
    if (rpc->over || far->asked || far->under_way >= kUnderWayMax) return;
    far->asked = true;
    far->source->Next([&state, rpc, far = std::weak_ptr<Far>(far)](absl::StatusOr<Event> event) {
      const auto here = far.lock();
      if (here == nullptr || rpc->over) return;
      here->asked = false;
      ++here->under_way;
      const bool last = !event.ok();
      if (last) state.End(*rpc);
      state.Later([here, event = std::move(event)]() mutable { here->arrive(std::move(event)); });
      // Not from inside the source.
      if (!last) state.loop.Post([&state, rpc, here] { Pull(state, rpc, here); });
    });
  }

  void Give() {
    if (callback_ == nullptr || arrived_.empty()) return;
    auto callback = std::exchange(callback_, nullptr);
    absl::StatusOr<Event> event = std::move(arrived_.front());
    arrived_.pop_front();
    if (event.ok()) {
      // There is room for another.
      state_->Later([state = state_.get(), rpc = rpc_, far = far_] {
        --far->under_way;
        Pull(*state, rpc, far);
      });
    }
    callback(std::move(event));
  }

  const std::shared_ptr<State> state_;
  const std::shared_ptr<Rpc> rpc_;
  const std::shared_ptr<Far> far_;
  std::deque<absl::StatusOr<Event>> arrived_;
  absl::AnyInvocable<void(absl::StatusOr<Event>)> callback_;
  core::Lifetime lifetime_;
};

class RemoteClient final : public bridge::ControlPlaneClient {
 public:
  RemoteClient(std::shared_ptr<State> state, std::string bridge)
      : state_(std::move(state)), bridge_(std::move(bridge)) {}

  void OpenSession(v1::OpenSessionRequest request, bridge::Reply<v1::Session> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::OpenSession);
  }
  void GetSession(v1::SessionRef request, bridge::Reply<v1::Session> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::GetSession);
  }
  void CloseSession(v1::SessionRef request,
                    bridge::Reply<v1::CloseSessionResponse> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::CloseSession);
  }
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Invoke(v1::InvokeRequest request) override {
    return std::make_unique<RemoteSource<v1::InvokeEvent, v1::InvokeRequest>>(
        state_, bridge_, std::move(request), &ControlPlaneClient::Invoke);
  }
  std::unique_ptr<core::EventSource<v1::ListenEvent>> Listen(v1::ListenRequest request) override {
    return std::make_unique<RemoteSource<v1::ListenEvent, v1::ListenRequest>>(
        state_, bridge_, std::move(request), &ControlPlaneClient::Listen);
  }
  void Send(v1::SendRequest request, bridge::Reply<v1::SendResponse> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::Send);
  }
  void GetCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::GetCall);
  }
  void WaitCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::WaitCall);
  }
  void CancelCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::CancelCall);
  }
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> FetchOutcome(v1::CallRef request) override {
    return std::make_unique<RemoteSource<v1::InvokeEvent, v1::CallRef>>(
        state_, bridge_, std::move(request), &ControlPlaneClient::FetchOutcome);
  }
  void SearchTools(v1::SearchToolsRequest request,
                   bridge::Reply<v1::SearchToolsResponse> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::SearchTools);
  }
  void DescribeTool(v1::DescribeToolRequest request,
                    bridge::Reply<v1::DescribeToolResponse> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::DescribeTool);
  }
  void LoadSkill(v1::LoadSkillRequest request,
                 bridge::Reply<v1::LoadSkillResponse> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::LoadSkill);
  }
  void GetList(v1::GetListRequest request, bridge::Reply<v1::GetListResponse> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::GetList);
  }
  void ListInstances(v1::ListInstancesRequest request,
                     bridge::Reply<v1::ListInstancesResponse> reply) override {
    Ask(std::move(request), std::move(reply), &ControlPlaneClient::ListInstances);
  }

 private:
  template <class Request, class Response>
  void Ask(Request request, bridge::Reply<Response> reply,
           void (ControlPlaneClient::*method)(Request, bridge::Reply<Response>)) {
    auto rpc = state_->Begin(bridge_);
    auto answer = std::make_shared<bridge::Reply<Response>>(lifetime_.Wrap(std::move(reply)));
    rpc->on_lost = [answer] { (*answer)(Lost()); };
    auto take = [state = state_.get(), rpc, answer](absl::StatusOr<Response> response) {
      if (rpc->over) return;
      state->End(*rpc);
      state->Later(
          [answer, response = std::move(response)]() mutable { (*answer)(std::move(response)); });
    };
    state_->Later([state = state_.get(), rpc, request = std::move(request), method,
                   take = std::move(take)]() mutable {
      if (rpc->over) return;
      if (state->plane == nullptr) return state->Lose(rpc);
      (state->plane.get()->*method)(std::move(request), std::move(take));
    });
  }

  const std::shared_ptr<State> state_;
  const std::string bridge_;
  core::Lifetime lifetime_;
};

}  // namespace

BridgeNetwork::BridgeNetwork(core::EventLoop& loop, core::Random& random)
    : state_(std::make_shared<State>(
          loop, absl::Microseconds(100 + static_cast<int64_t>(random.Below(5'000))))) {}

BridgeNetwork::~BridgeNetwork() = default;

void BridgeNetwork::Serve(server::ControlPlane* plane) {
  if (plane == nullptr) {
    state_->LoseAll(std::nullopt);
    state_->plane = nullptr;
  } else {
    state_->plane = apps::MakeLocalControlPlaneClient(*plane);
  }
}

void BridgeNetwork::Break(std::string_view bridge) { state_->LoseAll(bridge); }

std::unique_ptr<bridge::ControlPlaneClient> BridgeNetwork::MakeClient(std::string bridge) {
  return std::make_unique<RemoteClient>(state_, std::move(bridge));
}

}  // namespace callboard::sim
