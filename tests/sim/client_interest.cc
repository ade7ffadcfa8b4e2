// SimClient: which resources and logs it wants to hear of, and whether it hears just those.
#include <fmt/format.h>

#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/log_levels.h"
#include "tests/sim/client_request.h"
#include "tests/sim/sim_client.h"

namespace callboard::sim {
namespace {

constexpr std::string_view kUpdated = "notifications/resources/updated";
constexpr std::string_view kJobUpdated = "notifications/$/dcc.jobUpdated";
constexpr std::string_view kToolsChanged = "notifications/tools/list_changed";
// The control plane tells of a changed list once in that time.
constexpr absl::Duration kCoalesced = absl::Milliseconds(250);
// What was under way is through after this.
constexpr absl::Duration kThrough = absl::Seconds(10);

}  // namespace

// ---- wishes -------------------------------------------------------------------------------------

void SimClient::MakeWish() {
  if (habits_.seat < 0 || PickSeat().jobs_only) return;
  if (Chance(4)) {
    if (session_->level.state == Wish::State::kPending) return;
    const std::string level(core::kMcpLogLevels[world_.random.Below(core::kMcpLogLevels.size())]);
    return SendWish("logging/setLevel", core::JsonObject().String("level", level).Take(), level,
                    true);
  }
  // The last is nobody else's.
  const std::string uris[] = {"res://a", "res://b", "res://of-" + name()};
  const std::string& uri = uris[world_.random.Below(3)];
  const auto at = session_->wishes.find(uri);
  if (at != session_->wishes.end() && at->second.state == Wish::State::kPending) return;
  const bool wanted = at != session_->wishes.end() && at->second.state == Wish::State::kWanted;
  SendWish(wanted ? "resources/unsubscribe" : "resources/subscribe",
           core::JsonObject().String("uri", uri).Take(), uri, !wanted);
}

void SimClient::SendWish(std::string method, std::string params, const std::string& wish,
                         bool wants_it) {
  const SeatName& seat = PickSeat();
  const uint64_t key = OpenCall(method, seat, true);
  Call& call = calls_[key];
  call.facade_answer = true;
  call.wish = wish;
  call.wants_it = wants_it;
  world_.trace.Add(fmt::format("{} is about {}", call.tag, wish));
  const bool of_level = method == "logging/setLevel";
  if (of_level) session_->chose_level = true;
  Wish& state = of_level ? session_->level : session_->wishes[wish];
  if (state.state != Wish::State::kUnsure) state.state = Wish::State::kPending;
  call.request =
      Send(Kind::kCall, key, "POST", core::MakeRequest(fmt::format("{}", call.id), method, params));
}

void SimClient::OnWishEnd(const Call& call, bool good) {
  if (!session_ || session_->nonce != call.nonce) return;
  const bool of_level = call.tool == "logging/setLevel";
  Wish& wish = of_level ? session_->level : session_->wishes[call.wish];
  wish.since = world_.loop.Now();
  if (!good) wish.state = Wish::State::kUnsure;
  if (wish.state == Wish::State::kUnsure) return;
  wish.state = call.wants_it ? Wish::State::kWanted : Wish::State::kUnwanted;
  if (of_level) session_->level_wanted = core::McpSeverity(call.wish);
}

void SimClient::DoubtWishesSince(absl::Time when) {
  if (!session_) return;
  const auto doubt = [when](Wish& wish) {
    if (wish.since < when && wish.state != Wish::State::kPending) return false;
    wish.state = Wish::State::kUnsure;
    return true;
  };
  doubt(session_->level);
  for (auto& [uri, wish] : session_->wishes) {
    if (doubt(wish)) ever_unsure_.insert(uri);
  }
}

// ---- what it hears ------------------------------------------------------------------------------

bool SimClient::CalmSince(absl::Time when) const {
  return world_.loop.Now() - when > kThrough && world_.last_disturbance(name()) < when &&
         session_->listen_opened < when && !habits_.reads_slowly && !habits_.rude;
}

void SimClient::HearAll() {
  if (!session_) return;
  session_->heard_all = world_.loop.Now();
  for (auto& [connection, newest] : session_->logs) newest.second = true;
}

void SimClient::TakeNotice(const core::JsonRpcMessage& message, Kind kind, uint64_t call) {
  const std::string& method = message.method;
  world_.trace.Add(fmt::format("{} hears {} {}", name(), method,
                               core::FindString(message.params, "uri").value_or("")));
  if (method == "notifications/message") return TakeLog(message, kind, call);
  if (method == "notifications/cancelled") {
    const auto raw_id = core::FindMember(message.params, "requestId");
    const bool missed = kind == Kind::kListen && session_->may_have_missed;
    if (!raw_id || (!asked_.contains(std::string(*raw_id)) && !missed)) {
      world_.trace.Violate("a client hears of the end of what it was asked",
                           fmt::format("{}: {}", name(), message.params));
    }
    return world_.trace.Total("asks taken back");
  }
  const bool of_selection = habits_.selects && method == kToolsChanged;
  if (kind != Kind::kListen || (habits_.seat < 0 && !of_selection)) {
    world_.trace.Violate("what concerns a seat is told on the streams of its sessions",
                         fmt::format("{} hears {}", name(), method));
    return;
  }
  world_.trace.Total("notices");
  if (method == kJobUpdated) {
    world_.trace.Total("notices of the application");
    return CheckLogOrder(core::FindMember(message.params, "data").value_or("{}"));
  }
  if (method == kUpdated) {
    return TakeUpdate(core::FindString(message.params, "uri").value_or(""));
  }
  session_->heard[method] = world_.loop.Now();
  const int times = ++session_->times_heard[method];
  const absl::Duration age = world_.loop.Now() - session_->opened;
  if (times - 1 > age / kCoalesced) {
    world_.trace.Violate("a changed list is told at most once in 250 ms",
                         fmt::format("{} hears {} {} times in {}", session_->nonce, method, times,
                                     absl::FormatDuration(age)));
  }
}

void SimClient::TakeUpdate(const std::string& uri) {
  session_->heard[uri] = world_.loop.Now();
  const auto at = session_->wishes.find(uri);
  const bool never = at == session_->wishes.end();
  const bool no_more =
      !never && at->second.state == Wish::State::kUnwanted && CalmSince(at->second.since);
  if (never || no_more) {
    world_.trace.Violate("a resource's news reach only who has subscribed",
                         fmt::format("{} hears of {}", session_->nonce, uri));
  }
}

void SimClient::TakeLog(const core::JsonRpcMessage& message, Kind kind, uint64_t key) {
  world_.trace.Total("logs");
  const std::string tag =
      core::FindPath(message.params, {"data", "call"}).has_value()
          ? core::FindString(*core::FindMember(message.params, "data"), "call").value_or("")
          : "";
  const bool on_call = kind == Kind::kCall || kind == Kind::kResume;
  const auto at = calls_.find(key);
  if (on_call && at != calls_.end() && at->second.answered) {
    world_.trace.Violate("nothing comes after the end of a call", at->second.tag);
  }
  if (!tag.empty() && (!on_call || at == calls_.end() || at->second.tag != tag)) {
    world_.trace.Violate("nothing reaches another session or call",
                         fmt::format("{} hears the log of {}", name(), tag));
  }
  if (!on_call && habits_.seat < 0) {
    world_.trace.Violate("what concerns a seat is told on the streams of its sessions", name());
  }
  if (kind == Kind::kListen) CheckLogOrder(*core::FindMember(message.params, "data"));
  const size_t level = core::McpSeverity(core::FindString(message.params, "level").value_or(""));
  const Wish& wish = session_->level;
  // A stream that is resumed tells what was wanted when it was logged.
  if (kind != Kind::kResume && wish.state == Wish::State::kWanted &&
      level < session_->level_wanted && CalmSince(wish.since)) {
    world_.trace.Violate(
        "logs are as severe as the session wants them",
        fmt::format("{} hears {} and wants {}", session_->nonce, core::kMcpLogLevels[level],
                    core::kMcpLogLevels[session_->level_wanted]));
  }
}

// What one connection of a DCC logs outside calls is told once, in order, and whole: whoever is cut
// off or loses its control plane is told of a gap or misses nothing.
void SimClient::CheckLogOrder(std::string_view data) {
  if (data.find("messages were left out") != std::string_view::npos) return HearAll();
  const auto connection = core::FindString(data, "connection");
  const auto n = core::FindInteger(data, "n");
  if (!connection || !n) return;
  auto [at, first] = session_->logs.try_emplace(*connection, *n, false);
  if (first) return;
  auto& [newest, may_miss] = at->second;
  if (*n <= newest) {
    world_.trace.Violate(
        "a log outside calls is told at most once, in order",
        fmt::format("{} hears {} of {} after {}", session_->nonce, *n, *connection, newest));
  }
  const bool whole = !session_->chose_level && !habits_.rude && !std::exchange(may_miss, false);
  if (whole && *n > newest + 1) {
    world_.trace.Violate(
        "a log outside calls is told unless a gap is",
        fmt::format("{} hears {} of {} after {}", session_->nonce, *n, *connection, newest));
  }
  newest = *n;
}

// ---- at the end ---------------------------------------------------------------------------------

void SimClient::CheckNews(const DccPlace& place) {
  const std::string own = "res://of-" + name();
  if (!habits_.rude && !ever_unsure_.contains(own)) {
    bool may_tell = false;
    bool must_tell = false;
    if (session_) {
      if (const auto at = session_->wishes.find(own); at != session_->wishes.end()) {
        may_tell = at->second.state != Wish::State::kUnwanted;
        must_tell = at->second.state == Wish::State::kWanted;
      }
    }
    const bool tells = place.TellsShared(own);
    if ((must_tell && !tells) || (tells && !may_tell)) {
      world_.trace.Violate(
          "a DCC is asked to tell just what somebody wants",
          fmt::format("{} {} {}", place.name(), tells ? "tells of" : "does not tell of", own));
    }
  }
  if (!session_ || habits_.rude || session_->listens_since == absl::InfiniteFuture()) return;
  auto check = [&](const std::string& what, absl::Time since) {
    const absl::Time changed = world_.ledger.ChangedAt(place.name(), what);
    if (changed <= since || session_->heard_all >= changed) return;
    const auto heard = session_->heard.find(what);
    if (heard != session_->heard.end() && heard->second >= changed) return;
    world_.trace.Violate(
        "what has changed is told at last",
        fmt::format("{} was not told of {} at {}, changed {} ago", session_->nonce, what,
                    place.name(), absl::FormatDuration(world_.loop.Now() - changed)));
  };
  for (const auto& [uri, wish] : session_->wishes) {
    if (wish.state == Wish::State::kWanted) check(uri, wish.since);
  }
  for (const char* list : {"tools", "prompts"}) {
    check(fmt::format("notifications/{}/list_changed", list), session_->listens_since);
  }
}

}  // namespace callboard::sim
