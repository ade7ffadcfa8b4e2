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

// Capabilities that are not passed on. Tasks of the experimental kind belong to one session at the
// backend, which clients share; extensions are of the other era, where they are told.
bool IsOfTheHop(const core::JsonMember& member) {
  return member.Is("tools") || member.Is("tasks") || member.Is("extensions");
}

// What a surface of our own says of itself.
std::string OwnResult(const BridgeConfig& config, core::McpRevision revision,
                      std::string_view capabilities, std::string_view instructions) {
  return JsonObject()
      .String("protocolVersion", core::RevisionName(revision))
      .Raw("capabilities", capabilities)
      .Raw("serverInfo", FacadeServerInfo(config))
      .String("instructions", instructions)
      .Take();
}

}  // namespace

std::string_view ToolsCapabilities() { return R"({"tools":{"listChanged":true}})"; }

std::string_view ToolsInstructions() { return kToolsInstructions; }

std::string_view FacadeCapabilities() { return R"({"tools":{"listChanged":false}})"; }

std::string FacadeServerInfo(const BridgeConfig& config) {
  return JsonObject().String("name", "callboard").String("version", config.version).Take();
}

std::string PassedCapabilities(std::string_view backend) {
  // Every seat has tools, and the bridge tells of changes whether or not the backend does.
  const std::string_view tools = core::FindMember(backend, "tools").value_or("{}");
  std::string passed =
      core::JsonObject().Raw("tools", core::SetMember(tools, "listChanged", "true")).Take();
  (void)core::ForEachMember(backend, [&](const core::JsonMember& member) {
    if (core::IsObject(member.value) && !member.key_escaped && !IsOfTheHop(member)) {
      passed = core::SetMember(passed, member.key, member.value);
    }
    return true;
  });
  return passed;
}

std::string InstanceServerInfo(const BridgeConfig& config, const v1::InstanceRow& row) {
  if (core::IsObject(row.server_info())) return row.server_info();
  return JsonObject()
      .String("name", row.name())
      .String("version", row.version().empty() ? config.version : row.version())
      .Take();
}

std::string WithMembers(std::string object, std::string_view more) {
  if (!core::IsObject(more) || more == "{}") return object;
  object.back() = object == "{}" ? '{' : ',';
  return object.append(more.substr(1));
}

std::string FacadeInitializeResult(const BridgeConfig& config, core::McpRevision revision) {
  return OwnResult(config, revision, FacadeCapabilities(), FacadeInstructions());
}

std::string ToolsInitializeResult(const BridgeConfig& config, core::McpRevision revision) {
  return OwnResult(config, revision, ToolsCapabilities(), kToolsInstructions);
}

std::string InstanceInitializeResult(const BridgeConfig& config, core::McpRevision revision,
                                     const v1::InstanceRow& row) {
  JsonObject result;
  result.String("protocolVersion", core::RevisionName(revision))
      .Raw("capabilities", PassedCapabilities(row.capabilities()))
      .Raw("serverInfo", InstanceServerInfo(config, row));
  if (!row.instructions().empty()) result.String("instructions", row.instructions());
  return WithMembers(result.Take(), row.description_rest());
}

}  // namespace callboard::bridge
