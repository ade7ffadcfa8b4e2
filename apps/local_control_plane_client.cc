// Implementation of the in-process client.
#include "apps/local_control_plane_client.h"

#include <utility>

namespace callboard::apps {
namespace {

class LocalControlPlaneClient final : public bridge::ControlPlaneClient {
 public:
  explicit LocalControlPlaneClient(server::ControlPlane& control_plane)
      : control_plane_(control_plane) {}

  void OpenSession(v1::OpenSessionRequest request, bridge::Reply<v1::Session> reply) override {
    control_plane_.OpenSession(std::move(request), std::move(reply));
  }
  void GetSession(v1::SessionRef request, bridge::Reply<v1::Session> reply) override {
    reply(control_plane_.GetSession(request.session_id()));
  }
  void CloseSession(v1::SessionRef request,
                    bridge::Reply<v1::CloseSessionResponse> reply) override {
    control_plane_.CloseSession(std::move(request), std::move(reply));
  }

  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Invoke(v1::InvokeRequest request) override {
    return control_plane_.Invoke(std::move(request));
  }
  std::unique_ptr<core::EventSource<v1::ListenEvent>> Listen(v1::ListenRequest request) override {
    return control_plane_.Listen(std::move(request));
  }
  void Send(v1::SendRequest request, bridge::Reply<v1::SendResponse> reply) override {
    control_plane_.Send(std::move(request), std::move(reply));
  }

  void GetCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    control_plane_.GetCall(std::move(request), std::move(reply));
  }
  void WaitCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    control_plane_.WaitCall(std::move(request), std::move(reply));
  }
  void CancelCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    control_plane_.CancelCall(std::move(request), std::move(reply));
  }
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> FetchOutcome(v1::CallRef request) override {
    return control_plane_.FetchOutcome(std::move(request));
  }

  void SearchTools(v1::SearchToolsRequest request,
                   bridge::Reply<v1::SearchToolsResponse> reply) override {
    reply(control_plane_.SearchTools(request));
  }
  void DescribeTool(v1::DescribeToolRequest request,
                    bridge::Reply<v1::DescribeToolResponse> reply) override {
    reply(control_plane_.DescribeTool(request));
  }
  void LoadSkill(v1::LoadSkillRequest request,
                 bridge::Reply<v1::LoadSkillResponse> reply) override {
    control_plane_.LoadSkill(std::move(request), std::move(reply));
  }
  void GetList(v1::GetListRequest request, bridge::Reply<v1::GetListResponse> reply) override {
    reply(control_plane_.GetList(request));
  }
  void ListInstances(v1::ListInstancesRequest request,
                     bridge::Reply<v1::ListInstancesResponse> reply) override {
    reply(control_plane_.ListInstances(request));
  }

 private:
  server::ControlPlane& control_plane_;
};

}  // namespace

std::unique_ptr<bridge::ControlPlaneClient> MakeLocalControlPlaneClient(
    server::ControlPlane& control_plane) {
  return std::make_unique<LocalControlPlaneClient>(control_plane);
}

}  // namespace callboard::apps
