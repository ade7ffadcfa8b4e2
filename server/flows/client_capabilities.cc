// Implementation of what clients may be asked.
#include "server/flows/client_capabilities.h"

#include "core/mcp/json.h"

namespace callboard::server {
namespace {

// Revisions from this one on have no sessions and are asked in another way.
constexpr std::string_view kFirstWithoutAsks = "2026-07-28";

bool Declares(const Session& session, std::string_view capability) {
  return core::FindMember(session.capabilities, capability).has_value();
}

}  // namespace

bool MayBeAsked(const Session& session, std::string_view method) {
  if (session.revision >= kFirstWithoutAsks) return false;
  for (const std::string_view capability : {"sampling", "elicitation", "roots"}) {
    if (method.starts_with(capability) && method.substr(capability.size()).starts_with('/')) {
      return Declares(session, capability);
    }
  }
  return true;
}

bool MayBeAsked(const Session& session) {
  return session.revision < kFirstWithoutAsks &&
         (Declares(session, "sampling") || Declares(session, "elicitation") ||
          Declares(session, "roots"));
}

}  // namespace callboard::server
