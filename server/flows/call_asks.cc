// CallFlow, asks: where and for how long clients are asked, elicitations outside the client.
#include <utility>

#include "core/mcp/elicitation.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "server/flows/call_flow.h"

namespace callboard::server {

// ---- where, and for how long
// ----------------------------------------------------------------------

Stream* CallFlow::AskedOn(const LiveCall& call) const {
  if (call.stream != nullptr) return call.stream.get();
  const Session* session = plane_.sessions.Find(call.request.session_id());
  if (session == nullptr) return nullptr;
  const auto own = session->streams.find(0);
  return own == session->streams.end() ? nullptr : own->second.get();
}

absl::Time CallFlow::AwaitedUntil(const Stream& stream) const {
  return stream.idle_since + plane_.config.budgets.session_grace;
}

void CallFlow::AwaitClient(LiveCall& call) {
  const Stream* stream = AskedOn(call);
  if (call.asks.empty() || stream == nullptr || stream->reader != nullptr) return;
  if (call.request.has_client()) return;  // asked in another way
  call.asks_by = AwaitedUntil(*stream);
  Arm(call);
}

void CallFlow::AwaitClientOf(const Stream& own) {
  const Session* session = plane_.sessions.Find(own.session_id);
  if (session == nullptr) return;
  for (const uint64_t order : session->calls) {
    const auto call = calls_.find(order);
    if (call != calls_.end() && call->second->stream == nullptr) AwaitClient(*call->second);
  }
}

void CallFlow::EndAsksOfTheGone(LiveCall& call) {
  call.asks_by = absl::InfiniteFuture();
  const Stream* stream = AskedOn(call);
  if (call.asks.empty() || stream == nullptr || stream->reader != nullptr) return;
  if (Now() < AwaitedUntil(*stream)) return AwaitClient(call);  // it was here meanwhile
  for (const uint64_t ask : std::exchange(call.asks, {})) {
    AnswerAsk(call, ask, "", core::MakeErrorObject(core::kServerError, "the client is gone"));
  }
  if (call.recorded) Record(call);
}

void CallFlow::TellAsked(LiveCall& call, uint64_t n, std::string_view method, std::string params) {
  if (call.stream != nullptr && !call.ended) {
    return Publish(call, n, std::string(method), std::move(params));
  }
  AckLater(call);
  if (Session* session = plane_.sessions.Find(call.request.session_id())) {
    audience_.TellSession(*session, method, params);
  }
}

// ---- elicitations outside the client ------------------------------------------------------------

void CallFlow::NoteElicitation(const std::string& seat_id, const std::string& session_id,
                               std::string_view raw, const CallId& call) {
  const std::string id = core::ElicitationIdOf(raw);
  const Session* session = plane_.sessions.Find(session_id);
  if (id.empty() || session == nullptr) return;
  plane_.elicitations.Add(seat_id, id, {session_id, call});
  durable_.TouchSession(*session);
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
    NoteElicitation(call.seat_id, call.request.session_id(), elicitation, call.id);
    return true;
  });
}

std::optional<ElicitationTable::Owner> CallFlow::TakeElicitation(const std::string& seat_id,
                                                                 std::string_view params) {
  auto owner = plane_.elicitations.Take(seat_id, core::ElicitationIdOf(params));
  const Session* session = owner ? plane_.sessions.Find(owner->session_id) : nullptr;
  if (session != nullptr) durable_.TouchSession(*session);
  return owner;
}

void CallFlow::TakeElicited(LiveCall& call, uint64_t n, std::string params) {
  if (call.request.has_client()) return AckLater(call);  // revisions without sessions have it not
  (void)TakeElicitation(call.seat_id, params);
  TellAsked(call, n, core::kElicitationComplete, std::move(params));
}

bool CallFlow::TellElicited(const std::string& seat_id, const std::string& params) {
  const auto owner = TakeElicitation(seat_id, params);
  if (!owner) return false;
  if (LiveCall* call = Find(owner->call); call != nullptr && !call->ended && call->stream) {
    Publish(*call, 0, std::string(core::kElicitationComplete), params);
    return true;
  }
  Session* session = plane_.sessions.Find(owner->session_id);
  return session != nullptr && audience_.TellSession(*session, core::kElicitationComplete, params);
}

}  // namespace callboard::server
