// CallFlow, asks: clients that are away, and elicitations that go on outside the client.
#include <utility>

#include "core/mcp/elicitation.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "server/flows/call_flow.h"

namespace callboard::server {

// ---- clients that are away ----------------------------------------------------------------------

absl::Time CallFlow::AwaitedUntil(const LiveCall& call) const {
  return call.stream->idle_since + plane_.config.budgets.session_grace;
}

void CallFlow::AwaitClient(LiveCall& call) {
  if (call.asks.empty() || call.stream == nullptr || call.stream->reader != nullptr) return;
  call.asks_by = AwaitedUntil(call);
  Arm(call);
}

void CallFlow::EndAsksOfTheGone(LiveCall& call) {
  call.asks_by = absl::InfiniteFuture();
  if (call.asks.empty() || call.stream == nullptr || call.stream->reader != nullptr) return;
  if (Now() < AwaitedUntil(call)) return AwaitClient(call);  // it was here meanwhile
  for (const uint64_t ask : std::exchange(call.asks, {})) {
    AnswerAsk(call, ask, "", core::MakeErrorObject(core::kServerError, "the client is gone"));
  }
  if (call.recorded) Record(call);
}

// ---- elicitations outside the client ------------------------------------------------------------

void CallFlow::NoteElicitation(const LiveCall& call, std::string_view raw) {
  const std::string id = core::ElicitationIdOf(raw);
  if (id.empty() || call.request.session_id().empty()) return;
  elicitations_.Add(call.seat_id, id, {call.request.session_id(), call.id});
}

void CallFlow::NoteElicitations(const LiveCall& call, const v1::Outcome& outcome) {
  const std::string& error = outcome.body().inline_();
  if (outcome.class_() != v1::RPC_ERROR ||
      core::FindInteger(error, "code") != core::kUrlElicitationRequired) {
    return;
  }
  const auto listed = core::FindPath(error, {"data", "elicitations"});
  if (!listed) return;
  (void)core::ForEachElement(*listed, [&](std::string_view elicitation) {
    NoteElicitation(call, elicitation);
    return true;
  });
}

void CallFlow::TakeElicited(LiveCall& call, uint64_t n, std::string params) {
  if (call.request.has_client()) return AckLater(call);  // revisions without sessions have it not
  elicitations_.Take(call.seat_id, core::ElicitationIdOf(params));
  if (call.stream != nullptr && !call.ended) {
    return Publish(call, n, std::string(core::kElicitationComplete), std::move(params));
  }
  AckLater(call);
  if (Session* session = plane_.sessions.Find(call.request.session_id())) {
    audience_.TellSession(*session, core::kElicitationComplete, params);
  }
}

bool CallFlow::TellElicited(const std::string& seat_id, const std::string& params) {
  const auto owner = elicitations_.Take(seat_id, core::ElicitationIdOf(params));
  if (!owner) return false;
  if (LiveCall* call = Find(owner->call); call != nullptr && !call->ended && call->stream) {
    Publish(*call, 0, std::string(core::kElicitationComplete), params);
    return true;
  }
  Session* session = plane_.sessions.Find(owner->session_id);
  return session != nullptr && audience_.TellSession(*session, core::kElicitationComplete, params);
}

}  // namespace callboard::server
