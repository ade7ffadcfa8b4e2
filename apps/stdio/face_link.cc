// Implementation of what the parts of the stdio face share.
#include "apps/stdio/face_link.h"

#include <fmt/format.h>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"
#include "net/http_server.h"

namespace callboard::apps {
namespace {

constexpr size_t kShownBytesMax = 300;

}  // namespace

std::optional<Trouble> TroubleOf(const AnswerEnd& end, const SessionHeaders& session) {
  switch (end.http_status) {
    case 401:
      return Trouble::kUnauthenticated;
    case 403:
      return Trouble::kForbidden;
    case 404:
      // Without a session it is the place that is not there.
      if (session.session.empty()) return std::nullopt;
      return Trouble::kGone;
    case 408:
    case 429:
    case 502:
    case 503:
    case 504:
      return Trouble::kLost;
    default:
      if (!end.status.ok()) return Trouble::kLost;
      return std::nullopt;
  }
}

std::optional<std::string_view> ErrorOf(const AnswerEnd& end) {
  // Where the request could not be read, the error has no id.
  if (!core::ValidateJson(end.refusal).ok() || !core::FindString(end.refusal, "jsonrpc")) {
    return std::nullopt;
  }
  const auto error = core::FindMember(end.refusal, "error");
  if (!error || !core::FindInteger(*error, "code")) return std::nullopt;
  return error;
}

std::string DescribeEnd(const AnswerEnd& end) {
  if (end.http_status == 0 || (end.http_status < 300 && !end.status.ok())) {
    return std::string(core::Message(end.status));
  }
  const auto error = core::FindMember(end.refusal, "error");
  const auto message = error ? core::FindString(*error, "message") : std::nullopt;
  const std::string_view said = message ? std::string_view(*message) : end.refusal;
  return fmt::format("HTTP {} {}{}{}", end.http_status, net::HttpReason(end.http_status),
                     said.empty() ? "" : ": ", said.substr(0, kShownBytesMax));
}

}  // namespace callboard::apps
