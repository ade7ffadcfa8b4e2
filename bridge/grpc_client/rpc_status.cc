// Implementation of the reading of gRPC's statuses.
#include "bridge/grpc_client/rpc_status.h"

#include <fmt/format.h>

#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

// Of the control plane's own statuses (server/rpc/control_service.cc); the transport has none.
constexpr char kOriginKey[] = "callboard-origin";
constexpr char kLostUrl[] = "callboard/lost";

}  // namespace

absl::Status RpcEnd(const grpc::Status& status, const grpc::ClientContext& context,
                    const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (context.GetServerTrailingMetadata().contains(kOriginKey)) {
    return core::MakeError(code, status.error_message());
  }
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return core::MakeError(
          code, fmt::format("the control plane at {} did not answer in time", address));
    case grpc::StatusCode::RESOURCE_EXHAUSTED:  // a message beyond its size
      return core::MakeError(code, fmt::format("{}: {}", address, status.error_message()));
    case grpc::StatusCode::UNIMPLEMENTED:
      return core::MakeError(absl::StatusCode::kFailedPrecondition,
                             fmt::format("the control plane at {} is older than this bridge: {}",
                                         address, status.error_message()));
    default:
      break;
  }
  absl::Status lost =
      core::MakeError(absl::StatusCode::kUnavailable,
                      fmt::format("the connection to the control plane at {} was lost: {}", address,
                                  status.error_message()));
  lost.SetPayload(kLostUrl, absl::Cord());
  return lost;
}

absl::Status StreamRpcEnd(const grpc::Status& status, const grpc::ClientContext& context,
                          const std::string& address) {
  if (status.ok()) return absl::OutOfRangeError("the stream has ended");
  return RpcEnd(status, context, address);
}

bool IsLost(const absl::Status& status) { return status.GetPayload(kLostUrl).has_value(); }

absl::Status OutcomeUnknown(const absl::Status& lost) {
  return core::MakeError(
      absl::StatusCode::kAborted,
      fmt::format("{}; whether the call has run is not known", core::Message(lost)));
}

}  // namespace callboard::bridge
