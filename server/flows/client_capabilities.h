// What a client has said, in initialize or with its request, that backends may ask it.
#pragma once

#include <string_view>

#include "callboard/v1/types.pb.h"
#include "server/domain/session_table.h"

namespace callboard::server {

// Whether the client takes requests of that method (MCP: sampling, elicitation, roots; any other
// method is the client's to refuse).
bool MayBeAsked(const Session& session, std::string_view method);
// Whether it takes any of the three: it then has a session of its own at backends.
bool MayBeAsked(const Session& session);
// The same of a client without a session: of these three it is asked nothing but what it declares,
// of anything else nothing at all.
bool MayBeAsked(const v1::ClientContext& client, std::string_view method);
bool MayBeAsked(const v1::ClientContext& client);

}  // namespace callboard::server
