// JSON-RPC 2.0 envelopes (jsonrpc.org/specification) as MCP uses them, over raw JSON text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/mcp/json.h"

namespace callboard::core {

// Codes of JSON-RPC and of MCP's implementations.
inline constexpr int kParseError = -32700;
inline constexpr int kInvalidRequest = -32600;
inline constexpr int kMethodNotFound = -32601;
inline constexpr int kInvalidParams = -32602;
inline constexpr int kInternalError = -32603;
inline constexpr int kServerError = -32000;
inline constexpr int kSessionNotFound = -32001;
inline constexpr int kResourceNotFound = -32002;
inline constexpr int kUrlElicitationRequired = -32042;
// Of the revisions without sessions.
inline constexpr int kHeaderMismatch = -32020;
inline constexpr int kMissingCapability = -32021;
inline constexpr int kUnsupportedVersion = -32022;

// One message, as views into the text it was parsed from. Empty views: the member is absent.
struct JsonRpcMessage {
  enum class Kind { kRequest, kNotification, kResult, kError };
  Kind kind;
  std::string_view id;      // raw: a string or a number (MCP forbids null)
  std::string method;       // decoded
  std::string_view params;  // raw object or array
  std::string_view result;  // raw, any value
  std::string_view error;   // raw object
};

// Parses one envelope. `text` must be one whole JSON text; it is checked as a whole when
// `validate` is set (what comes from a client), else only as far as it is read (what comes from a
// local backend). InvalidArgument: not JSON; FailedPrecondition: JSON, but no JSON-RPC message
// (also an id that is null, a fraction, an object; a duplicated member of the envelope).
absl::StatusOr<JsonRpcMessage> ParseJsonRpc(std::string_view text, bool validate);

std::string MakeRequest(std::string_view raw_id, std::string_view method,
                        std::string_view raw_params);
std::string MakeNotification(std::string_view method, std::string_view raw_params);
std::string MakeResult(std::string_view raw_id, std::string_view raw_result);
// `raw_id` empty: the error goes out with "id":null. `raw_data` empty: no data member.
std::string MakeErrorResponse(std::string_view raw_id, int code, std::string_view message,
                              std::string_view raw_data = {});
// A response that carries a backend's error object unchanged.
std::string MakeRawErrorResponse(std::string_view raw_id, std::string_view raw_error);
// The error object alone: {"code":..,"message":..[,"data":..]}.
std::string MakeErrorObject(int code, std::string_view message, std::string_view raw_data = {});
// The result of a tool call that has failed:
// {"content":[{"type":"text","text":..}],"isError":true}
std::string MakeToolError(std::string_view message);

}  // namespace callboard::core
