// McpSeat, what the backend says by itself: progress, notifications, requests to clients.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "backend_agent/mcp_seat.h"
#include "core/mcp/elicitation.h"
#include "core/mcp/envelope.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

// For the control plane's new wish to come before a wish is applied that may be outdated, and
// before a request that failed is made again.
constexpr absl::Duration kInterestWait = absl::Seconds(5);
constexpr size_t kElicitationsMax = 64;  // of one call
// After the client's time is over, for what the control plane says then.
constexpr absl::Duration kAnswerGrace = absl::Seconds(10);

bool ConcernsEverybody(std::string_view method) {
  return method.ends_with("/list_changed") || method == "notifications/resources/updated";
}

// Whoever hears of it from here has a subscription of its own, or none.
std::string WithoutSubscription(std::string params) {
  const auto meta = core::FindMember(params, "_meta");
  if (!meta || !core::FindMember(*meta, core::kMetaSubscriptionId)) return params;
  const std::string rest = core::RemoveMember(*meta, core::kMetaSubscriptionId);
  return rest == "{}" ? core::RemoveMember(params, "_meta")
                      : core::SetMember(params, "_meta", rest);
}

}  // namespace

McpSession* McpSeat::SessionOf(const Call& call) {
  return call.session.empty() ? session_.get() : client_sessions_.Find(call.session);
}

McpSeat::Call* McpSeat::CallOf(const std::string& session, uint64_t request, bool any_lane) {
  if (request != 0) {
    auto at = call_of_request_.find({session, request});
    auto call = at == call_of_request_.end() ? calls_.end() : calls_.find(at->second);
    const bool runs =
        call != calls_.end() && !call->second.told && call->second.phase == Phase::kRunning;
    return runs ? &call->second : nullptr;
  }
  // A message that names no call is the running one's if there is no doubt. In the session of one
  // client it is for that client, whichever of its calls takes it there: the newest.
  Call* only = nullptr;
  Call* newest = nullptr;
  bool doubt = false;
  for (auto& [call_id, call] : calls_) {
    if (!call.slot || call.session != session || call.spec.notification) continue;
    doubt = only != nullptr;
    only = &call;
    const bool of_its_client = !session.empty() && call.spec.session_id == session;
    if (!of_its_client || call.told || call.phase != Phase::kRunning) continue;
    if (newest == nullptr || call.started >= newest->started) newest = &call;
  }
  if (newest != nullptr) return newest;
  if (doubt || only == nullptr || only->told || only->phase != Phase::kRunning) return nullptr;
  return any_lane || only->lane.lane == v1::MAIN ? only : nullptr;
}

void McpSeat::OnProgress(const std::string& key, uint64_t request, std::string raw_params) {
  const Call* call = CallOf(key, request, true);
  if (call == nullptr) return;
  Tell([this, call_id = call->spec.call_id, params = std::move(raw_params)]() mutable {
    observer_.OnProgress(call_id, std::move(params));
  });
}

void McpSeat::OnServerNotification(const std::string& key, uint64_t request, std::string method,
                                   std::string raw_params) {
  const bool is_log = method == "notifications/message";
  if (key.empty()) {
    // What a listening carries belongs to no call; also what one that is over still had under way.
    if (listen_.Hears(request, raw_params)) request = 0;
    if (method == "notifications/subscriptions/acknowledged") return;
    raw_params = WithoutSubscription(std::move(raw_params));
  }
  if (method == "notifications/cancelled") return TakeAskBack(key, raw_params);
  if (method == core::kElicitationComplete) return TakeElicited(key, std::move(raw_params));
  const Call* call = nullptr;
  const bool of_everybody = ConcernsEverybody(method);
  if (!of_everybody && (is_log || request != 0 || !key.empty())) call = CallOf(key, request, false);
  if (is_log && key.empty() && IsForRaisedOnly(call, raw_params)) return;
  if (call != nullptr) {
    Tell([this, is_log, call_id = call->spec.call_id, method = std::move(method),
          params = std::move(raw_params)]() mutable {
      if (is_log) {
        observer_.OnLog(call_id, std::move(params));
      } else {
        observer_.OnNotification(call_id, std::move(method), std::move(params));
      }
    });
    return;
  }
  // What comes of a call that is over, or in the session of one client, is nobody else's.
  if (!of_everybody && (request != 0 || !key.empty())) return;
  if (method == "notifications/tools/list_changed") {
    for (auto& [call_id, running] : calls_) {
      if (running.phase == Phase::kRunning) running.lists_changed = true;
    }
    watcher_.OnListChanged();
  }
  Tell([this, method = std::move(method), params = std::move(raw_params)]() mutable {
    seats_.OnNotice(description_.seat_id, std::move(method), std::move(params));
  });
}

// It belongs to the client that was asked. While the call that has asked runs it goes with that;
// whose the others are the control plane knows.
void McpSeat::TakeElicited(const std::string& key, std::string raw_params) {
  const std::string id = core::ElicitationIdOf(raw_params);
  const auto at = std::find_if(calls_.begin(), calls_.end(), [&](const auto& entry) {
    const Call& call = entry.second;
    return call.session == key && !call.told && call.phase == Phase::kRunning &&
           call.elicitations.contains(id);
  });
  Tell([this, call_id = at == calls_.end() ? std::string() : at->first,
        params = std::move(raw_params)]() mutable {
    const std::string method(core::kElicitationComplete);
    if (call_id.empty()) return seats_.OnNotice(description_.seat_id, method, std::move(params));
    observer_.OnNotification(call_id, method, std::move(params));
  });
}

// The backend no longer wants an answer to a request of its own; the client is told so. Or it ends
// what it is listened to, over a pipe maybe by this alone.
void McpSeat::TakeAskBack(const std::string& key, const std::string& raw_params) {
  const auto raw_id = core::FindMember(raw_params, "requestId");
  if (key.empty() && listen_.EndedBy(raw_id.value_or(""))) return;
  const auto at = std::find_if(asks_.begin(), asks_.end(), [&](const auto& entry) {
    return raw_id && entry.second.session == key && entry.second.raw_id == *raw_id;
  });
  if (at == asks_.end()) return;
  Tell([this, ask = at->first, call_id = at->second.call_id,
        params = core::RemoveMember(raw_params, "requestId")]() mutable {
    if (call_id.empty()) {
      return seats_.OnSessionAskOver(description_.seat_id, ask, std::move(params));
    }
    observer_.OnAskCancelled(call_id, ask, std::move(params));
  });
  asks_.erase(at);
}

void McpSeat::OnServerRequest(const std::string& key, uint64_t request, std::string raw_id,
                              std::string method, std::string raw_params) {
  Call* call = CallOf(key, request, true);
  // What comes with the answer to a call that is over is that call's, and too late.
  const bool of_session =
      call == nullptr && !key.empty() && !call_of_request_.contains({key, request});
  if ((call == nullptr && !of_session) || asks_.size() >= limits_.asks_max) {
    McpSession* session = key.empty() ? session_.get() : client_sessions_.Find(key);
    const bool full = call != nullptr || of_session;
    if (session == nullptr) return;
    return session->Respond(
        raw_id, true,
        core::MakeErrorObject(
            full ? core::kServerError : core::kMethodNotFound,
            full ? fmt::format("{} requests to clients are open already", asks_.size())
                 : fmt::format("there is no client to pass '{}' to: it belongs to no call that is "
                               "certain to be its cause",
                               method)));
  }
  if (of_session) {
    return AskSession(key, std::move(raw_id), std::move(method), std::move(raw_params));
  }
  if (method == "elicitation/create" && call->elicitations.size() < kElicitationsMax) {
    if (std::string id = core::ElicitationIdOf(raw_params); !id.empty()) {
      call->elicitations.insert(std::move(id));
    }
  }
  const uint64_t ask = next_ask_++;
  asks_[ask] = {call->spec.call_id, key, std::move(raw_id), {}, {}};
  Tell([this, ask, call_id = call->spec.call_id, method = std::move(method),
        params = std::move(raw_params)]() mutable {
    if (asks_.contains(ask)) observer_.OnAsk(call_id, ask, std::move(method), std::move(params));
  });
}

void McpSeat::AskSession(const std::string& key, std::string raw_id, std::string method,
                         std::string raw_params) {
  // One that is saying goodbye needs no answer.
  if (client_sessions_.Find(key) == nullptr) return;
  const uint64_t ask = next_ask_++;
  OpenAsk& open = asks_[ask];
  open.session = key;
  open.raw_id = std::move(raw_id);
  open.timer = loop_.After(limits_.session_ask_wait + kAnswerGrace,
                           [this, ask] { OnSessionAskUnanswered(ask); });
  SeatAsk told{.number = ask,
               .backend_session = key,
               .control_plane = client_sessions_.ControlPlaneOf(key),
               .method = std::move(method),
               .raw_params = std::move(raw_params),
               .wait = limits_.session_ask_wait};
  Tell([this, told = std::move(told)]() mutable {
    if (asks_.contains(told.number)) seats_.OnSessionAsk(description_.seat_id, std::move(told));
  });
}

void McpSeat::OnSessionAskUnanswered(uint64_t ask) {
  const std::string why = fmt::format("the client has not answered within {}",
                                      absl::FormatDuration(limits_.session_ask_wait));
  Answer(ask, true, Payload(core::MakeErrorObject(core::kServerError, why)));
  Tell([this, ask, params = core::JsonObject().String("reason", why).Take()]() mutable {
    seats_.OnSessionAskOver(description_.seat_id, ask, std::move(params));
  });
}

void McpSeat::OnSessionOver(const std::string& key) {
  for (auto at = asks_.begin(); at != asks_.end();) {
    if (at->second.session != key || !at->second.call_id.empty()) {
      ++at;
      continue;
    }
    TellLater([this, ask = at->first] {
      seats_.OnSessionAskOver(
          description_.seat_id, ask,
          core::JsonObject().String("reason", "the application has ended its session").Take());
    });
    at = asks_.erase(at);
  }
}

void McpSeat::Answer(uint64_t ask, bool is_error, Payload text) {
  auto node = asks_.extract(ask);
  if (node.empty()) return;
  const OpenAsk& open = node.mapped();
  if (!open.key.empty()) return TakeInput(open, is_error, text);
  McpSession* session = open.session.empty() ? session_.get() : client_sessions_.Find(open.session);
  if (session != nullptr) session->Respond(open.raw_id, is_error, text.view());
}

void McpSeat::EndAsksOf(const std::string& call_id) {
  std::vector<uint64_t> over;
  for (const auto& [ask, open] : asks_) {
    if (open.call_id == call_id) over.push_back(ask);
  }
  for (const uint64_t ask : over) {
    Answer(ask, true,
           Payload(core::MakeErrorObject(core::kServerError,
                                         "the call that led to this request is over")));
  }
}

// ---- what the control plane wants to hear ------------------------------------------------------

void McpSeat::SetInterest(const v1::Interest& interest) {
  interest_ = interest;
  ApplyInterest();
  ListenModern();
}

void McpSeat::ApplyInterest() {
  if (session_ == nullptr || !session_->ready() || session_->modern_only()) return;
  const std::string& capabilities = session_->server().capabilities;
  // `on_reply` learns how the backend has answered; if not at all, it is asked again.
  using Kind = McpReply::Kind;
  auto ask = [this](std::string method, std::string_view key, const std::string& value,
                    absl::AnyInvocable<void(Kind)> on_reply) {
    session_->Request(std::move(method), Payload(core::JsonObject().String(key, value).Take()),
                      false, [this, on_reply = std::move(on_reply)](const McpReply& reply) mutable {
                        if (reply.kind == Kind::kFailed) ApplyInterestLater();
                        on_reply(reply.kind);
                      });
  };
  if (const std::string level = WantedLevel();
      !level.empty() && level != level_set_ && core::FindMember(capabilities, "logging")) {
    level_set_ = level;
    ask("logging/setLevel", "level", level_set_, [this](Kind kind) {
      if (kind == Kind::kFailed) {
        level_set_.clear();
      } else {
        level_raised_ = IsRaised(level_set_);
      }
    });
  }
  const std::set<std::string> wanted(interest_.resource_uris().begin(),
                                     interest_.resource_uris().end());
  const bool may_subscribe = core::FindPath(capabilities, {"resources", "subscribe"}) == "true";
  for (const std::string& uri : wanted) {
    if (!may_subscribe || !subscribed_.insert(uri).second) continue;
    ask("resources/subscribe", "uri", uri, [this, uri](Kind kind) {
      if (kind != Kind::kResult) {
        // One that is refused is asked for again when the wish or the session is another.
        subscribed_.erase(uri);
        return;
      }
      // What changed while nobody was subscribed to it, nobody has told.
      Tell([this, uri] {
        seats_.OnNotice(description_.seat_id, "notifications/resources/updated",
                        core::JsonObject().String("uri", uri).Take());
      });
    });
  }
  for (auto it = subscribed_.begin(); it != subscribed_.end();) {
    if (wanted.contains(*it)) {
      ++it;
      continue;
    }
    ask("resources/unsubscribe", "uri", *it, [this, uri = *it](Kind kind) {
      if (kind == Kind::kFailed) subscribed_.insert(uri);
    });
    it = subscribed_.erase(it);
  }
}

// Over one pipe the session says it all.
void McpSeat::ListenModern() {
  const bool by_session = session_ == nullptr || !session_->modern_only();
  if (session_ == nullptr || !session_->modern() ||
      (by_session && !session_->backend().ends_unanswered_exchanges())) {
    return listen_.Stop();
  }
  listen_.Listen(*session_,
                 {.uris = {interest_.resource_uris().begin(), interest_.resource_uris().end()},
                  .task_ids = {interest_.task_ids().begin(), interest_.task_ids().end()}});
}

void McpSeat::OnListenedAgain() {
  watcher_.OnListChanged();
  const auto notice = [this](std::string method, std::string params) {
    Tell([this, method = std::move(method), params = std::move(params)] {
      seats_.OnNotice(description_.seat_id, method, params);
    });
  };
  for (const char* list : {"tools", "prompts", "resources"}) {
    notice(fmt::format("notifications/{}/list_changed", list), "");
  }
  for (const std::string& uri : interest_.resource_uris()) {
    notice("notifications/resources/updated", core::JsonObject().String("uri", uri).Take());
  }
}

void McpSeat::ApplyInterestLater() {
  interest_timer_ = loop_.After(kInterestWait, [this] { ApplyInterest(); });
}

// A client's own request has done it already. Others may want something else, and the client may be
// told another end of its request: the wish as a whole decides in the end.
void McpSeat::NoteInterest(const Call& call) {
  const std::string& method = call.spec.method;
  if (!call.session.empty()) return;
  if (method == "logging/setLevel") {
    level_set_ = core::FindString(call.spec.params.view(), "level").value_or("");
  } else if (method == "resources/subscribe") {
    subscribed_.insert(core::FindString(call.spec.params.view(), "uri").value_or(""));
  } else if (method == "resources/unsubscribe") {
    subscribed_.erase(core::FindString(call.spec.params.view(), "uri").value_or(""));
  } else {
    return;
  }
  ApplyInterestLater();
}

}  // namespace callboard::agent
