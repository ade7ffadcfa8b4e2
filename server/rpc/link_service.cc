// Implementation of LinkService on gRPC's callback API.
#include "server/rpc/link_service.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <string>
#include <utility>

#include "callboard/v1/agent.grpc.pb.h"
#include "core/runtime/strings.h"

namespace callboard::server {
namespace {

// One Attach. gRPC calls it on its own threads; the control thread calls Open, Write and Close.
// Owns itself until OnDone; the loop's side holds a second reference, so that a late Write or Close
// finds an object that says "over".
class AttachReactor final : public grpc::ServerBidiReactor<v1::AgentFrame, v1::ServerFrame> {
 public:
  explicit AttachReactor(core::EventLoop& loop) : loop_(loop) {}

  void Adopt(std::shared_ptr<AttachReactor> self) {
    self_ = std::move(self);
    // At once: otherwise an agent could not tell an accepted stream from a pending one.
    StartSendInitialMetadata();
  }

  // ---- control thread ----
  void Open(AgentLink::Handler* handler) {
    handler_ = handler;
    std::lock_guard<std::mutex> lock(mutex_);
    if (!over_) StartRead(&in_);
  }

  void Write(v1::ServerFrame frame) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (over_ || finish_requested_) return;
    out_ = std::move(frame);
    writing_ = true;
    asked_ = false;
    StartWrite(&out_);
  }

  bool TakeWritten() {
    std::lock_guard<std::mutex> lock(mutex_);
    asked_ = writing_;
    return !writing_ && !over_;
  }

  // A confirmation that was posted is stale if the loop has found out by itself meanwhile.
  bool MustTell() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !writing_ && std::exchange(asked_, false);
  }

  void Close(const absl::Status& status) {
    handler_ = nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    RequestFinish(grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                               std::string(core::Message(status))));
  }

  // ---- gRPC threads ----
  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        RequestFinish(grpc::Status::OK);
      }
      PostToHandler([](AgentLink::Handler* handler) {
        handler->OnClosed(absl::UnavailableError("the agent's stream ended"));
      });
      return;
    }
    loop_.Post([self = self_, frame = std::move(in_)]() mutable {
      if (self->handler_ != nullptr) self->handler_->OnMessage(std::move(frame));
    });
    in_ = v1::AgentFrame();
    std::lock_guard<std::mutex> lock(mutex_);
    if (!over_) StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      writing_ = false;
      if (finish_requested_) FinishNow();
      if (!asked_) return;
    }
    // A failed write is followed by a failed read, which tells the handler.
    if (!ok) return;
    loop_.Post([self = self_] {
      if (self->handler_ != nullptr && self->MustTell()) self->handler_->OnWritten();
    });
  }

  void OnDone() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    // The last reference goes on the loop, after everything posted before.
    loop_.Post([self = std::move(self_)] {});
  }

 private:
  template <class Fn>
  void PostToHandler(Fn fn) {
    loop_.Post([self = self_, fn] {
      if (self->handler_ != nullptr) fn(self->handler_);
    });
  }

  void RequestFinish(grpc::Status status) {
    if (over_ || finish_requested_) return;
    finish_requested_ = true;
    finish_status_ = std::move(status);
    if (!writing_) FinishNow();
  }

  void FinishNow() {
    if (finished_) return;
    finished_ = true;
    Finish(finish_status_);
  }

  core::EventLoop& loop_;
  std::shared_ptr<AttachReactor> self_;
  AgentLink::Handler* handler_ = nullptr;  // control thread only
  v1::AgentFrame in_;
  v1::ServerFrame out_;

  std::mutex mutex_;
  bool over_ = false;
  bool writing_ = false;
  bool asked_ = false;  // the loop waits to be told that the write is over
  bool finish_requested_ = false;
  bool finished_ = false;
  grpc::Status finish_status_;
};

class GrpcAgentLink final : public AgentLink {
 public:
  explicit GrpcAgentLink(std::shared_ptr<AttachReactor> reactor) : reactor_(std::move(reactor)) {}
  ~GrpcAgentLink() override { reactor_->Close(absl::OkStatus()); }

  void Open(Handler* handler) override { reactor_->Open(handler); }
  void Write(v1::ServerFrame message) override { reactor_->Write(std::move(message)); }
  bool TakeWritten() override { return reactor_->TakeWritten(); }
  void Close(absl::Status status) override { reactor_->Close(status); }

 private:
  std::shared_ptr<AttachReactor> reactor_;
};

PeerIdentity IdentityOf(const grpc::CallbackServerContext& context) {
  PeerIdentity peer;
  peer.address = context.peer();
  if (auto auth = context.auth_context(); auth != nullptr && auth->IsPeerAuthenticated()) {
    const auto names = auth->FindPropertyValues("x509_subject_alternative_name");
    if (!names.empty()) peer.transport_agent = std::string(names[0].data(), names[0].size());
  }
  const auto& metadata = context.client_metadata();
  if (auto it = metadata.find("authorization"); it != metadata.end()) {
    peer.authorization = std::string(it->second.data(), it->second.size());
  }
  return peer;
}

}  // namespace

struct LinkService::Impl final : v1::AgentLink::CallbackService {
  Impl(core::EventLoop& event_loop, OnAttach attach)
      : loop(event_loop), on_attach(std::make_shared<OnAttach>(std::move(attach))) {}

  grpc::ServerBidiReactor<v1::AgentFrame, v1::ServerFrame>* Attach(
      grpc::CallbackServerContext* context) override {
    auto reactor = std::make_shared<AttachReactor>(loop);
    reactor->Adopt(reactor);
    loop.Post([attach = on_attach, reactor, peer = IdentityOf(*context)]() mutable {
      (*attach)(std::make_unique<GrpcAgentLink>(std::move(reactor)), std::move(peer));
    });
    return reactor.get();
  }

  core::EventLoop& loop;
  std::shared_ptr<OnAttach> on_attach;
};

LinkService::LinkService(core::EventLoop& loop, OnAttach on_attach)
    : impl_(std::make_unique<Impl>(loop, std::move(on_attach))) {}
LinkService::~LinkService() = default;
grpc::Service* LinkService::service() { return impl_.get(); }

}  // namespace callboard::server
