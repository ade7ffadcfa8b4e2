// What a client has said, in initialize or with its request, that backends may ask it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "callboard/v1/agent.pb.h"
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

// Of a request to a client of those capabilities (raw JSON), which may be asked by that method:
// what it would have to declare besides ("elicitation.form", "elicitation.url", "sampling.tools"),
// or "" and `params` as the client knows them. One that does not declare sampling.context is not
// asked to include any: what it does not have it would pass over, and its revision has told
// backends not to ask.
std::string_view FitAsk(std::string_view revision, std::string_view capabilities,
                        std::string_view method, std::string& params);
// What a backend is answered (raw error object) that asks the client of that session something it
// does not offer; nullopt: it may be asked, with the `params` as FitAsk leaves them.
std::optional<std::string> RefusalOf(const Session& session, std::string_view method,
                                     std::string& params);

// What a session sends goes with what its client has said, and to the MCP session at the backend
// that is its own, if it has one.
void SetClient(const Session& session, v1::Dispatch& dispatch);

}  // namespace callboard::server
