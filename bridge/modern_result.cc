// Implementation of the responses of revision 2026-07-28.
#include "bridge/modern_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>

#include "bridge/facade/tools.h"
#include "bridge/initialize_result.h"
#include "bridge/task_view.h"
#include "bridge/translator.h"
#include "core/mcp/envelope.h"
#include "core/mcp/json.h"

namespace callboard::bridge {
namespace {

using core::JsonObject;

constexpr int64_t kLegacyCodesFirst = -32019;
constexpr int64_t kLegacyCodesLast = -32000;
constexpr core::McpRevision kModern = core::McpRevision::k2026_07_28;
constexpr std::string_view kResultType = "resultType";
constexpr std::string_view kTtl = "ttlMs";
constexpr std::string_view kScope = "cacheScope";

bool MayBeCached(std::string_view method) {
  constexpr std::array<std::string_view, 6> kMethods = {
      "server/discover", "tools/list",     "prompts/list",
      "resources/list",  "resources/read", "resources/templates/list"};
  return std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
}

// The newest first: what a client may choose from, with or without a session.
std::string SupportedVersions() {
  std::string names = core::QuoteJson(core::RevisionName(kModern));
  for (const core::McpRevision revision : std::views::reverse(kServedRevisions)) {
    names.append(",").append(core::QuoteJson(core::RevisionName(revision)));
  }
  return fmt::format("[{}]", names);
}

// What a surface of our own says of itself.
std::string OwnDiscoverResult(const BridgeConfig& config, std::string_view capabilities,
                              std::string_view instructions) {
  return JsonObject()
      .String(kResultType, "complete")
      .Raw("supportedVersions", SupportedVersions())
      .Raw("capabilities", WithTasks(capabilities))
      .String("instructions", instructions)
      .Int(kTtl, 0)
      .String(kScope, "private")
      .Raw("_meta", JsonObject().Raw(core::kMetaServerInfo, FacadeServerInfo(config)).Take())
      .Take();
}

// `has(name)`: the result has that member.
template <class Has>
std::string Missing(std::string_view method, Has has) {
  std::string members;
  if (!has(kResultType)) members.append(R"("resultType":"complete")");
  if (!MayBeCached(method)) return members;
  const auto add = [&members](std::string_view text) {
    if (!members.empty()) members.push_back(',');
    members.append(text);
  };
  if (!has(kTtl)) add(R"("ttlMs":0)");
  if (!has(kScope)) add(R"("cacheScope":"private")");
  return members;
}

std::string ModernResult(const ModernAsked& asked, std::string_view result) {
  std::string_view type;
  std::string_view meta;
  bool ttl = false;
  bool scope = false;
  bool empty = true;
  (void)core::ForEachMember(result, [&](const core::JsonMember& member) {
    empty = false;
    if (member.Is(kResultType)) type = member.value;
    if (member.Is(kTtl)) ttl = true;
    if (member.Is(kScope)) scope = true;
    if (member.Is("_meta")) meta = member.value;
    return true;
  });
  // Of what is not complete nothing may be cached.
  const bool final = type.empty() || type == R"("complete")";
  std::string members = Missing(final ? asked.method : "", [&](std::string_view name) {
    return name == kResultType ? !type.empty() : name == kTtl ? ttl : scope;
  });
  const bool anonymous = core::IsObject(asked.server_info) &&
                         !core::FindMember(meta, core::kMetaServerInfo).has_value();
  if (anonymous && meta.empty()) {
    if (!members.empty()) members.push_back(',');
    members.append(R"("_meta":)")
        .append(JsonObject().Raw(core::kMetaServerInfo, asked.server_info).Take());
  }
  std::string text(result);
  if (!members.empty()) {
    if (!empty) members.push_back(',');
    text.insert(1, members);
  }
  if (anonymous && core::IsObject(meta)) {
    text = core::SetPath(text, {"_meta", core::kMetaServerInfo}, asked.server_info);
  }
  return text;
}

std::string ModernError(const ModernAsked& asked, std::string_view error, int64_t* code) {
  *code = core::FindInteger(error, "code").value_or(core::kInternalError);
  std::string text(error);
  const int64_t given = *code;
  if (given == core::kMethodNotFound && IsTaskMethod(asked.method)) {
    // The seat has no tasks of its own, and this is none of ours.
    *code = core::kInvalidParams;
    text = core::SetMember(text, "message", core::QuoteJson("unknown task"));
  } else if (given == core::kResourceNotFound) {
    *code = core::kInvalidParams;
    if (!core::FindPath(text, {"data", "uri"}) && !asked.named.empty()) {
      text = core::SetPath(text, {"data", "uri"}, core::QuoteJson(asked.named));
    }
  } else if (given == core::kUrlElicitationRequired ||
             (given >= kLegacyCodesFirst && given <= kLegacyCodesLast)) {
    *code = core::kInternalError;
  }
  return *code == given ? text : core::SetMember(text, "code", std::to_string(*code));
}

}  // namespace

int ModernHttpStatus(int64_t code) {
  switch (code) {
    case core::kMethodNotFound:
      return 404;
    case core::kHeaderMismatch:
    case core::kMissingCapability:
    case core::kUnsupportedVersion:
      return 400;
    default:
      return 200;
  }
}

ModernResponse ToModernResponse(const ModernAsked& asked, std::string_view response) {
  std::string_view id;
  std::string_view result;
  std::string_view error;
  (void)core::ForEachMember(response, [&](const core::JsonMember& member) {
    if (member.Is("id")) id = member.value;
    if (member.Is("result")) result = member.value;
    if (member.Is("error")) error = member.value;
    return true;
  });
  if (!error.empty()) {
    int64_t code = 0;
    const std::string text = ModernError(asked, error, &code);
    return {ModernHttpStatus(code), core::MakeRawErrorResponse(id, text)};
  }
  // A result that is no object is the backend's fault, and not to be mended here.
  if (!core::IsObject(result)) return {200, std::string(response)};
  return {200, core::MakeResult(id, ModernResult(asked, result))};
}

std::string ModernMembers(std::string_view method, const v1::OutcomeFacts& facts) {
  const auto& fields = facts.era_fields();
  return Missing(method, [&](std::string_view name) {
    return std::find(fields.begin(), fields.end(), name) != fields.end();
  });
}

std::string UnsupportedVersionData(std::string_view raw_requested) {
  const std::string modern = core::QuoteJson(core::RevisionName(kModern));
  return JsonObject()
      .Raw("supported", fmt::format("[{}]", modern))
      .Raw("requested", raw_requested)
      .Take();
}

std::string FacadeDiscoverResult(const BridgeConfig& config) {
  return OwnDiscoverResult(config, FacadeCapabilities(), FacadeInstructions());
}

std::string ToolsDiscoverResult(const BridgeConfig& config) {
  return OwnDiscoverResult(config, ToolsCapabilities(), ToolsInstructions());
}

std::string InstanceDiscoverResult(const BridgeConfig& config, const v1::InstanceRow& row) {
  std::string capabilities = PassedCapabilities(row.capabilities());
  if (const auto extensions = core::FindMember(row.modern_capabilities(), "extensions")) {
    capabilities = core::SetMember(capabilities, "extensions", *extensions);
  }
  JsonObject result;
  result.String(kResultType, "complete")
      .Raw("supportedVersions", SupportedVersions())
      .Raw("capabilities", WithTasks(capabilities));
  if (!row.instructions().empty()) result.String("instructions", row.instructions());
  const std::string_view rest = row.description_rest();
  const std::string_view meta = core::FindMember(rest, "_meta").value_or("{}");
  result.Int(kTtl, 0)
      .String(kScope, "private")
      .Raw("_meta",
           WithMembers(
               JsonObject().Raw(core::kMetaServerInfo, InstanceServerInfo(config, row)).Take(),
               meta));
  return WithMembers(result.Take(), core::RemoveMember(rest, "_meta"));
}

}  // namespace callboard::bridge
