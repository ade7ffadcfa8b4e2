// What the parts of the stdio face know of the whole: its session, its bounds, and whom to tell.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "apps/stdio/mcp_transport.h"
#include "apps/stdio/reconnector.h"
#include "core/runtime/event_loop.h"

namespace callboard::apps {

struct FaceConfig {
  ReconnectConfig reconnect;
  // Ends a request whose stream is not open, whatever has been heard before; on top of the caller's
  // own time-out. Beyond what a bridge waits by itself.
  absl::Duration hard_wait = absl::Minutes(14);
  // No request lasts longer; a caller's own time-out is cut to it.
  absl::Duration request_max = absl::Hours(24);
  // Before a request is asked for again, or a stream that ended in order is listened to again;
  // doubled with each time. A server's `retry:` is the least.
  absl::Duration again_first = absl::Milliseconds(500);
  absl::Duration again_max = absl::Seconds(30);
  int again_times = 6;  // of one request, without anything new
  // Requests that are not answered yet: one too many is answered with an error.
  size_t requests_max = 256;
  size_t request_bytes_max = 64 * 1024 * 1024;
  // Notifications and answers of the client that are not taken yet; the oldest go.
  size_t notes_max = 1024;
  size_t note_bytes_max = 16 * 1024 * 1024;
  absl::Duration note_timeout = absl::Seconds(15);
  // Requests of the server that the client has not answered; beyond, one is forgotten for each.
  size_t asks_max = 1024;
  // Names of tools that may run twice, and URIs that are subscribed to, for a new session.
  size_t names_max = 4096;
  // While so much waits for the client to read it, nothing more is read for it.
  size_t output_bytes_max = 1024 * 1024;
  // The end: for answers that are still to come when the client has closed its end, and for DELETE.
  absl::Duration end_grace = absl::Seconds(1);
  absl::Duration delete_timeout = absl::Milliseconds(700);
};

// Why a session is in doubt.
enum class Trouble { kLost, kGone, kUnauthenticated, kForbidden };

// Loop thread only. The face implements it and outlives its parts.
class FaceLink {
 public:
  virtual ~FaceLink() = default;
  virtual core::EventLoop& loop() = 0;
  virtual McpTransport& transport() = 0;
  virtual const FaceConfig& config() const = 0;
  virtual const SessionHeaders& session() const = 0;
  virtual bool connected() const = 0;
  // Acted upon later: never destroys the caller.
  virtual void OnTrouble(Trouble trouble, std::string detail) = 0;
  // A message of the server that answers nothing the caller knows of. May destroy the caller.
  virtual void OnServerMessage(std::string text) = 0;
};

// What an answer that is no success says of the session; nullopt: nothing.
std::optional<Trouble> TroubleOf(const AnswerEnd& end, const SessionHeaders& session);
// The JSON-RPC error object of an answer that is no success, if it has one.
std::optional<std::string_view> ErrorOf(const AnswerEnd& end);
// "HTTP 503 Service Unavailable: too many open streams", or why there was no answer.
std::string DescribeEnd(const AnswerEnd& end);

}  // namespace callboard::apps
