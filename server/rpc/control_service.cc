// Implementation of ControlService on gRPC's callback API.
#include "server/rpc/control_service.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "callboard/v1/control.grpc.pb.h"
#include "core/runtime/ahead_queue.h"
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

// Behind a notification the next event may be fetched before it has left; whatever is answered,
// asked or has a body is consumed first.
template <class Event>
bool MayBeFollowed(const Event& event) {
  if constexpr (requires { event.has_stream_event(); }) {
    return event.has_stream_event();
  } else {
    return false;
  }
}

// A server stream fed from an EventSource: one write in flight. The next event is asked for while
// there is room behind the one that is being written, so gRPC's flow control is the back-pressure.
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
    bool pull = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      waiting_.Pop();
      if (end_ && !finished_ && (!ok || waiting_.empty())) {
        finished_ = true;
        this->Finish(*end_);
      }
      if (ok && !finished_) {
        if (!waiting_.empty()) WriteNext();
        pull = waiting_.empty() && std::exchange(paused_, false);
      }
    }
    if (ok && !pull) return;
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
        return FinishBehindWrites(orderly ? grpc::Status::OK : ToGrpc(context_, event.status()));
      }
      if (Write(*std::move(event))) Pull();
    });
  }

  // Whether the next event may be asked for at once.
  bool Write(Event event) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return false;
    const bool followed = MayBeFollowed(event);
    waiting_.Push(std::move(event), followed);
    if (waiting_.size() == 1) WriteNext();
    paused_ = !waiting_.has_room();
    return !paused_;
  }

  void WriteNext() {
    grpc::WriteOptions options;
    // Another write follows for certain: they may share a frame.
    if (waiting_.size() > 1) options.set_buffer_hint();
    this->StartWrite(&waiting_.front(), options);
  }

  void DropSource() {
    cancelled_on_loop_ = true;
    source_ = nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(finished_, true)) return;
    this->Finish(grpc::Status::CANCELLED);
  }

  void FinishBehindWrites(grpc::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_ || end_) return;
    end_ = std::move(status);
    if (!waiting_.empty()) return;
    finished_ = true;
    this->Finish(*end_);
  }

  core::EventLoop& loop_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<SourceReactor> self_;
  std::unique_ptr<core::EventSource<Event>> source_;  // control thread only
  bool cancelled_on_loop_ = false;                    // control thread only
  std::mutex mutex_;
  core::AheadQueue<Event> waiting_;  // the first is being written
  bool paused_ = false;              // the source is to be asked again when all is written
  std::optional<grpc::Status> end_;  // said when all is written
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
    return UnaryLater(context, request, response, &ControlPlane::CloseSession);
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
  grpc::ServerWriteReactor<v1::InvokeEvent>* FetchOutcome(grpc::CallbackServerContext* context,
                                                          const v1::CallRef* request) override {
    return Stream(context, request, &ControlPlane::FetchOutcome);
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
