// What a POST of revision 2026-07-28 must say twice: its headers and its body agree. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "callboard/v1/control.pb.h"
#include "core/mcp/envelope.h"
#include "core/mcp/jsonrpc.h"
#include "net/http_server.h"

namespace callboard::bridge {

inline constexpr std::string_view kVersionHeader = "Mcp-Protocol-Version";

// Whether the value of a version header is of a revision without sessions, ours or a later one.
bool IsModernVersion(std::string_view version);
// Whether params have the whole envelope of that revision.
bool HasModernEnvelope(std::string_view params);

struct ModernRequest {
  core::Envelope envelope;  // views into the message
  std::string named;        // what Mcp-Name repeats; empty if the method has nothing of the kind
  std::vector<v1::ParamHeader> param_headers;
};

// Why a request is refused (HTTP 400).
struct ModernFault {
  int code = 0;
  std::string message;
  std::string data;  // raw JSON or empty
};

// Fills `request` from what belongs to this era by its body or its version header. A fault:
// kInvalidParams for the envelope, kHeaderMismatch for a header that is missing, there twice,
// malformed or different, kUnsupportedVersion for another revision.
std::optional<ModernFault> ReadModernRequest(const net::HttpRequest& http,
                                             const core::JsonRpcMessage& message,
                                             ModernRequest* request);

}  // namespace callboard::bridge
