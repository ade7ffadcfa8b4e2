// Implementation of what clients may be asked.
#include "server/flows/client_capabilities.h"

#include <algorithm>
#include <array>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

// Revisions from this one on have no sessions and are asked in another way.
constexpr std::string_view kFirstWithoutAsks = "2026-07-28";
// From this one on clients say whether they include context.
constexpr std::string_view kFirstWithContext = "2025-11-25";
constexpr std::string_view kElicit = "elicitation/create";
constexpr std::string_view kSample = "sampling/createMessage";

constexpr std::array<std::string_view, 3> kAskable = {"sampling", "elicitation", "roots"};

bool Declares(const Session& session, std::string_view capability) {
  return core::FindMember(session.capabilities, capability).has_value();
}

bool IsAbout(std::string_view method, std::string_view capability) {
  return method.starts_with(capability) && method.substr(capability.size()).starts_with('/');
}

}  // namespace

bool MayBeAsked(const Session& session, std::string_view method) {
  if (session.revision >= kFirstWithoutAsks) return false;
  for (const std::string_view capability : kAskable) {
    if (IsAbout(method, capability)) return Declares(session, capability);
  }
  return true;
}

bool MayBeAsked(const Session& session) {
  return session.revision < kFirstWithoutAsks &&
         std::any_of(
             kAskable.begin(), kAskable.end(),
             [&](std::string_view capability) { return Declares(session, capability); });
}

bool MayBeAsked(const v1::ClientContext& client, std::string_view method) {
  return std::any_of(kAskable.begin(), kAskable.end(), [&](std::string_view capability) {
    return IsAbout(method, capability) &&
           core::FindMember(client.capabilities(), capability).has_value();
  });
}

bool MayBeAsked(const v1::ClientContext& client) {
  return std::any_of(kAskable.begin(), kAskable.end(), [&](std::string_view capability) {
    return core::FindMember(client.capabilities(), capability).has_value();
  });
}

std::string_view FitAsk(std::string_view revision, std::string_view capabilities,
                        std::string_view method, std::string& params) {
  if (method == kElicit) {
    const bool urls = core::FindPath(capabilities, {"elicitation", "url"}).has_value();
    if (core::FindString(params, "mode") == "url") return urls ? "" : "elicitation.url";
    // Without a word of either it offers forms.
    const bool forms = !urls || core::FindPath(capabilities, {"elicitation", "form"}).has_value();
    return forms ? "" : "elicitation.form";
  }
  if (method != kSample) return "";
  const bool wants_tools =
      core::FindMember(params, "tools") || core::FindMember(params, "toolChoice");
  if (wants_tools && !core::FindPath(capabilities, {"sampling", "tools"})) return "sampling.tools";
  if (revision >= kFirstWithContext && !core::FindPath(capabilities, {"sampling", "context"})) {
    params = core::RemoveMember(params, "includeContext");
  }
  return "";
}

std::optional<std::string> RefusalOf(const Session& session, std::string_view method,
                                     std::string& params) {
  if (!MayBeAsked(session, method)) {
    return core::MakeErrorObject(core::kMethodNotFound,
                                 fmt::format("the client does not offer '{}'", method));
  }
  const auto lacks = FitAsk(session.revision, session.capabilities, method, params);
  if (lacks.empty()) return std::nullopt;
  return core::MakeErrorObject(core::kInvalidParams,
                               fmt::format("the client does not offer '{}'", lacks));
}

void SetClient(const Session& session, v1::Dispatch& dispatch) {
  v1::ClientContext& client = *dispatch.mutable_client();
  client.set_revision(session.revision);
  client.set_capabilities(session.capabilities);
  client.set_client_info(session.client_info);
  client.set_log_level(session.log_level);
  if (MayBeAsked(session)) dispatch.set_backend_session(session.id);
}

}  // namespace callboard::server
