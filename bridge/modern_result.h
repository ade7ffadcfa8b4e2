// Responses of backends of any era and of the facade -> responses of revision 2026-07-28. Pure.
#pragma once

#include <string>
#include <string_view>

#include "bridge/config.h"
#include "callboard/v1/control.pb.h"
#include "core/mcp/jsonrpc.h"

namespace callboard::bridge {

// What is known of the request that is answered.
struct ModernAsked {
  std::string_view method;
  std::string_view named;        // what its Mcp-Name says; empty without one
  std::string_view server_info;  // raw JSON for results that do not say who answers; may be empty
};

struct ModernResponse {
  int http_status = 200;
  std::string text;
};

// A whole JSON-RPC response. A result without `resultType` gets "complete", one that may be cached
// and does not say for how long is not to be; everything else stays byte for byte. Codes of earlier
// revisions become those of this one, ours of the range -32000 too.
ModernResponse ToModernResponse(const ModernAsked& asked, std::string_view response);

// The same for a result whose body comes in pieces: what belongs behind its first brace, if the
// backend has not said it (`era_fields` names what it has).
std::string ModernMembers(std::string_view method, const v1::OutcomeFacts& facts);

// The HTTP status of a response with that error code, where no stream is open yet.
int ModernHttpStatus(int64_t code);

// The data of an error that says that a revision is not served; `raw_requested` is JSON.
std::string UnsupportedVersionData(std::string_view raw_requested);

// The results of server/discover.
std::string FacadeDiscoverResult(const BridgeConfig& config);
std::string ToolsDiscoverResult(const BridgeConfig& config);
std::string InstanceDiscoverResult(const BridgeConfig& config, const v1::InstanceRow& row);

}  // namespace callboard::bridge
