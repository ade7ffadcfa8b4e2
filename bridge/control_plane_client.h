// Port through which the bridge reaches a control plane: in the same process, or over gRPC.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/event_source.h"
#include "core/telemetry/metrics_text.h"

namespace callboard::bridge {

template <class T>
using Reply = absl::AnyInvocable<void(absl::StatusOr<T>)>;

// The methods of protos/callboard/v1/control.proto. Loop thread only. Replies come inline or
// later, exactly once, unless the client is destroyed. Destroying a source tells the control plane
// that its reader is gone (InvokeRequest.on_detach decides what that means).
class ControlPlaneClient {
 public:
  virtual ~ControlPlaneClient() = default;

  virtual void OpenSession(v1::OpenSessionRequest request, Reply<v1::Session> reply) = 0;
  virtual void GetSession(v1::SessionRef request, Reply<v1::Session> reply) = 0;
  virtual void CloseSession(v1::SessionRef request, Reply<v1::CloseSessionResponse> reply) = 0;

  virtual std::unique_ptr<core::EventSource<v1::InvokeEvent>> Invoke(v1::InvokeRequest request) = 0;
  virtual std::unique_ptr<core::EventSource<v1::ListenEvent>> Listen(v1::ListenRequest request) = 0;
  virtual void Send(v1::SendRequest request, Reply<v1::SendResponse> reply) = 0;

  virtual void GetCall(v1::CallRef request, Reply<v1::Call> reply) = 0;
  virtual void WaitCall(v1::CallRef request, Reply<v1::Call> reply) = 0;
  virtual void CancelCall(v1::CallRef request, Reply<v1::Call> reply) = 0;
  virtual std::unique_ptr<core::EventSource<v1::InvokeEvent>> FetchOutcome(v1::CallRef request) = 0;

  virtual void SearchTools(v1::SearchToolsRequest request,
                           Reply<v1::SearchToolsResponse> reply) = 0;
  virtual void DescribeTool(v1::DescribeToolRequest request,
                            Reply<v1::DescribeToolResponse> reply) = 0;
  virtual void LoadSkill(v1::LoadSkillRequest request, Reply<v1::LoadSkillResponse> reply) = 0;
  virtual void GetList(v1::GetListRequest request, Reply<v1::GetListResponse> reply) = 0;
  virtual void ListInstances(v1::ListInstancesRequest request,
                             Reply<v1::ListInstancesResponse> reply) = 0;
  // Its own figures, if it has any.
  virtual void WriteMetrics(core::MetricsText&) const {}
};

}  // namespace callboard::bridge
