// Implementation of SessionAsks.
#include "server/flows/session_asks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/milliseconds.h"
#include "fmt/format.h"
#include "server/flows/client_capabilities.h"

namespace callboard::server {
namespace {

constexpr std::string_view kShuttingDown = "the control plane is shutting down";

std::string Reason(std::string_view why) { return core::JsonObject().String("reason", why).Take(); }

}  // namespace

// The term makes it another than those of a former control plane, whose asks may be answered late.
std::string SessionAsks::AskId(uint64_t n) const {
  return fmt::format("session.{}.{}", flow_.plane().term, n);
}

const Stream* SessionAsks::OwnStream(std::string_view session_id) const {
  const Session* session = flow_.plane().sessions.Find(session_id);
  if (session == nullptr) return nullptr;
  const auto own = session->streams.find(0);
  return own == session->streams.end() ? nullptr : own->second.get();
}

bool SessionAsks::IsGone(const Stream* own) const {
  return own == nullptr ||
         (own->reader == nullptr && flow_.plane().loop.Now() >= flow_.AwaitedUntil(*own));
}

// ---- from the agent -----------------------------------------------------------------------------

void SessionAsks::Take(const std::string& agent_id, v1::SessionAsk& ask) {
  Plane& plane = flow_.plane();
  v1::SessionAnswer answer;
  answer.set_seat_id(ask.seat_id());
  answer.set_backend_session(ask.backend_session());
  answer.set_ask_id(ask.ask_id());
  const auto refuse = [&](std::string error) {
    answer.mutable_error()->set_inline_(std::move(error));
    Say(agent_id, std::move(answer));
  };
  const auto not_now = [&](std::string_view why) {
    refuse(core::MakeErrorObject(
        core::kServerError,
        fmt::format("the client cannot be asked ({}) now: {}", ask.method(), why)));
  };
  if (plane.draining) return not_now(kShuttingDown);
  const Session* session = plane.sessions.Find(ask.backend_session());
  if (session == nullptr) return not_now("it has no session, or none any more");
  if (!session->seat_id.empty() && session->seat_id != ask.seat_id()) {
    return not_now("its session is about another application");
  }
  std::string params = std::move(*ask.mutable_params()->mutable_inline_());
  if (auto refusal = RefusalOf(*session, ask.method(), params)) return refuse(*std::move(refusal));
  const auto own = session->streams.find(0);
  if (own == session->streams.end()) {
    return not_now("none of its calls is at work, and it has no stream of its own (GET)");
  }
  if (IsGone(own->second.get())) return not_now("it is not there");
  const auto of_session = std::count_if(open_.begin(), open_.end(), [&](const auto& entry) {
    return entry.second.session_id == session->id;
  });
  if (static_cast<size_t>(of_session) >= kPerSession || open_.size() >= kAll) {
    return not_now("too much is asked already");
  }
  if (ask.method() == "elicitation/create") {
    flow_.NoteElicitation(ask.seat_id(), session->id, params);
  }
  const uint64_t n = ++last_;
  const absl::Duration wait =
      ask.deadline_ms() == 0 ? kWaitMax : std::min(core::FromMillis(ask.deadline_ms()), kWaitMax);
  open_[n] = {agent_id, session->id, std::move(answer), plane.loop.Now() + wait, {}};
  v1::AskEvent event;
  event.set_ask_id(AskId(n));
  event.set_method(ask.method());
  event.set_params(std::move(params));
  // Durable as all that its stream shows, though after a kill nobody waits for its answer.
  flow_.durable().Append(*own->second, {std::move(event), 0, 0}, DurableLog::Wait::kDurable);
  Await(n);
}

void SessionAsks::TakeBack(const std::string& agent_id, const v1::SessionAskCancel& cancelled) {
  const auto at = std::find_if(open_.begin(), open_.end(), [&](const auto& entry) {
    return entry.second.answer.ask_id() == cancelled.ask_id() && entry.second.agent_id == agent_id;
  });
  if (at == open_.end()) return;
  const auto node = open_.extract(at);
  Withdraw(node.key(), node.mapped(), cancelled.params().inline_());
}

void SessionAsks::OnLinkDown(const std::string& agent_id) {
  for (auto at = open_.begin(); at != open_.end();) {
    const auto present = at++;
    if (present->second.agent_id != agent_id) continue;
    const auto node = open_.extract(present);
    Withdraw(node.key(), node.mapped(), Reason("the link to the application's agent has ended"));
  }
}

// ---- from the client, or in its place -----------------------------------------------------------

bool SessionAsks::Answer(const std::string& session_id, const v1::AskAnswer& said) {
  const auto at = std::find_if(open_.begin(), open_.end(), [&](const auto& entry) {
    return entry.second.session_id == session_id && AskId(entry.first) == said.ask_id();
  });
  if (at == open_.end()) return false;
  auto node = open_.extract(at);
  v1::SessionAnswer& answer = node.mapped().answer;
  const bool is_error = !said.error().empty();
  const std::string& text = is_error ? said.error() : said.result();
  if (text.size() > CallFlow::kInlineMax) {
    answer.mutable_error()->set_inline_(core::MakeErrorObject(
        core::kServerError,
        fmt::format("the client's answer has {} bytes; outside a call at most {} are passed on",
                    text.size(), CallFlow::kInlineMax)));
  } else {
    (is_error ? *answer.mutable_error() : *answer.mutable_result()).set_inline_(text);
  }
  Say(node.mapped().agent_id, std::move(answer));
  return true;
}

void SessionAsks::EndSession(const std::string& session_id) {
  for (auto at = open_.begin(); at != open_.end();) {
    const auto present = at++;
    if (present->second.session_id != session_id) continue;
    GiveUp(present, "the session of the client has ended");
  }
}

void SessionAsks::EndAll() {
  while (!open_.empty()) GiveUp(open_.begin(), std::string(kShuttingDown));
}

void SessionAsks::Await(uint64_t n) {
  Open& open = open_.at(n);
  const Stream* own = OwnStream(open.session_id);
  const absl::Time now = flow_.plane().loop.Now();
  const absl::Time away = own == nullptr ? now
                          : own->reader != nullptr
                              ? now + flow_.plane().config.budgets.session_grace
                              : flow_.AwaitedUntil(*own);
  open.timer = flow_.plane().loop.At(std::min(open.until, away), [this, n] { Look(n); });
}

void SessionAsks::Look(uint64_t n) {
  const auto at = open_.find(n);
  if (at == open_.end()) return;
  if (flow_.plane().loop.Now() >= at->second.until) {
    return GiveUp(at, "the client has not answered in time");
  }
  if (IsGone(OwnStream(at->second.session_id))) return GiveUp(at, "the client is gone");
  Await(n);
}

void SessionAsks::GiveUp(Opened::iterator at, const std::string& why) {
  auto node = open_.extract(at);
  Withdraw(node.key(), node.mapped(), Reason(why));
  v1::SessionAnswer& answer = node.mapped().answer;
  answer.mutable_error()->set_inline_(core::MakeErrorObject(core::kServerError, why));
  Say(node.mapped().agent_id, std::move(answer));
}

void SessionAsks::Withdraw(uint64_t n, const Open& open, const std::string& raw_params) {
  Session* session = flow_.plane().sessions.Find(open.session_id);
  if (session == nullptr) return;
  const std::string_view params = raw_params.empty() ? "{}" : std::string_view(raw_params);
  audience_.TellSession(*session, "notifications/cancelled",
                        core::SetMember(params, "requestId", core::QuoteJson(AskId(n))));
}

void SessionAsks::Say(const std::string& agent_id, v1::SessionAnswer answer) {
  AgentSession* link = agents_.LinkOf(agent_id);
  if (link == nullptr) return;
  *link->outbox().Control().mutable_session_answer() = std::move(answer);
  link->ScheduleFlush();
}

}  // namespace callboard::server
