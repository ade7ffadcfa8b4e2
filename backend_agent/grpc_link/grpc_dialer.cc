// Implementation of the gRPC dialer on the callback API.
#include "backend_agent/grpc_link/grpc_dialer.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "callboard/v1/agent.grpc.pb.h"
#include "core/runtime/loop_gate.h"
#include "core/runtime/loopback.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::agent {
namespace {

// A server that says "too many pings" is pinged half as often from the next link on.
constexpr absl::Duration kKeepaliveMost = absl::Minutes(5);

struct PingPace {
  absl::Duration interval;

  void OnStreamEnd(const absl::Status& status) {
    const std::string_view why = core::Message(status);
    if (why.find("too_many_pings") == std::string_view::npos &&
        why.find("Too many pings") == std::string_view::npos) {
      return;
    }
    const absl::Duration former = interval;
    interval = std::min(interval * 2, std::max(interval, kKeepaliveMost));
    core::LogWarn("keepalive_slowed", {{"reason", why},
                                       {"former_ms", absl::ToInt64Milliseconds(former)},
                                       {"interval_ms", absl::ToInt64Milliseconds(interval)}});
  }
};

// One Attach as seen by the agent. gRPC calls it on its own threads, the loop calls Open, Write and
// Close. The loop starts writes only under the mutex and never after `released_`; gRPC calls OnDone
// once the stream has ended, no operation is left and the hold is gone. Destroyed on the loop.
class AttachReactor final : public grpc::ClientBidiReactor<v1::AgentFrame, v1::ServerFrame> {
 public:
  AttachReactor(std::shared_ptr<core::LoopGate> loop, std::shared_ptr<PingPace> pace,
                std::shared_ptr<grpc::Channel> channel)
      : loop_(std::move(loop)),
        pace_(std::move(pace)),
        channel_(std::move(channel)),
        stub_(v1::AgentLink::NewStub(channel_)) {}

  void Open(std::shared_ptr<AttachReactor> self, ControlPlaneLink::Handler* handler) {
    handler_ = handler;
    opened_ = true;
    self_ = std::move(self);
    loop_->OnBegin();
    stub_->async()->Attach(&context_, this);
    // A hold, because operations start from the loop and not only from reactions; it is removed
    // exactly once, by the first failed read or by Close, whichever comes first.
    AddHold();
    StartRead(&in_);
    StartCall();
  }

  // ---- loop thread ----
  void Write(v1::AgentFrame frame) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (released_) return;
    out_ = std::move(frame);
    written_ = asked_ = false;
    StartWrite(&out_);
  }

  bool TakeWritten() {
    std::lock_guard<std::mutex> lock(mutex_);
    asked_ = !written_;
    return written_;
  }

  // A confirmation that was posted is stale if the loop has found out by itself meanwhile.
  bool MustTell() {
    std::lock_guard<std::mutex> lock(mutex_);
    return written_ && std::exchange(asked_, false);
  }

  void Close() {
    handler_ = nullptr;
    if (!opened_) return;
    context_.TryCancel();
    ReleaseHold();
  }

  // ---- gRPC threads ----
  void OnReadDone(bool ok) override {
    if (!ok) {
      ReleaseHold();
      return;
    }
    loop_->Post([self = self_, frame = std::move(in_)]() mutable {
      if (self->handler_ != nullptr) self->handler_->OnMessage(std::move(frame));
    });
    in_ = v1::ServerFrame();
    StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      written_ = true;
      if (!asked_) return;
    }
    loop_->Post([self = self_] {
      if (self->handler_ != nullptr && self->MustTell()) self->handler_->OnWritten();
    });
  }

  void OnDone(const grpc::Status& status) override {
    // No reference may stay here: the last one goes on the loop.
    auto loop = loop_;
    loop->Post([self = std::move(self_),
                status = absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                      core::ToAbsl(status.error_message()))]() mutable {
      self->pace_->OnStreamEnd(status);
      if (self->handler_ != nullptr) {
        auto* handler = std::exchange(self->handler_, nullptr);
        handler->OnClosed(std::move(status));
      }
    });
    loop->OnEnd();
  }

 private:
  void ReleaseHold() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (released_) return;
      released_ = true;
    }
    RemoveHold();
  }

  std::shared_ptr<core::LoopGate> loop_;
  std::shared_ptr<PingPace> pace_;  // loop thread only
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AgentLink::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<AttachReactor> self_;           // until OnDone
  ControlPlaneLink::Handler* handler_ = nullptr;  // loop thread only
  bool opened_ = false;                           // loop thread only
  v1::ServerFrame in_;
  v1::AgentFrame out_;

  std::mutex mutex_;
  bool released_ = false;
  bool written_ = false;  // the last write has been taken
  bool asked_ = false;    // the loop waits to be told
};

class GrpcControlPlaneLink final : public ControlPlaneLink {
 public:
  explicit GrpcControlPlaneLink(std::shared_ptr<AttachReactor> reactor)
      : reactor_(std::move(reactor)) {}
  ~GrpcControlPlaneLink() override { reactor_->Close(); }

  void Open(Handler* handler) override { reactor_->Open(reactor_, handler); }
  void Write(v1::AgentFrame message) override { reactor_->Write(std::move(message)); }
  bool TakeWritten() override { return reactor_->TakeWritten(); }
  void Close(absl::Status) override { reactor_->Close(); }

 private:
  std::shared_ptr<AttachReactor> reactor_;
};

class GrpcDialer final : public LinkDialer {
 public:
  GrpcDialer(core::EventLoop& loop, GrpcDialerOptions options)
      : loop_(std::make_shared<core::LoopGate>(loop)),
        options_(std::move(options)),
        pace_(std::make_shared<PingPace>(PingPace{options_.keepalive_interval})) {}
  ~GrpcDialer() override { loop_->Close(); }

  std::unique_ptr<ControlPlaneLink> Dial(const std::string& address) override {
    grpc::ChannelArguments arguments;
    const auto ms = [](absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(d)); };
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ms(pace_->interval));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms(options_.keepalive_timeout));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    if (core::IsLoopback(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    auto channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    return std::make_unique<GrpcControlPlaneLink>(
        std::make_shared<AttachReactor>(loop_, pace_, std::move(channel)));
  }

 private:
  std::shared_ptr<core::LoopGate> loop_;
  GrpcDialerOptions options_;
  std::shared_ptr<PingPace> pace_;
};

}  // namespace

std::unique_ptr<LinkDialer> MakeGrpcDialer(core::EventLoop& loop, GrpcDialerOptions options) {
  return std::make_unique<GrpcDialer>(loop, std::move(options));
}

}  // namespace callboard::agent
