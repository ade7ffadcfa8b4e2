// What the end of an RPC means: said by the control plane, or by the way to it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace callboard::bridge {

// The status of a control plane that has answered is passed on; everything else came from the way
// to it: Unavailable and IsLost(), or DeadlineExceeded.
absl::Status RpcEnd(const grpc::Status& status, const grpc::ClientContext& context,
                    const std::string& address);
// The same for a stream, whose orderly end is OutOfRange.
absl::Status StreamRpcEnd(const grpc::Status& status, const grpc::ClientContext& context,
                          const std::string& address);

// Whether the connection broke after the request was given to it.
bool IsLost(const absl::Status& status);
// Aborted: whatever was asked for may have happened.
absl::Status OutcomeUnknown(const absl::Status& lost);

}  // namespace callboard::bridge
