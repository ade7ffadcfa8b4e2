// Implementation of the envelope.
#include "core/mcp/envelope.h"

#include <array>

#include "core/mcp/json.h"
#include "core/mcp/log_levels.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::core {
namespace {

constexpr std::string_view kMeta = "_meta";
constexpr std::array<std::string_view, 4> kKeys = {kMetaProtocolVersion, kMetaClientCapabilities,
                                                   kMetaClientInfo, kMetaLogLevel};

absl::Status Invalid(std::string_view key, std::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   fmt::format("params._meta['{}'] {}", key, what));
}

}  // namespace

std::string_view MemberOfMcpName(std::string_view method) {
  if (method == "tools/call" || method == "prompts/get") return "name";
  if (method == "resources/read") return "uri";
  if (method == "tasks/get" || method == "tasks/update" || method == "tasks/cancel")
    return "taskId";
  return {};
}

std::optional<std::string_view> FindModernClaim(std::string_view params) {
  // The text search spares nearly every message the second look; an escape may hide the key.
  if (params.find("protocolVersion") == params.npos && params.find('\\') == params.npos) {
    return std::nullopt;
  }
  return FindPath(params, {kMeta, kMetaProtocolVersion});
}

absl::StatusOr<Envelope> ReadEnvelope(std::string_view params) {
  const auto meta = FindMember(params, kMeta);
  if (!meta || !IsObject(*meta)) {
    return Invalid(kMetaProtocolVersion, "is missing: params._meta must be an object");
  }
  CALLBOARD_RETURN_IF_ERROR(RejectDuplicateKeys(params));
  CALLBOARD_RETURN_IF_ERROR(RejectDuplicateKeys(*meta));
  Envelope envelope;
  absl::Status problem;
  bool versioned = false;
  CALLBOARD_RETURN_IF_ERROR(ForEachMember(*meta, [&](const JsonMember& member) {
    if (member.Is(kMetaProtocolVersion)) {
      versioned = true;
      if (!IsString(member.value)) problem = Invalid(kMetaProtocolVersion, "must be a string");
    } else if (member.Is(kMetaClientCapabilities)) {
      envelope.capabilities = member.value;
      if (!IsObject(member.value)) problem = Invalid(kMetaClientCapabilities, "must be an object");
    } else if (member.Is(kMetaClientInfo)) {
      envelope.client_info = member.value;
      if (!IsObject(member.value)) problem = Invalid(kMetaClientInfo, "must be an object");
    } else if (member.Is(kMetaLogLevel)) {
      envelope.log_level = DecodeString(member.value).value_or("");
      if (McpSeverity(envelope.log_level) == kMcpLogLevels.size()) {
        problem = Invalid(kMetaLogLevel,
                          fmt::format("must be one of: {}", fmt::join(kMcpLogLevels, ", ")));
      }
    }
    return problem.ok();
  }));
  if (!problem.ok()) return problem;
  if (!versioned) return Invalid(kMetaProtocolVersion, "is missing");
  if (envelope.capabilities.empty()) {
    return Invalid(kMetaClientCapabilities, "is missing; {} says: none");
  }
  return envelope;
}

std::string RemoveEnvelope(std::string_view params) {
  const auto found = FindMember(params, kMeta);
  if (!found || !IsObject(*found)) return std::string(params);
  std::string meta(*found);
  for (const std::string_view key : kKeys) meta = RemoveMember(meta, key);
  bool empty = true;
  (void)ForEachMember(meta, [&](const JsonMember&) { return empty = false; });
  return empty ? RemoveMember(params, kMeta) : SetMember(params, kMeta, meta);
}

std::string AddEnvelope(std::string_view params, std::string_view version,
                        const Envelope& envelope) {
  const auto found = FindMember(params, kMeta);
  std::string meta(found && IsObject(*found) ? *found : "{}");
  meta = SetMember(meta, kMetaProtocolVersion, QuoteJson(version));
  meta = SetMember(meta, kMetaClientCapabilities,
                   IsObject(envelope.capabilities) ? envelope.capabilities : "{}");
  if (IsObject(envelope.client_info)) {
    meta = SetMember(meta, kMetaClientInfo, envelope.client_info);
  }
  if (!envelope.log_level.empty()) {
    meta = SetMember(meta, kMetaLogLevel, QuoteJson(envelope.log_level));
  }
  return SetMember(params, kMeta, meta);
}

}  // namespace callboard::core
