// What a request of the revisions without sessions (2026-07-28) says of itself in params._meta.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace callboard::core {

// The envelope's keys in `_meta`.
inline constexpr std::string_view kMetaProtocolVersion = "io.modelcontextprotocol/protocolVersion";
inline constexpr std::string_view kMetaClientCapabilities =
    "io.modelcontextprotocol/clientCapabilities";
inline constexpr std::string_view kMetaClientInfo = "io.modelcontextprotocol/clientInfo";
inline constexpr std::string_view kMetaLogLevel = "io.modelcontextprotocol/logLevel";
// Of results and of notifications.
inline constexpr std::string_view kMetaServerInfo = "io.modelcontextprotocol/serverInfo";
inline constexpr std::string_view kMetaSubscriptionId = "io.modelcontextprotocol/subscriptionId";

// The extension for tasks, in capabilities.extensions, and what tells of the state of one.
inline constexpr std::string_view kTasks = "io.modelcontextprotocol/tasks";
inline constexpr std::string_view kTaskNotice = "notifications/tasks";

// Raw JSON but for the log level, decoded; views into the params they were read from.
struct Envelope {
  std::string_view capabilities;  // an object
  std::string_view client_info;   // an object, or empty
  std::string log_level;          // empty: no log messages are wanted
};

// The member of params that the header Mcp-Name repeats; empty if the method has none.
std::string_view MemberOfMcpName(std::string_view method);

// The claim to belong to this era: the raw value of the protocol version, whatever it is; nullopt
// without one. Pure, as all of this file.
std::optional<std::string_view> FindModernClaim(std::string_view params);

// The rest of a request's envelope. InvalidArgument names the key that is missing or has a value of
// another type, or a member of params or `_meta` that is there twice.
absl::StatusOr<Envelope> ReadEnvelope(std::string_view params);

// Params without the envelope's keys; everything else, `progressToken` and unknown keys of `_meta`
// too, stays as it is.
std::string RemoveEnvelope(std::string_view params);
// Params with an envelope of that version; keys of another one are replaced.
std::string AddEnvelope(std::string_view params, std::string_view version,
                        const Envelope& envelope);

}  // namespace callboard::core
