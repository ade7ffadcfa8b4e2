// Implementation of ControlService on gRPC's callback API.
#include "server/rpc/control_service.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <string>
#include <utility>

#include "callboard/v1/control.grpc.pb.h"
#include "core/runtime/strings.h"

namespace callboard::server {
namespace {

// Tells a client that a status was said here, and not by the way between: a request that failed on
// the way may have arrived.
constexpr char kOriginKey[] = "callboard-origin";

grpc::Status ToGrpc(grpc::CallbackServerContext& context, const absl::Status& status) {
  if (!status.ok()) context.AddTrailingMetadata(kOriginKey, "control-plane");
  return {static_cast<grpc::StatusCode>(status.code()), std::string(core::Message(status))};
}

// A server stream fed from an EventSource: one write in flight, the next event is asked for when
// the former has been taken, so gRPC's flow control is the back-pressure.
template <class Event>
class SourceReactor final : public grpc::ServerWriteReactor<Event> {
 public:
  SourceReactor(core::EventLoop& loop, grpc::CallbackServerContext& context)
      : loop_(loop), context_(context) {}

  void Adopt(std::shared_ptr<SourceReactor> self) { self_ = std::move(self); }

  // ---- control thread ----
  void Run(std::unique_ptr<core::EventSource<Event>> source) {
    if (cancelled_on_loop_) return;
    source_ = std::move(source);
    Pull();
  }

  // ---- gRPC threads ----
  void OnWriteDone(bool ok) override {
    loop_.Post([self = self_, ok] {
      if (self == nullptr || self->source_ == nullptr) return;
      if (ok) {
        self->Pull();
      } else {
        self->DropSource();
      }
    });
  }

  void OnCancel() override {
    loop_.Post([self = self_] { self->DropSource(); });
  }

  void OnDone() override {
    loop_.Post([self = std::move(self_)] { self->source_ = nullptr; });
  }

 private:
  void Pull() {
    source_->Next([this, self = self_](absl::StatusOr<Event> event) {
      if (!event.ok()) {
        // Destroyed later: the source is still on the stack.
        loop_.Post([self] { self->source_ = nullptr; });
        const bool orderly = absl::IsOutOfRange(event.status());
        return FinishOnce(orderly ? grpc::Status::OK : ToGrpc(context_, event.status()));
      }
      std::lock_guard<std::mutex> lock(mutex_);
      if (finished_) return;
      out_ = *std::move(event);
      this->StartWrite(&out_);
    });
  }

  void DropSource() {
    cancelled_on_loop_ = true;
    source_ = nullptr;
    FinishOnce(grpc::Status::CANCELLED);
  }

  void FinishOnce(grpc::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(finished_, true)) return;
    this->Finish(std::move(status));
  }

  core::EventLoop& loop_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<SourceReactor> self_;
  std::unique_ptr<core::EventSource<Event>> source_;  // control thread only
  bool cancelled_on_loop_ = false;                    // control thread only
  Event out_;
  std::mutex mutex_;
  bool finished_ = false;
};

// A unary call that is answered later, or when it is cancelled: an end of the server waits for no
// answer. Owns itself until OnDone; finished on the loop only.
class LateAnswer final : public grpc::ServerUnaryReactor {
 public:
  explicit LateAnswer(core::EventLoop& loop) : loop_(loop) {}

  void Adopt(std::shared_ptr<LateAnswer> self) { self_ = std::move(self); }

  // ---- control thread ----
  bool finished() const { return finished_; }
  void FinishOnce(grpc::Status status) {
    if (!std::exchange(finished_, true)) Finish(std::move(status));
  }

  // ---- gRPC threads ----
  void OnCancel() override {
    loop_.Post([self = self_] { self->FinishOnce(grpc::Status::CANCELLED); });
  }
  void OnDone() override {
    loop_.Post([self = std::move(self_)] {});
  }

 private:
  core::EventLoop& loop_;
  std::shared_ptr<LateAnswer> self_;
  bool finished_ = false;
};

}  // namespace

struct ControlService::Impl final : v1::ControlPlane::CallbackService {
  Impl(core::EventLoop& event_loop, ControlPlane& plane) : loop(event_loop), control_plane(plane) {}

  // Runs `call` on the loop; its StatusOr becomes the response.
  template <class Request, class Response, class Call>
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context, const Request* request,
                                  Response* response, Call call) {
    auto* reactor = context->DefaultReactor();
    loop.Post([this, context, reactor, request = *request, response, call]() mutable {
      absl::StatusOr<Response> result = call(control_plane, std::move(request));
      const absl::Status status = result.status();
      if (result.ok()) *response = *std::move(result);
      reactor->Finish(ToGrpc(*context, status));
    });
    return reactor;
  }

  // The same for calls that answer later.
  template <class Request, class Response>
  grpc::ServerUnaryReactor* UnaryLater(grpc::CallbackServerContext* context, const Request* request,
                                       Response* response,
                                       void (ControlPlane::*call)(Request, Reply<Response>)) {
    auto reactor = std::make_shared<LateAnswer>(loop);
    reactor->Adopt(reactor);
    loop.Post([this, context, reactor, request = *request, response, call]() mutable {
      (control_plane.*call)(std::move(request),
                            [context, reactor, response](absl::StatusOr<Response> result) {
                              // gRPC's own from then on.
                              if (reactor->finished()) return;
                              const absl::Status status = result.status();
                              if (result.ok()) *response = *std::move(result);
                              reactor->FinishOnce(ToGrpc(*context, status));
                            });
    });
    return reactor.get();
  }

  template <class Request, class Event>
  grpc::ServerWriteReactor<Event>* Stream(
      grpc::CallbackServerContext* context, const Request* request,
      std::unique_ptr<core::EventSource<Event>> (ControlPlane::*call)(Request)) {
    auto reactor = std::make_shared<SourceReactor<Event>>(loop, *context);
    reactor->Adopt(reactor);
    loop.Post([this, reactor, request = *request, call]() mutable {
      reactor->Run((control_plane.*call)(std::move(request)));
    });
    return reactor.get();
  }

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* request,
                                        v1::Session* response) override {
    return UnaryLater(context, request, response, &ControlPlane::OpenSession);
  }
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::SessionRef* request,
                                         v1::CloseSessionResponse* response) override {
    return Unary(
        context, request, response,
        [](ControlPlane& plane, v1::SessionRef ref) -> absl::StatusOr<v1::CloseSessionResponse> {
          if (auto status = plane.CloseSession(ref.session_id()); !status.ok()) {
            return status;
          }
          return v1::CloseSessionResponse();
        });
  }
  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::SessionRef* request,
                                       v1::Session* response) override {
    return Unary(context, request, response, [](ControlPlane& plane, v1::SessionRef ref) {
      return plane.GetSession(ref.session_id());
    });
  }
  grpc::ServerWriteReactor<v1::InvokeEvent>* Invoke(grpc::CallbackServerContext* context,
                                                    const v1::InvokeRequest* request) override {
    return Stream(context, request, &ControlPlane::Invoke);
  }
  grpc::ServerWriteReactor<v1::ListenEvent>* Listen(grpc::CallbackServerContext* context,
                                                    const v1::ListenRequest* request) override {
    return Stream(context, request, &ControlPlane::Listen);
  }
  grpc::ServerWriteReactor<v1::InstanceEvent>* WatchInstances(
      grpc::CallbackServerContext* context, const v1::ListInstancesRequest* request) override {
    return Stream(context, request, &ControlPlane::WatchInstances);
  }
  grpc::ServerUnaryReactor* Send(grpc::CallbackServerContext* context,
                                 const v1::SendRequest* request,
                                 v1::SendResponse* response) override {
    return UnaryLater(context, request, response, &ControlPlane::Send);
  }
  grpc::ServerUnaryReactor* GetCall(grpc::CallbackServerContext* context,
                                    const v1::CallRef* request, v1::Call* response) override {
    return UnaryLater(context, request, response, &ControlPlane::GetCall);
  }
  grpc::ServerUnaryReactor* WaitCall(grpc::CallbackServerContext* context,
                                     const v1::CallRef* request, v1::Call* response) override {
    return UnaryLater(context, request, response, &ControlPlane::WaitCall);
  }
  grpc::ServerUnaryReactor* CancelCall(grpc::CallbackServerContext* context,
                                       const v1::CallRef* request, v1::Call* response) override {
    return UnaryLater(context, request, response, &ControlPlane::CancelCall);
  }
  grpc::ServerUnaryReactor* ListCalls(grpc::CallbackServerContext* context,
                                      const v1::ListCallsRequest* request,
                                      v1::ListCallsResponse* response) override {
    return Unary(context, request, response,
                 [](ControlPlane& plane, const v1::ListCallsRequest& filter)
                     -> absl::StatusOr<v1::ListCallsResponse> { return plane.ListCalls(filter); });
  }
  grpc::ServerUnaryReactor* SearchTools(grpc::CallbackServerContext* context,
                                        const v1::SearchToolsRequest* request,
                                        v1::SearchToolsResponse* response) override {
    return Unary(
        context, request, response,
        [](ControlPlane& plane, const v1::SearchToolsRequest& search)
            -> absl::StatusOr<v1::SearchToolsResponse> { return plane.SearchTools(search); });
  }
  grpc::ServerUnaryReactor* DescribeTool(grpc::CallbackServerContext* context,
                                         const v1::DescribeToolRequest* request,
                                         v1::DescribeToolResponse* response) override {
    return Unary(context, request, response,
                 [](ControlPlane& plane, const v1::DescribeToolRequest& tool) {
                   return plane.DescribeTool(tool);
                 });
  }
  grpc::ServerUnaryReactor* LoadSkill(grpc::CallbackServerContext* context,
                                      const v1::LoadSkillRequest* request,
                                      v1::LoadSkillResponse* response) override {
    return UnaryLater(context, request, response, &ControlPlane::LoadSkill);
  }
  grpc::ServerUnaryReactor* GetList(grpc::CallbackServerContext* context,
                                    const v1::GetListRequest* request,
                                    v1::GetListResponse* response) override {
    return Unary(
        context, request, response,
        [](ControlPlane& plane, const v1::GetListRequest& list) { return plane.GetList(list); });
  }
  grpc::ServerUnaryReactor* ListInstances(grpc::CallbackServerContext* context,
                                          const v1::ListInstancesRequest* request,
                                          v1::ListInstancesResponse* response) override {
    return Unary(
        context, request, response,
        [](ControlPlane& plane, const v1::ListInstancesRequest& filter)
            -> absl::StatusOr<v1::ListInstancesResponse> { return plane.ListInstances(filter); });
  }

  core::EventLoop& loop;
  ControlPlane& control_plane;
};

ControlService::ControlService(core::EventLoop& loop, ControlPlane& control_plane)
    : impl_(std::make_unique<Impl>(loop, control_plane)) {}
ControlService::~ControlService() = default;
grpc::Service* ControlService::service() { return impl_.get(); }

}  // namespace callboard::server
