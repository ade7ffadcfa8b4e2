// Implementation of PlaneChannels.
#include "bridge/grpc_client/plane_channels.h"

#include <fmt/format.h>
#include <grpc/support/time.h>

#include <utility>

#include "core/runtime/loopback.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::bridge {
namespace {

// A host that drops packets must not hold up the next attempt for gRPC's 20 s.
constexpr absl::Duration kConnectMax = absl::Seconds(3);

int Ms(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const GrpcControlPlaneOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Ms(options.keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Ms(options.keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Ms(options.backoff_first));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Ms(kConnectMax));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Ms(options.backoff_max));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // What may be sent again is decided here, not below.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Lists of tools have no limit; results come in chunks.
  arguments.SetMaxReceiveMessageSize(-1);
  if (core::IsLoopback(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

PlaneChannels::PlaneChannels(core::EventLoop& loop, std::shared_ptr<core::LoopGate> gate,
                             const GrpcControlPlaneOptions& options)
    : loop_(loop),
      gate_(std::move(gate)),
      connect_wait_(options.connect_wait),
      waiting_max_(options.waiting_max),
      lost_at_(loop.Now()) {
  for (const std::string& address : options.addresses) {
    auto plane = std::make_unique<PlaneChannel>();
    plane->address = address;
    plane->channel = MakeChannel(address, options);
    plane->stub = v1::ControlPlane::NewStub(plane->channel);
    planes_.push_back(std::move(plane));
  }
  ProbeAll();
  watch_ = loop_.After(kWatchEvery, [this] { Watch(); });
}

bool PlaneChannels::IsUp(PlaneChannel& plane) {
  const bool up = plane.channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY;
  if (std::exchange(plane.up, up) != up) ++(up ? plane.ups : plane.downs);
  return up;
}

void PlaneChannels::Watch() {
  for (auto& plane : planes_) IsUp(*plane);
  if (Connected() == nullptr) ProbeAll();
  watch_ = loop_.After(kWatchEvery, [this] { Watch(); });
}

void PlaneChannels::WriteMetrics(core::MetricsText& text) const {
  text.Gauge("callboard_bridge_control_plane_up",
             "Whether the bridge is connected to a control plane, by address.");
  for (const auto& plane : planes_) text.Sample(plane->up, {{"address", plane->address}});
  text.Counter("callboard_bridge_control_plane_ups_total", "Connections to a control plane made.");
  for (const auto& plane : planes_) text.Sample(plane->ups, {{"address", plane->address}});
  text.Counter("callboard_bridge_control_plane_downs_total", "Such connections lost.");
  for (const auto& plane : planes_) text.Sample(plane->downs, {{"address", plane->address}});
}

PlaneChannel* PlaneChannels::Connected() {
  for (size_t i = 0; i < planes_.size(); ++i) {
    const size_t at = (used_ + i) % planes_.size();
    if (!IsUp(*planes_[at])) continue;
    if (!connected_ || at != used_) {
      core::LogInfo("control_plane_up",
                    {{"peer", planes_[at]->address},
                     {"duration_ms", absl::ToInt64Milliseconds(loop_.Now() - lost_at_)}});
    }
    used_ = at;
    connected_ = true;
    return planes_[at].get();
  }
  if (std::exchange(connected_, false)) {
    lost_at_ = loop_.Now();
    core::LogWarn("control_plane_down", {{"peer", planes_[used_]->address}});
  }
  return nullptr;
}

void PlaneChannels::WhenConnected(Use use) {
  if (PlaneChannel* const plane = Connected()) return use(plane);
  if (waiting_.size() >= waiting_max_) {
    return use(core::MakeError(
        absl::StatusCode::kResourceExhausted,
        fmt::format("{} requests wait for the control plane already", waiting_.size())));
  }
  waiting_.push_back({loop_.Now() + connect_wait_, std::move(use)});
  if (!look_.pending()) look_ = loop_.After(connect_wait_, [this] { Look(); });
  ProbeAll();
}

void PlaneChannels::ProbeAll() {
  for (auto& plane : planes_) {
    if (plane->probe == nullptr) Probe(*plane);
  }
}

void PlaneChannels::Probe(PlaneChannel& plane) {
  auto probe = std::make_shared<PlaneChannel::Probe>();
  plane.probe = probe;
  probe->context.set_wait_for_ready(true);
  probe->context.set_deadline(gpr_time_from_millis(Ms(connect_wait_) + 1, GPR_TIMESPAN));
  gate_->OnBegin();
  auto& sent = *probe;
  plane.stub->async()->GetSession(
      &sent.context, &sent.request, &sent.response,
      [this, &plane, gate = gate_, alive = lifetime_.Watch(),
       probe = std::move(probe)](const grpc::Status&) mutable {
        auto there = std::move(gate);
        there->Post([this, &plane, alive = std::move(alive), probe = std::move(probe)] {
          if (alive.expired()) return;
          plane.probe = nullptr;
          Look();
        });
        there->OnEnd();
      });
}

void PlaneChannels::Look() {
  // What is run may ask anew; that waits for the next look.
  std::deque<Waiting> due;
  PlaneChannel* const plane = Connected();
  const absl::Time now = loop_.Now();
  while (!waiting_.empty() && (plane != nullptr || waiting_.front().until <= now)) {
    due.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  look_.Cancel();
  if (!waiting_.empty()) {
    look_ = loop_.At(waiting_.front().until, [this] { Look(); });
    ProbeAll();
  }
  const auto alive = lifetime_.Watch();
  for (Waiting& waiting : due) {
    if (plane != nullptr) {
      waiting.use(plane);
    } else {
      waiting.use(NobodyAnswers());
    }
    if (alive.expired()) return;
  }
}

void PlaneChannels::Clear() {
  watch_.Cancel();
  look_.Cancel();
  waiting_.clear();
  for (auto& plane : planes_) {
    if (plane->probe != nullptr) plane->probe->context.TryCancel();
  }
}

absl::Status PlaneChannels::NobodyAnswers() const {
  std::string addresses;
  for (const auto& plane : planes_) {
    addresses.append(addresses.empty() ? "" : " or ").append(plane->address);
  }
  return core::MakeError(absl::StatusCode::kUnavailable,
                         fmt::format("no control plane answers at {}, waited {}; nothing was "
                                     "started, try again",
                                     addresses, absl::FormatDuration(connect_wait_)));
}

}  // namespace callboard::bridge
