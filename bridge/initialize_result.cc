// Implementation of the initialize results.
#include "bridge/initialize_result.h"

#include "bridge/facade/tools.h"
#include "core/mcp/json.h"

namespace callboard::bridge {
namespace {

using core::JsonObject;

constexpr std::string_view kToolsInstructions =
    "Selected tools of the studio's applications, each called directly. A name begins with the "
    "application and the first digits of its instance's id: tools with the same beginning work in "
    "the same running application, and equal tools of two instances work in different scenes. The "
    "list changes when applications start and end.";

std::string PassedCapabilities(std::string_view backend) {
  JsonObject passed;
  // Every seat has tools, and the bridge tells of changes whether or not the backend does.
  const std::string_view tools = core::FindMember(backend, "tools").value_or("{}");
  passed.Raw("tools", core::SetMember(tools, "listChanged", "true"));
  for (const std::string_view key : {"resources", "prompts", "completions", "logging"}) {
    if (const auto value = core::FindMember(backend, key); value && core::IsObject(*value)) {
      passed.Raw(key, *value);
    }
  }
  return passed.Take();
}

std::string OwnResult(const BridgeConfig& config, core::McpRevision revision, bool list_changes,
                      std::string_view instructions) {
  const std::string tools = JsonObject().Bool("listChanged", list_changes).Take();
  return JsonObject()
      .String("protocolVersion", core::RevisionName(revision))
      .Raw("capabilities", JsonObject().Raw("tools", tools).Take())
      .Raw("serverInfo",
           JsonObject().String("name", "callboard").String("version", config.version).Take())
      .String("instructions", instructions)
      .Take();
}

}  // namespace

std::string FacadeInitializeResult(const BridgeConfig& config, core::McpRevision revision) {
  return OwnResult(config, revision, /*list_changes=*/false, FacadeInstructions());
}

std::string ToolsInitializeResult(const BridgeConfig& config, core::McpRevision revision) {
  return OwnResult(config, revision, /*list_changes=*/true, kToolsInstructions);
}

std::string InstanceInitializeResult(const BridgeConfig& config, core::McpRevision revision,
                                     const v1::InstanceRow& row) {
  std::string info = row.server_info();
  if (!core::IsObject(info)) {
    info = JsonObject()
               .String("name", row.name())
               .String("version", row.version().empty() ? config.version : row.version())
               .Take();
  }
  JsonObject result;
  result.String("protocolVersion", core::RevisionName(revision))
      .Raw("capabilities", PassedCapabilities(row.capabilities()))
      .Raw("serverInfo", info);
  if (!row.instructions().empty()) result.String("instructions", row.instructions());
  return result.Take();
}

}  // namespace callboard::bridge
