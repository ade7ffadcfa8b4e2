// Implementation of the comparison of headers and body.
#include "bridge/modern_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "bridge/modern_result.h"
#include "core/mcp/json.h"
#include "core/mcp/mirror_header.h"
#include "core/mcp/versions.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

constexpr std::string_view kMethodHeader = "Mcp-Method";
constexpr std::string_view kNameHeader = "Mcp-Name";
constexpr std::string_view kParamPrefix = "mcp-param-";
constexpr size_t kShownBytesMax = 100;

const std::string_view kModern = core::RevisionName(core::McpRevision::k2026_07_28);

ModernFault Mismatch(std::string message) {
  return {core::kHeaderMismatch, std::move(message), {}};
}

// `raw` is what the body says; empty: nothing.
std::optional<ModernFault> CheckHeader(const net::HttpRequest& http, std::string_view name,
                                       std::string_view raw) {
  const auto is_it = [name](const auto& header) {
    return absl::EqualsIgnoreCase(header.first, core::ToAbsl(name));
  };
  const auto first = std::find_if(http.headers.begin(), http.headers.end(), is_it);
  if (first == http.headers.end()) {
    if (raw.empty()) return std::nullopt;
    return Mismatch(fmt::format("the header {} is missing; the body says {}", name,
                                raw.substr(0, kShownBytesMax)));
  }
  if (std::find_if(first + 1, http.headers.end(), is_it) != http.headers.end()) {
    return Mismatch(fmt::format("the header {} is there twice", name));
  }
  if (raw.empty()) {
    return Mismatch(fmt::format("the header {} says '{}', the body nothing", name,
                                std::string_view(first->second).substr(0, kShownBytesMax)));
  }
  const absl::Status same = core::CheckMirrorHeader(first->second, raw);
  if (same.ok()) return std::nullopt;
  return Mismatch(fmt::format("{}: {}", name, core::Message(same)));
}

}  // namespace

// Dates compare as text.
bool IsModernVersion(std::string_view version) {
  return version.size() == kModern.size() && version >= kModern && version.front() == '2';
}

bool HasModernEnvelope(std::string_view params) {
  const auto claim = core::FindModernClaim(params);
  return claim && core::DecodeString(*claim) == kModern && core::ReadEnvelope(params).ok();
}

std::optional<ModernFault> ReadModernRequest(const net::HttpRequest& http,
                                             const core::JsonRpcMessage& message,
                                             ModernRequest* request) {
  const auto claim = core::FindModernClaim(message.params);
  if (claim && core::IsString(*claim)) {
    if (auto fault = CheckHeader(http, kVersionHeader, *claim)) return fault;
    if (core::DecodeString(*claim) != kModern) {
      return ModernFault{core::kUnsupportedVersion,
                         fmt::format("revision {} of MCP is not served without a session",
                                     claim->substr(0, kShownBytesMax)),
                         UnsupportedVersionData(*claim)};
    }
  }
  auto envelope = core::ReadEnvelope(message.params);
  if (!envelope.ok()) {
    return ModernFault{core::kInvalidParams, std::string(core::Message(envelope.status())), {}};
  }
  request->envelope = *std::move(envelope);
  if (auto fault = CheckHeader(http, kMethodHeader, core::QuoteJson(message.method))) return fault;
  if (const std::string_view member = core::MemberOfMcpName(message.method); !member.empty()) {
    const auto named = core::FindMember(message.params, member);
    if (auto fault = CheckHeader(http, kNameHeader, named.value_or(""))) return fault;
    if (named) request->named = core::DecodeString(*named).value_or("");
  }
  for (const auto& [name, value] : http.headers) {
    const std::string lower = absl::AsciiStrToLower(name);
    if (!lower.starts_with(kParamPrefix)) continue;
    v1::ParamHeader& header = request->param_headers.emplace_back();
    header.set_name(lower.substr(kParamPrefix.size()));
    header.set_value(value);
  }
  return std::nullopt;
}

}  // namespace callboard::bridge
