// SimClient: connecting, sending, and what becomes of each HTTP exchange.
#include "tests/sim/sim_client.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"
#include "tests/sim/client_request.h"

namespace callboard::sim {

SimClient::SimClient(ClientSurroundings& world, ClientHabits habits)
    : world_(world),
      habits_(std::move(habits)),
      http_(std::make_unique<net::HttpClient>(world.loop, world.connect(habits_.name),
                                              "127.0.0.1:9765", net::HttpClientLimits{})) {}
SimClient::~SimClient() = default;

void SimClient::After(absl::Duration delay, absl::AnyInvocable<void()> fn) {
  while (!timers_.empty() && !timers_.front().pending()) timers_.pop_front();
  timers_.push_back(world_.loop.After(delay, std::move(fn)));
}

absl::Duration SimClient::Between(int64_t low_ms, int64_t high_ms) {
  const auto span = static_cast<uint64_t>(high_ms - low_ms) + 1;
  return absl::Milliseconds(low_ms + static_cast<int64_t>(world_.random.Below(span)));
}

void SimClient::Start() {
  After(Between(0, 3'000), [this] { Connect(); });
  After(Between(500, 4'000), [this] { Think(); });
  Tick();
}

void SimClient::StopCalling() { calling_ = false; }

bool SimClient::quiet() const {
  for (const auto& [key, call] : calls_) {
    if (call.open) return false;
  }
  for (const auto& [key, request] : requests_) {
    if (request->kind != Kind::kListen) return false;
  }
  return true;
}

void SimClient::Vanish() {
  vanished_ = true;
  calling_ = false;
  timers_.clear();
  tick_.Cancel();
  requests_.clear();
  for (auto& [key, call] : calls_) call.open = false;
  http_.reset();
}

std::string SimClient::OpenCalls() const {
  std::string text;
  for (const auto& [key, call] : calls_) {
    if (!call.open) continue;
    text.append(
        fmt::format("{} ({}{}) ", call.tag, call.tool, call.cancelled ? ", cancelled" : ""));
  }
  return text;
}

uint64_t SimClient::Send(Kind kind, uint64_t call, std::string method, std::string body,
                         net::HeaderList extra) {
  const uint64_t key = ++last_request_;
  net::HeaderList headers = std::move(extra);
  headers.emplace_back(
      "Accept", method == "GET" ? "text/event-stream" : "application/json, text/event-stream");
  if (method == "POST") headers.emplace_back("Content-Type", "application/json");
  if (session_ && kind != Kind::kInitialize && kind != Kind::kRude) {
    headers.emplace_back("Mcp-Session-Id", session_->id);
    headers.emplace_back("MCP-Protocol-Version", habits_.revision);
  }
  const std::string target = habits_.selects ? "/mcp?tools=*"
                             : habits_.seat >= 0
                                 ? "/mcp/" + world_.seats[static_cast<size_t>(habits_.seat)].seat_id
                                 : "/mcp";
  auto request = std::make_unique<Request>(*this, key, kind, call);
  Request* sink = request.get();
  sink->last_byte = world_.loop.Now();
  sink->session = session_ ? session_->nonce : "";
  requests_.emplace(key, std::move(request));
  sink->exchange =
      http_->Send(std::move(method), target, std::move(headers), std::move(body), sink);
  return key;
}

void SimClient::OnHead(Request& request) {
  if (request.kind == Kind::kListen && request.sse && session_) {
    // Without an id to come back to nobody can say what was missed.
    if (session_->listen_id.empty()) HearAll();
    session_->listen_opened = world_.loop.Now();
    if (session_->listens_since == absl::InfiniteFuture()) {
      session_->listens_since = world_.loop.Now();
    }
  }
  if (request.status == 200 || request.status == 202) return;
  world_.trace.Add(fmt::format("{} gets HTTP {} for {}", name(), request.status, request.key));
}

void SimClient::OnEnd(uint64_t key, absl::Status status) {
  auto node = requests_.extract(key);
  if (node.empty()) return;
  Request& request = *node.mapped();
  const bool current = session_ && request.session == session_->nonce;
  if (request.status == 404 && current && request.kind != Kind::kRude) {
    if (!session_->ended) {
      world_.trace.Violate("a session lives until it is ended, whatever is restarted",
                           fmt::format("{} lost session {}", name(), session_->nonce));
    }
    if (request.kind == Kind::kListen) listen_request_ = 0;
    return LoseSession("404");
  }
  switch (request.kind) {
    case Kind::kInitialize:
      connecting_ = false;
      return OnSession(request);
    case Kind::kCall:
    case Kind::kResume:
      return OnCallEnd(request, status);
    case Kind::kBatch:
      return OnBatchEnd(request, status);
    case Kind::kListen:
      listen_request_ = 0;
      // Of a session that its client has ended it just ends, as does one that a second reader of
      // the same client takes over.
      if (current && status.ok() && request.sse && world_.bridge_drains() && !session_->ended &&
          !request.told_of_drain && !habits_.rude) {
        world_.trace.Violate("a listening stream is told of the end of its bridge", name());
      }
      if (current) After(Between(50, 3'000), [this] { Listen(); });
      return;
    case Kind::kCancel:
      if (request.status == 202 && current) {
        const auto at = calls_.find(request.call);
        if (at == calls_.end() || !at->second.open) return;
        at->second.cancelled = true;
        // In a network at fault it may have overtaken its call, and then cancelled nothing.
        at->second.cancel_counts = world_.last_disturbance(name()) < at->second.sent;
        at->second.cancelled_at = world_.loop.Now();
        CheckCancel(request.call);
        if (at->second.request == 0) EndCall(at->second, "cancelled");
      }
      return;
    case Kind::kDelete:
      // Without a control plane, or without its store, it is not confirmed for good.
      if (current && status.ok()) {
        const bool confirmed = request.status < 300 || request.status == 404;
        LoseSession(confirmed && !world_.store_fails() ? "DELETE" : "DELETE, maybe");
      }
      return;
    case Kind::kAnswer:
      if (request.status >= 400 && request.status != 404 && request.status != 503) {
        world_.trace.Violate(
            "an answer to what was asked is taken",
            fmt::format("{}: HTTP {} {}", name(), request.status, request.body.substr(0, 200)));
      }
      return;
    case Kind::kInitialized:
    case Kind::kRude:
      return;
  }
}

// ---- sessions -----------------------------------------------------------------------------------

void SimClient::Connect() {
  if (session_ || connecting_ || vanished_) return;
  connecting_ = true;
  Send(Kind::kInitialize, 0, "POST",
       core::MakeRequest("0", "initialize",
                         fmt::format(R"({{"protocolVersion":"{}","capabilities":{},)"
                                     R"("clientInfo":{{"name":"{}","version":"1"}}}})",
                                     habits_.revision, habits_.capabilities, name())));
}

void SimClient::OnSession(Request& request) {
  const std::string* id = request.head.Header("Mcp-Session-Id");
  if (request.status != 200 || id == nullptr) {
    After(Between(200, 3'000), [this] { Connect(); });
    return;
  }
  session_.emplace();
  session_->id = *id;
  session_->nonce = fmt::format("{}-s{}", name(), ++last_session_);
  session_->opened = world_.loop.Now();
  session_->level.state = Wish::State::kUnwanted;
  world_.trace.Add(fmt::format("{} has session {}", name(), session_->nonce));
  Send(Kind::kInitialized, 0, "POST", core::MakeNotification("notifications/initialized", ""));
  if (habits_.listens) Listen();
  for (auto& waiting : std::exchange(when_connected_, {})) waiting();
}

// Whoever waits for a call of that session is told with it: it is over for this client.
void SimClient::LoseSession(std::string_view why) {
  world_.trace.Add(fmt::format("{} has lost session {}: {}", name(), session_->nonce, why));
  // Until its DELETE is confirmed a restart may bring it back, with what it wanted.
  const bool gone_for_good = !session_->ended || why == "DELETE";
  for (const auto& [uri, wish] : session_->wishes) {
    const bool known = wish.state == Wish::State::kWanted || wish.state == Wish::State::kUnwanted;
    if (!known || !gone_for_good) ever_unsure_.insert(uri);
  }
  session_.reset();
  for (auto& [key, call] : calls_) {
    if (call.open) EndCall(call, "session gone");
  }
  After(Between(10, 1'000), [this] { Connect(); });
}

void SimClient::CloseSession() {
  if (!session_) return;
  session_->ended = true;  // or not, if this is lost
  Send(Kind::kDelete, 0, "DELETE", "");
}

void SimClient::Listen() {
  if (!session_ || listen_request_ != 0 || vanished_) return;
  net::HeaderList headers;
  if (!session_->listen_id.empty()) {
    headers.emplace_back("Last-Event-ID", session_->listen_id);
  } else {
    session_->streams[0].seen = false;
    if (session_->listens_since != absl::InfiniteFuture()) session_->may_have_missed = true;
  }
  listen_request_ = Send(Kind::kListen, 0, "GET", "", std::move(headers));
}

// ---- calls --------------------------------------------------------------------------------------

void SimClient::OnCallEnd(Request& request, const absl::Status& status) {
  const auto at = calls_.find(request.call);
  if (at == calls_.end() || !at->second.open || at->second.request != request.key) return;
  Call& call = at->second;
  call.request = 0;
  if (status.ok() && !request.sse && request.status == 200) {
    TakeMessage(request.body, request.kind, request.call);
    if (!call.answered) {
      world_.trace.Violate("a JSON answer holds the response", request.body.substr(0, 200));
    }
    return;
  }
  if (call.answered) return EndCall(call, "answered");
  // Without having been told that the cancel was accepted it learns it from a stream without more.
  if (call.cancelled || (call.cancel_sent && request.status == 204)) {
    return EndCall(call, "cancelled");
  }
  if (request.kind == Kind::kResume && request.status == 204 &&
      world_.is_forgotten(call.sent, session_->id, call.last_id)) {
    world_.trace.Total("calls forgotten with a failing store");
    return EndCall(call, "forgotten");
  }
  const bool refused = request.status >= 400 && request.status != 404;
  if (refused && request.kind == Kind::kCall) {
    if (request.status != 503 && call.checked) {
      world_.trace.Violate(
          "a polite request is not refused",
          fmt::format("{}: HTTP {} {}", call.tag, request.status, request.body.substr(0, 200)));
    }
    return EndCall(call, "refused");
  }
  // Without an id there is nothing to come back to: the broken connection is what it is told.
  if (call.last_id.empty()) return EndCall(call, "broken connection");
  After(Between(50, 2'000), [this, key = request.call] { Resume(key); });
}

void SimClient::Resume(uint64_t key) {
  const auto at = calls_.find(key);
  if (at == calls_.end() || !at->second.open || at->second.request != 0) return;
  if (at->second.cancelled) return EndCall(at->second, "cancelled");
  world_.trace.Add(
      fmt::format("{} resumes {} after {}", name(), at->second.tag, at->second.last_id));
  at->second.request = Send(Kind::kResume, key, "GET", "", {{"Last-Event-ID", at->second.last_id}});
}

void SimClient::EndCall(Call& call, std::string_view how) {
  if (!std::exchange(call.open, false)) return;
  call.request = 0;
  world_.trace.Add(fmt::format("{} ends: {}", call.tag, how));
  if (!call.wish.empty()) OnWishEnd(call, false);
  if (auto done = std::exchange(call.done, nullptr)) done(false);
}

void SimClient::Tick() {
  tick_ = world_.loop.After(absl::Seconds(1), [this] { Tick(); });
  const absl::Time now = world_.loop.Now();
  std::vector<uint64_t> idle;
  for (const auto& [key, request] : requests_) {
    if (now - request->last_byte > world_.read_idle && !request->stopped) idle.push_back(key);
  }
  for (const uint64_t key : idle) {
    const auto at = requests_.find(key);
    if (at == requests_.end()) continue;
    world_.trace.Add(fmt::format("{} gives up the silent request {}", name(), key));
    at->second->exchange.reset();
    OnEnd(key, absl::DeadlineExceededError("no byte for too long"));
  }
  const absl::Time disturbed = world_.last_disturbance(name());
  for (const auto& [key, call] : calls_) {
    if (!call.open || !call.checked) continue;
    if (now - std::max(call.sent, disturbed) > world_.call_budget) {
      world_.trace.Violate("every request ends within its budget",
                           fmt::format("{} ({}) sent {} ago", call.tag, call.tool,
                                       absl::FormatDuration(now - call.sent)));
    }
    if (call.cancelled && call.cancel_counts &&
        now - std::max(call.cancelled_at, disturbed) > absl::Seconds(20)) {
      world_.trace.Violate("a cancelled request is over at once", call.tag);
    }
  }
  // Ended calls are kept for a while, to notice what comes after their end.
  std::erase_if(calls_, [&](const auto& entry) {
    return !entry.second.open && now - entry.second.sent > absl::Minutes(2);
  });
}

}  // namespace callboard::sim
