// Implementation of the initialize results.
#include "bridge/initialize_result.h"

#include "bridge/facade/tools.h"
#include "core/mcp/json.h"

namespace callboard::bridge {
namespace {

using core::JsonObject;

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

}  // namespace

std::string FacadeInitializeResult(const BridgeConfig& config, core::McpRevision revision) {
  return JsonObject()
      .String("protocolVersion", core::RevisionName(revision))
      .Raw("capabilities", R"({"tools":{"listChanged":false}})")
      .Raw("serverInfo",
           JsonObject().String("name", "callboard").String("version", config.version).Take())
      .String("instructions", FacadeInstructions())
      .Take();
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
