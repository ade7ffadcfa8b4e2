// Implementation of SessionAttempt.
#include "apps/stdio/session_attempt.h"

#include <fmt/format.h>

#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"

namespace callboard::apps {
namespace {

using core::JsonRpcMessage;

constexpr std::string_view kProbeId = R"("callboard-probe")";

Attempt AttemptOf(Trouble trouble) {
  switch (trouble) {
    case Trouble::kGone:
      return Attempt::kGone;
    case Trouble::kUnauthenticated:
      return Attempt::kUnauthenticated;
    case Trouble::kForbidden:
      return Attempt::kForbidden;
    case Trouble::kLost:
      break;
  }
  return Attempt::kFailed;
}

}  // namespace

void SessionAttempt::Probe() {
  raw_id_ = kProbeId;
  Post(Step::kProbe, link_.session(), core::MakeRequest(kProbeId, "ping", {}));
}

void SessionAttempt::Initialize(std::string text, std::string raw_id, bool confirm) {
  raw_id_ = std::move(raw_id);
  confirm_ = confirm;
  Post(Step::kInitialize, {}, std::move(text));
}

void SessionAttempt::Post(Step step, const SessionHeaders& session, std::string text) {
  step_ = step;
  answer_.clear();
  exchange_ = link_.transport().Post(session, McpTransport::Kind::kOwn, {}, std::move(text), this);
}

void SessionAttempt::OnHead(const AnswerHead& head) {
  if (step_ == Step::kInitialize) result_.session.session = head.session;
}

void SessionAttempt::OnEvent(AnswerEvent event) {
  const auto message = core::ParseJsonRpc(event.text, /*validate=*/true);
  const bool response = message.ok() && (message->kind == JsonRpcMessage::Kind::kResult ||
                                         message->kind == JsonRpcMessage::Kind::kError);
  if (!response || message->id != raw_id_) return;
  answer_ = std::move(event.text);
  // A server may keep the stream of its answer open.
  AnswerEnd end;
  end.http_status = 200;
  end.reached = true;
  OnEnd(std::move(end));
}

void SessionAttempt::OnEnd(AnswerEnd end) {
  const auto ended = std::move(exchange_);
  Judge(end);
  if (exchange_ != nullptr) return;  // the next step
  auto done = std::move(done_);
  done(std::move(result_));
}

void SessionAttempt::Judge(const AnswerEnd& end) {
  if (step_ == Step::kInitialize && end.http_status >= 300) {
    const auto error = ErrorOf(end);
    result_.response = error
                           ? core::MakeRawErrorResponse(raw_id_, *error)
                           : core::MakeErrorResponse(raw_id_, core::kServerError, DescribeEnd(end));
    // Nothing that waiting would change: no such place, or nothing that speaks MCP there.
    result_.refused = end.http_status == 400 || end.http_status == 404 || end.http_status == 405;
  }
  const SessionHeaders& session = step_ == Step::kProbe ? link_.session() : result_.session;
  if (const auto trouble = TroubleOf(end, session)) {
    result_.attempt = AttemptOf(*trouble);
    result_.detail = DescribeEnd(end);
    return;
  }
  if (end.http_status / 100 != 2) {
    result_.detail = DescribeEnd(end);
    return;
  }
  if (step_ == Step::kConfirm) {
    result_.attempt = Attempt::kValid;
    return;
  }
  if (answer_.empty()) {
    result_.detail = "an answer without a response";
    return;
  }
  const auto message = core::ParseJsonRpc(answer_, /*validate=*/false);
  if (step_ == Step::kProbe) {
    // An error is an answer under the session, too.
    result_.attempt = Attempt::kValid;
    return;
  }
  result_.response = answer_;
  if (!message.ok() || message->kind != JsonRpcMessage::Kind::kResult) {
    result_.refused = true;
    result_.detail = message.ok()
                         ? core::FindString(message->error, "message").value_or("initialize failed")
                         : "initialize was not understood";
    return;
  }
  result_.session.revision = core::FindString(message->result, "protocolVersion").value_or("");
  if (confirm_) {
    return Post(Step::kConfirm, result_.session,
                core::MakeNotification("notifications/initialized", {}));
  }
  result_.attempt = Attempt::kValid;
}

}  // namespace callboard::apps
