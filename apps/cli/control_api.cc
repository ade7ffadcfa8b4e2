// Implementation of ControlApi on gRPC's blocking stubs.
#include "apps/cli/control_api.h"

#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <vector>

#include "callboard/v1/control.grpc.pb.h"
#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

constexpr auto kConnectMax = std::chrono::seconds(3);
constexpr auto kAnswerMax = std::chrono::seconds(30);

std::chrono::system_clock::time_point In(std::chrono::seconds time) {
  return std::chrono::system_clock::now() + time;
}

}  // namespace

struct ControlApi::Impl {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::ControlPlane::Stub> stub;

  absl::Status FromGrpc(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    const bool transport = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                           status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
    return core::MakeError(static_cast<absl::StatusCode>(status.error_code()),
                           transport ? fmt::format("{}: {}", address, status.error_message())
                                     : status.error_message());
  }

  template <class Request, class Response>
  absl::StatusOr<Response> Ask(grpc::Status (v1::ControlPlane::Stub::*method)(grpc::ClientContext*,
                                                                              const Request&,
                                                                              Response*),
                               const Request& request) const {
    grpc::ClientContext context;
    context.set_deadline(In(kAnswerMax));
    Response response;
    const grpc::Status status = (stub.get()->*method)(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

  template <class Event>
  absl::Status Read(grpc::ClientReader<Event>& reader,
                    const std::function<void(const Event&)>& on_event) const {
    Event event;
    while (reader.Read(&event)) on_event(event);
    return FromGrpc(reader.Finish());
  }
};

absl::StatusOr<std::unique_ptr<ControlApi>> ControlApi::Connect(const std::string& address) {
  auto impl = std::make_unique<Impl>();
  impl->address = address;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  impl->channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (!impl->channel->WaitForConnected(In(kConnectMax))) {
    return core::MakeError(
        absl::StatusCode::kUnavailable,
        fmt::format("no control plane answers at {}: start callboardd, or give the address of its "
                    "gRPC port with --address HOST:PORT or CALLBOARD_ADDRESS",
                    address));
  }
  impl->stub = v1::ControlPlane::NewStub(impl->channel);
  return std::unique_ptr<ControlApi>(new ControlApi(std::move(impl)));
}

ControlApi::ControlApi(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlApi::~ControlApi() = default;

// Debian ships no stub of grpc.health.v1: its request for the whole server is the empty message,
// and of the answer only field 1, an enum, matters (1: SERVING).
absl::StatusOr<bool> ControlApi::Serving() {
  grpc::GenericStub stub(impl_->channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(In(kAnswerMax));
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return impl_->FromGrpc(status);
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const auto& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes == std::string("\x08\x01", 2);
}

absl::StatusOr<v1::ListInstancesResponse> ControlApi::ListInstances(
    const v1::ListInstancesRequest& request) {
  return impl_->Ask(&v1::ControlPlane::Stub::ListInstances, request);
}
absl::StatusOr<v1::SearchToolsResponse> ControlApi::SearchTools(
    const v1::SearchToolsRequest& request) {
  return impl_->Ask(&v1::ControlPlane::Stub::SearchTools, request);
}
absl::StatusOr<v1::DescribeToolResponse> ControlApi::DescribeTool(
    const v1::DescribeToolRequest& request) {
  return impl_->Ask(&v1::ControlPlane::Stub::DescribeTool, request);
}
absl::StatusOr<v1::Session> ControlApi::OpenSession(const v1::OpenSessionRequest& request) {
  return impl_->Ask(&v1::ControlPlane::Stub::OpenSession, request);
}
absl::StatusOr<v1::CloseSessionResponse> ControlApi::CloseSession(const v1::SessionRef& request) {
  return impl_->Ask(&v1::ControlPlane::Stub::CloseSession, request);
}
absl::StatusOr<v1::SendResponse> ControlApi::Send(const v1::SendRequest& request) {
  return impl_->Ask(&v1::ControlPlane::Stub::Send, request);
}

absl::Status ControlApi::Invoke(const v1::InvokeRequest& request,
                                const std::function<void(const v1::InvokeEvent&)>& on_event) {
  grpc::ClientContext context;
  return impl_->Read(*impl_->stub->Invoke(&context, request), on_event);
}

absl::Status ControlApi::WatchInstances(
    const v1::ListInstancesRequest& request,
    const std::function<void(const v1::InstanceEvent&)>& on_event) {
  grpc::ClientContext context;
  return impl_->Read(*impl_->stub->WatchInstances(&context, request), on_event);
}

}  // namespace callboard::apps
