// What a session's client has said in initialize that backends may ask it.
#pragma once

#include <string_view>

#include "server/domain/session_table.h"

namespace callboard::server {

// Whether the client takes requests of that method (MCP: sampling, elicitation, roots; any other
// method is the client's to refuse).
bool MayBeAsked(const Session& session, std::string_view method);
// Whether it takes any of the three: it then has a session of its own at backends.
bool MayBeAsked(const Session& session);

}  // namespace callboard::server
