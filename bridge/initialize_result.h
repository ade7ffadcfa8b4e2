// What servers say of themselves, and the results of initialize: of the facade, of selected tools,
// of one instance passed through. Pure.
#pragma once

#include <string>
#include <string_view>

#include "bridge/config.h"
#include "callboard/v1/control.pb.h"
#include "core/mcp/versions.h"

namespace callboard::bridge {

std::string FacadeInitializeResult(const BridgeConfig& config, core::McpRevision revision);

// Of a session that shows selected tools.
std::string ToolsInitializeResult(const BridgeConfig& config, core::McpRevision revision);

// The backend's own capabilities as far as they are passed through, its name and instructions, and
// what else it says of itself.
std::string InstanceInitializeResult(const BridgeConfig& config, core::McpRevision revision,
                                     const v1::InstanceRow& row);

// Raw JSON of the facade's capabilities, or of what shows selected tools, and of who answers there;
// of an instance the backend's own, as far as they are passed through.
std::string_view FacadeCapabilities();
std::string_view ToolsCapabilities();
std::string_view ToolsInstructions();
std::string FacadeServerInfo(const BridgeConfig& config);
std::string PassedCapabilities(std::string_view backend);
// The object with all members of `more` behind its own; those of a text that is no object are none.
std::string WithMembers(std::string object, std::string_view more);
std::string InstanceServerInfo(const BridgeConfig& config, const v1::InstanceRow& row);

}  // namespace callboard::bridge
