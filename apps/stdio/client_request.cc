// Implementation of ClientRequest.
#include "apps/stdio/client_request.h"

#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "fmt/format.h"

namespace callboard::apps {
namespace {

using core::JsonRpcMessage;

constexpr std::string_view kUnanswered =
    "the server ended the answer without a result, and asking again did not bring one";

}  // namespace

ClientRequest::ClientRequest(Owner& owner, Asked asked)
    : owner_(owner), asked_(std::move(asked)), begun_(owner.loop().Now()), heard_(begun_) {
  hard_timer_ =
      owner_.loop().After(owner_.config().hard_wait + asked_.wish, [this] { OnHardTimer(); });
}

void ClientRequest::Send() {
  if (exchange_ != nullptr || !owner_.connected()) return;
  again_timer_.Cancel();
  head_ = false;
  listening_ = !position_.empty();
  if (listening_) {
    exchange_ = owner_.transport().Listen(owner_.session(), position_, this);
    return;
  }
  if (may_have_run() && asked_.key.empty() && !asked_.repeatable) {
    return owner_.OnNoAnswer(*this, "outcome_unknown", kUnanswered);
  }
  lost_ = may_have_run();
  posted_ = true;
  exchange_ = owner_.transport().Post(owner_.session(), McpTransport::Kind::kRelayed, asked_.key,
                                      asked_.text, this);
}

void ClientRequest::Resume() {
  away_timer_.Cancel();
  // Its connection may be one that died without a word.
  if (!head_) exchange_.reset();
  Send();
}

bool ClientRequest::Renew() {
  away_timer_.Cancel();
  exchange_.reset();
  position_.clear();
  if (may_have_run() && !asked_.repeatable) return false;
  posted_ = lost_ = false;
  again_ = 0;
  Send();
  return true;
}

void ClientRequest::Await() {
  if (asked_.wish <= absl::ZeroDuration()) return;
  away_timer_ = owner_.loop().After(asked_.wish, [this] {
    owner_.OnNoAnswer(*this, "timed_out",
                      "the server was away for longer than the time-out of the call");
  });
}

// ---- the answer -------------------------------------------------------------------------------

void ClientRequest::OnHead(const AnswerHead& head) {
  head_ = head.http_status / 100 == 2;
  if (head_) heard_ = owner_.loop().Now();
}

void ClientRequest::OnEvent(AnswerEvent event) {
  heard_ = owner_.loop().Now();
  if (event.retry) retry_ = event.retry;
  if (!event.id.empty()) {
    position_ = std::move(event.id);
    if (!event.text.empty()) again_ = 0;
  }
  if (event.text.empty()) return;
  const auto message = core::ParseJsonRpc(event.text, /*validate=*/false);
  const bool response = message.ok() && (message->kind == JsonRpcMessage::Kind::kResult ||
                                         message->kind == JsonRpcMessage::Kind::kError);
  if (!response || message->id != asked_.id) return owner_.OnServerMessage(std::move(event.text));
  if (message->kind == JsonRpcMessage::Kind::kError && ShouldAskAgain(message->error)) {
    exchange_.reset();
    return AskAgain();
  }
  owner_.OnAnswer(*this, std::move(event.text));
}

bool ClientRequest::ShouldAskAgain(std::string_view error) {
  const auto data = core::FindMember(error, "data");
  if (!data || again_ >= owner_.config().again_times) return false;
  const std::string reason = core::FindString(*data, "reason").value_or("");
  const std::string certainty = core::FindString(*data, "certainty").value_or("");
  if (reason == "store_unavailable" && !asked_.key.empty()) {
    // Only calls with a key need the store. Nothing was started, and it goes without one.
    asked_.key.clear();
    posted_ = lost_ = false;
    return true;
  }
  const bool of_the_way = reason == "draining" || reason == "control_plane_unavailable" ||
                          reason == "control_plane_restarted" || reason == "outcome_unknown" ||
                          reason == "control_plane_lost";
  if (!of_the_way) return false;
  if (certainty == "not_started") {
    posted_ = false;
    return true;
  }
  return !asked_.key.empty() || asked_.repeatable;
}

// The call itself goes on or is over: the server tells whoever asks with the same key.
void ClientRequest::AskAgain() {
  position_.clear();
  SendLater();
}

void ClientRequest::SendLater() {
  const FaceConfig& config = owner_.config();
  if (again_ >= config.again_times) {
    return owner_.OnNoAnswer(*this, "outcome_unknown", kUnanswered);
  }
  absl::Duration wait = std::min(config.again_max, config.again_first * (1 << again_++));
  if (!position_.empty()) wait = std::max(wait, retry_.value_or(absl::ZeroDuration()));
  again_timer_ = owner_.loop().After(wait, [this] { Send(); });
}

void ClientRequest::OnEnd(AnswerEnd end) {
  const auto ended = std::move(exchange_);
  const bool whole = head_ && end.status.ok();
  head_ = false;
  if (const auto trouble = TroubleOf(end, owner_.session())) {
    if (!listening_) {
      // What was refused before anybody looked at it has not run.
      const bool refused = end.http_status != 0 && end.http_status != 408 &&
                           end.http_status != 502 && end.http_status != 504 &&
                           end.http_status >= 300;
      if (refused || !end.reached) posted_ = false;
    }
    return owner_.OnTrouble(*trouble, DescribeEnd(end));
  }
  if (whole) return OnWhole(end.http_status);
  OnRefused(end);
}

// The end of a stream in order, or of an answer, without what was asked for.
void ClientRequest::OnWhole(int http_status) {
  if (!position_.empty() && http_status != 204) return SendLater();
  AskAgain();
}

void ClientRequest::OnRefused(const AnswerEnd& end) {
  // There is nothing to go on with.
  if (listening_) return AskAgain();
  posted_ = false;
  if (const auto error = ErrorOf(end)) {
    if (ShouldAskAgain(*error)) return AskAgain();
    return owner_.OnAnswer(*this, core::MakeRawErrorResponse(asked_.id, *error));
  }
  owner_.OnAnswer(
      *this,
      core::MakeErrorResponse(
          asked_.id, core::kServerError, DescribeEnd(end),
          core::JsonObject().String("reason", fmt::format("http_{}", end.http_status)).Take()));
}

void ClientRequest::OnHardTimer() {
  const FaceConfig& config = owner_.config();
  const absl::Time now = owner_.loop().Now();
  // While its stream lives, the server has timers of its own.
  if (head_ && now - begun_ < config.request_max + asked_.wish) {
    hard_timer_ = owner_.loop().After(config.hard_wait, [this] { OnHardTimer(); });
    return;
  }
  owner_.OnNoAnswer(*this, "hard_timer", "nothing was heard of the request for too long");
}

}  // namespace callboard::apps
