// Implementation of the client on gRPC's callback API.
#include "bridge/grpc_client/grpc_control_plane_client.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <type_traits>
#include <utility>

#include "bridge/grpc_client/plane_channels.h"
#include "bridge/grpc_client/remote_source.h"
#include "bridge/grpc_client/rpc_status.h"
#include "callboard/v1/control.grpc.pb.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/loop_gate.h"

namespace callboard::bridge {
namespace {

using Async = v1::ControlPlane::StubInterface::async_interface;

// Whether a question whose answer was lost may be asked again: most only look, or do the same
// twice; a session opened twice expires unused.
enum class Again { kHarmless, kNever };

class GrpcControlPlaneClient final : public ControlPlaneClient {
 public:
  GrpcControlPlaneClient(core::EventLoop& loop, GrpcControlPlaneOptions options)
      : loop_(loop),
        options_(std::move(options)),
        gate_(std::make_shared<core::LoopGate>(loop)),
        planes_(loop, gate_, options_) {}

  ~GrpcControlPlaneClient() override {
    planes_.Clear();
    // Replies are destroyed here, on the loop; what gRPC still holds is cancelled.
    questions_.clear();
    gate_->Close();
  }

  void WriteMetrics(core::MetricsText& text) const override { planes_.WriteMetrics(text); }

  void OpenSession(v1::OpenSessionRequest request, Reply<v1::Session> reply) override {
    Ask(&Async::OpenSession, std::move(request), std::move(reply));
  }
  void GetSession(v1::SessionRef request, Reply<v1::Session> reply) override {
    Ask(&Async::GetSession, std::move(request), std::move(reply));
  }
  void CloseSession(v1::SessionRef request, Reply<v1::CloseSessionResponse> reply) override {
    Ask(&Async::CloseSession, std::move(request), std::move(reply));
  }
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Invoke(v1::InvokeRequest request) override {
    return std::make_unique<RemoteSource<v1::InvokeRequest, v1::InvokeEvent>>(
        gate_, planes_, std::move(request), &Async::Invoke);
  }
  std::unique_ptr<core::EventSource<v1::ListenEvent>> Listen(v1::ListenRequest request) override {
    return std::make_unique<RemoteSource<v1::ListenRequest, v1::ListenEvent>>(
        gate_, planes_, std::move(request), &Async::Listen);
  }
  void Send(v1::SendRequest request, Reply<v1::SendResponse> reply) override {
    Ask(&Async::Send, std::move(request), std::move(reply));
  }
  void GetCall(v1::CallRef request, Reply<v1::Call> reply) override {
    Ask(&Async::GetCall, std::move(request), std::move(reply));
  }
  void WaitCall(v1::CallRef request, Reply<v1::Call> reply) override {
    const auto wait = absl::Milliseconds(
        static_cast<int64_t>(std::min<uint64_t>(request.wait_ms(), 24ull * 3600 * 1000)));
    Ask(&Async::WaitCall, std::move(request), std::move(reply), wait + options_.unary_wait);
  }
  void CancelCall(v1::CallRef request, Reply<v1::Call> reply) override {
    Ask(&Async::CancelCall, std::move(request), std::move(reply));
  }
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> FetchOutcome(v1::CallRef request) override {
    return std::make_unique<RemoteSource<v1::CallRef, v1::InvokeEvent>>(
        gate_, planes_, std::move(request), &Async::FetchOutcome);
  }
  void SearchTools(v1::SearchToolsRequest request, Reply<v1::SearchToolsResponse> reply) override {
    Ask(&Async::SearchTools, std::move(request), std::move(reply));
  }
  void DescribeTool(v1::DescribeToolRequest request,
                    Reply<v1::DescribeToolResponse> reply) override {
    Ask(&Async::DescribeTool, std::move(request), std::move(reply));
  }
  void LoadSkill(v1::LoadSkillRequest request, Reply<v1::LoadSkillResponse> reply) override {
    Ask(&Async::LoadSkill, std::move(request), std::move(reply), options_.skill_wait,
        Again::kNever);
  }
  void GetList(v1::GetListRequest request, Reply<v1::GetListResponse> reply) override {
    Ask(&Async::GetList, std::move(request), std::move(reply));
  }
  void ListInstances(v1::ListInstancesRequest request,
                     Reply<v1::ListInstancesResponse> reply) override {
    Ask(&Async::ListInstances, std::move(request), std::move(reply));
  }

 private:
  template <class Request, class Response>
  using Method = void (Async::*)(grpc::ClientContext*, const Request*, Response*,
                                 std::function<void(grpc::Status)>);

  // What gRPC holds of one attempt; the last reference goes on the loop.
  template <class Request, class Response>
  struct Attempt {
    grpc::ClientContext context;
    Request request;
    Response response;
    std::string address;
  };

  // A unary question until its reply; owned by questions_.
  template <class Request, class Response>
  struct Question {
    ~Question() {
      if (attempt != nullptr) attempt->context.TryCancel();
    }
    uint64_t number = 0;
    Method<Request, Response> method;
    Request request;
    Reply<Response> reply;
    absl::Duration wait;  // for one attempt
    absl::Time until;     // no further one after that
    Again again;
    std::shared_ptr<Attempt<Request, Response>> attempt;
  };

  template <class Request, class Response>
  void Ask(Method<Request, Response> method, Request request, Reply<Response> reply) {
    // A little later than the bridge's own timer, which says more.
    Ask(method, std::move(request), std::move(reply), options_.unary_wait + absl::Seconds(1));
  }
  template <class Request, class Response>
  void Ask(Method<Request, Response> method, Request request, Reply<Response> reply,
           absl::Duration wait, Again again = Again::kHarmless) {
    auto question = std::make_shared<Question<Request, Response>>();
    question->number = ++last_question_;
    question->method = method;
    question->request = std::move(request);
    question->reply = std::move(reply);
    question->wait = wait;
    question->until = loop_.Now() + wait;
    question->again = again;
    questions_.emplace(question->number, question);
    Try(*question);
  }

  template <class Request, class Response>
  void Try(Question<Request, Response>& question) {
    planes_.WhenConnected([this, &question](absl::StatusOr<PlaneChannel*> plane) {
      if (!plane.ok()) return Answer(question, plane.status());
      Send(question, **plane);
    });
  }

  template <class Request, class Response>
  void Send(Question<Request, Response>& question, PlaneChannel& plane) {
    auto attempt = std::make_shared<Attempt<Request, Response>>();
    question.attempt = attempt;
    attempt->request = question.request;
    attempt->address = plane.address;
    // A span, so that neither clock matters.
    attempt->context.set_deadline(
        gpr_time_from_millis(absl::ToInt64Milliseconds(question.wait), GPR_TIMESPAN));
    gate_->OnBegin();
    auto& sent = *attempt;
    (plane.stub->async()->*question.method)(
        &sent.context, &sent.request, &sent.response,
        [this, gate = gate_, alive = lifetime_.Watch(), number = question.number,
         attempt = std::move(attempt)](grpc::Status status) mutable {
          auto there = std::move(gate);
          there->Post([this, alive = std::move(alive), number, attempt = std::move(attempt),
                       status = std::move(status)]() mutable {
            if (alive.expired()) return;
            const auto found = questions_.find(number);
            if (found == questions_.end()) return;
            OnEnd(*static_cast<Question<Request, Response>*>(found->second.get()), *attempt,
                  status);
          });
          there->OnEnd();
        });
  }

  template <class Request, class Response>
  void OnEnd(Question<Request, Response>& question, Attempt<Request, Response>& attempt,
             const grpc::Status& status) {
    question.attempt = nullptr;
    const absl::Status end = RpcEnd(status, attempt.context, attempt.address);
    if (end.ok()) return Answer(question, std::move(attempt.response));
    if (!IsLost(end)) return Answer(question, end);
    if (question.again == Again::kNever) return Answer(question, OutcomeUnknown(end));
    if (loop_.Now() >= question.until) return Answer(question, end);
    Try(question);
  }

  template <class Request, class Response>
  void Answer(Question<Request, Response>& question,
              std::type_identity_t<absl::StatusOr<Response>> answer) {
    Reply<Response> reply = std::move(question.reply);
    questions_.erase(question.number);
    // May destroy this client.
    reply(std::move(answer));
  }

  core::EventLoop& loop_;
  const GrpcControlPlaneOptions options_;
  std::shared_ptr<core::LoopGate> gate_;
  PlaneChannels planes_;
  uint64_t last_question_ = 0;
  std::map<uint64_t, std::shared_ptr<void>> questions_;
  core::Lifetime lifetime_;
};

}  // namespace

std::unique_ptr<ControlPlaneClient> MakeGrpcControlPlaneClient(core::EventLoop& loop,
                                                               GrpcControlPlaneOptions options) {
  return std::make_unique<GrpcControlPlaneClient>(loop, std::move(options));
}

}  // namespace callboard::bridge
