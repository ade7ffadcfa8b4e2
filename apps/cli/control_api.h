// The control API as a command line program uses it: one channel, calls that block.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "callboard/v1/control.pb.h"

namespace callboard::apps {

// Any thread; calls block up to 30 s, streams until they end. Every error says which address was
// asked. Unavailable: nobody answers there.
class ControlApi {
 public:
  // Unavailable if nothing answers at HOST:PORT within 3 s.
  static absl::StatusOr<std::unique_ptr<ControlApi>> Connect(const std::string& address);
  ~ControlApi();

  // The standard health service: whether the control plane takes work.
  absl::StatusOr<bool> Serving();

  absl::StatusOr<v1::ListInstancesResponse> ListInstances(const v1::ListInstancesRequest& request);
  absl::StatusOr<v1::SearchToolsResponse> SearchTools(const v1::SearchToolsRequest& request);
  absl::StatusOr<v1::DescribeToolResponse> DescribeTool(const v1::DescribeToolRequest& request);
  absl::StatusOr<v1::Session> OpenSession(const v1::OpenSessionRequest& request);
  absl::StatusOr<v1::CloseSessionResponse> CloseSession(const v1::SessionRef& request);
  absl::StatusOr<v1::SendResponse> Send(const v1::SendRequest& request);

  // Calls `on_event` for each event until the stream ends.
  absl::Status Invoke(const v1::InvokeRequest& request,
                      const std::function<void(const v1::InvokeEvent&)>& on_event);
  absl::Status WatchInstances(const v1::ListInstancesRequest& request,
                              const std::function<void(const v1::InstanceEvent&)>& on_event);

 private:
  struct Impl;
  explicit ControlApi(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace callboard::apps
