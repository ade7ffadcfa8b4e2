// McpSeat, how a call is put to its backend: in which session and revision, with which headers, and
// what has to be set there before.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "backend_agent/call_end.h"
#include "backend_agent/mcp_seat.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/mcp/log_levels.h"
#include "core/mcp/mirror_header.h"
#include "core/mcp/mirrored_arguments.h"

namespace callboard::agent {
namespace {

// For the answer to logging/setLevel before the call that needs it is sent all the same.
constexpr absl::Duration kLevelWait = absl::Seconds(2);
// What servers commonly send when nobody has asked for a level.
constexpr std::string_view kUsualLevel = "info";

// Of two levels the one that lets more through.
std::string MoreVerbose(const std::string& a, const std::string& b) {
  return core::McpSeverity(a) <= core::McpSeverity(b) ? a : b;
}

Payload LevelParams(const std::string& level) {
  return Payload(core::JsonObject().String("level", level).Take());
}

}  // namespace

void McpSeat::ChooseSession(Call& call) {
  // A client of the backend's own era speaks to it in that one, as if nobody stood between them;
  // but for tools that would need headers which cannot be made.
  const bool without_headers =
      call.spec.method == "tools/call" && session_->backend().has_headers() &&
      watcher_.IsMended(core::FindString(call.spec.params.view(), "name").value_or(""));
  call.in_modern =
      (call.spec.modern && session_->modern() && !without_headers) || session_->modern_only();
  if (call.in_modern || call.spec.backend_session.empty()) return;
  const McpSession* own = client_sessions_.Open(
      *session_, call.spec.backend_session,
      {.capabilities = call.spec.client_capabilities, .client_info = call.spec.client_info},
      call.spec.control_plane);
  if (own != nullptr) call.session = call.spec.backend_session;
}

void McpSeat::SendCall(const std::string& id) {
  const std::string call_id = id;  // the timer that holds it is cancelled below
  auto at = calls_.find(call_id);
  if (at == calls_.end() || at->second.phase != Phase::kRunning || at->second.request != 0) return;
  Call& call = at->second;
  call.send_timer.Cancel();
  if (SessionOf(call) == nullptr || !MatchesProcess(call.spec.expect_incarnation)) {
    return Finish(call_id, MakeEnd(v1::REJECTED, v1::BACKEND_UNREACHABLE, v1::NOT_STARTED,
                                   "the DCC has gone before the call was sent"));
  }
  Put(call, call.sent_params.empty() ? ParamsFor(call) : call.sent_params);
}

void McpSeat::Put(Call& call, Payload params) {
  const std::string call_id = call.spec.call_id;
  McpSession& session = *SessionOf(call);
  auto on_reply = [this, call_id](McpReply reply) { OnReply(call_id, std::move(reply)); };
  if (call.spec.notification) {
    call.request = session.Notify(call.spec.method, std::move(params), std::move(on_reply));
  } else {
    std::optional<ModernContext> modern;
    if (call.in_modern) {
      modern = {.client = {.capabilities = call.spec.client_capabilities,
                           .client_info = call.spec.client_info,
                           .log_level = call.spec.log_level},
                .param_headers = HeadersOf(call)};
      call.sent_params = params;
    }
    call.request = session.Request(call.spec.method, std::move(params), call.spec.wants_progress,
                                   std::move(on_reply), call.spec.trace, std::move(modern));
  }
  call_of_request_[{call.session, call.request}] = call_id;
}

// Members that only 2026-07-28 has end where that does.
Payload McpSeat::ParamsFor(const Call& call) {
  if (!call.spec.modern || call.in_modern) return call.spec.params;
  std::string_view params = call.spec.params.view();
  std::string text;
  for (const char* member : {"inputResponses", "requestState"}) {
    if (!core::FindMember(params, member)) continue;
    text = core::RemoveMember(params, member);
    params = text;
  }
  return text.empty() ? call.spec.params : Payload(std::move(text));
}

std::vector<std::pair<std::string, std::string>> McpSeat::HeadersOf(const Call& call) const {
  std::vector<std::pair<std::string, std::string>> headers;
  if (call.spec.method != "tools/call" || !session_->backend().has_headers()) return headers;
  const std::string_view params = call.spec.params.view();
  const std::string_view schema =
      watcher_.MirroredSchema(core::FindString(params, "name").value_or(""));
  if (schema.empty() && call.spec.param_headers.empty()) return headers;
  const std::string_view arguments = core::FindMember(params, "arguments").value_or("");
  auto mirrored = core::FindMirroredArguments(schema, arguments);
  for (const auto& [name, value] : call.spec.param_headers) {
    const bool known = std::any_of(mirrored.begin(), mirrored.end(), [&](const auto& argument) {
      return absl::AsciiStrToLower(argument.header) == name;
    });
    if (!known) headers.emplace_back(name, value);
  }
  for (core::MirroredArgument& argument : mirrored) {
    const std::string_view raw = argument.value;
    // What is of another type the backend refuses by its schema.
    if (core::IsString(raw)) {
      headers.emplace_back(std::move(argument.header),
                           core::EncodeMirrorHeader(core::DecodeString(raw).value_or("")));
    } else if (core::IsNumber(raw) || raw == "true" || raw == "false") {
      headers.emplace_back(std::move(argument.header), raw);
    }
  }
  return headers;
}

// The backend has found that headers and arguments differ, so its list is newer than ours. Nothing
// has run.
bool McpSeat::SendsAgain(Call& call, const McpReply& reply) {
  if (reply.kind != McpReply::Kind::kError || !call.in_modern || call.told || call.listed_anew ||
      call.spec.method != "tools/call" || session_ == nullptr ||
      !session_->backend().has_headers() ||
      core::FindInteger(reply.body.view(), "code") != core::kHeaderMismatch) {
    return false;
  }
  call.listed_anew = true;
  call_of_request_.erase({call.session, call.request});
  call.request = 0;
  watcher_.ListNow(limits_.relist_wait, [this, call_id = call.spec.call_id] { SendCall(call_id); });
  return true;
}

// What a backend of 2026-07-28 alone has no more is answered for it: who wants to hear what goes to
// it by the wishes of all (SetInterest), levels of logs by each request.
std::optional<McpReply> McpSeat::AnswerForBackend(const Call& call) const {
  constexpr std::array<std::string_view, 4> kGone = {
      "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"};
  if (!session_->modern_only() || call.spec.notification ||
      std::find(kGone.begin(), kGone.end(), call.spec.method) == kGone.end()) {
    return std::nullopt;
  }
  McpReply reply;
  reply.kind = McpReply::Kind::kResult;
  reply.body = Payload("{}");
  return reply;
}

// ---- log messages for one request --------------------------------------------------------------

std::string McpSeat::BaseLevel() const {
  return interest_.log_level().empty() ? std::string(kUsualLevel) : interest_.log_level();
}

bool McpSeat::IsRaised(const std::string& level) const {
  return core::McpSeverity(level) < core::McpSeverity(BaseLevel());
}

std::string McpSeat::WantedLevel() const {
  const bool raises = std::any_of(calls_.begin(), calls_.end(),
                                  [](const auto& entry) { return entry.second.raises_level; });
  // A level cannot be taken back, only set to another.
  std::string level = raises || level_raised_ ? BaseLevel() : interest_.log_level();
  for (const auto& [call_id, call] : calls_) {
    if (call.raises_level) level = MoreVerbose(level, call.spec.log_level);
  }
  return level;
}

bool McpSeat::SetsLevelFirst(Call& call) {
  const std::string& own = call.spec.log_level;
  if (!call.spec.modern || call.in_modern || call.spec.notification ||
      core::McpSeverity(own) == core::kMcpLogLevels.size() ||
      !core::FindMember(session_->server().capabilities, "logging")) {
    return false;
  }
  std::string* set = &level_set_;
  std::string wanted = own;
  if (call.session.empty()) {
    call.raises_level = true;
    wanted = WantedLevel();
    level_raised_ = level_raised_ || IsRaised(wanted);
    if (wanted == level_set_) return false;
  } else {
    // Nobody else hears what this session says outside its calls.
    set = client_sessions_.LevelOf(call.session);
    if (set == nullptr || (!set->empty() && MoreVerbose(*set, own) == *set)) return false;
  }
  *set = wanted;
  const std::string call_id = call.spec.call_id;
  call.send_timer = loop_.After(kLevelWait, [this, call_id] { SendCall(call_id); });
  SessionOf(call)->Request("logging/setLevel", LevelParams(wanted), false,
                           [this, call_id](const McpReply&) { SendCall(call_id); });
  return true;
}

bool McpSeat::IsForRaisedOnly(const Call* call, const std::string& raw_params) const {
  if (!level_raised_ || (call != nullptr && call->raises_level)) return false;
  const auto level = core::FindString(raw_params, "level");
  return level && core::McpSeverity(*level) < core::McpSeverity(BaseLevel());
}

}  // namespace callboard::agent
