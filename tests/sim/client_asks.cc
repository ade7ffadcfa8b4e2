// SimClient: what it is asked in the middle of a call, and how it answers: at once, late, never,
// twice, with an error, after the call, or not before it has been away.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "tests/sim/client_request.h"
#include "tests/sim/sim_client.h"

namespace callboard::sim {
namespace {

constexpr size_t kAsksRemembered = 64;

}  // namespace

void SimClient::TakeAsk(const core::JsonRpcMessage& message, Kind kind, uint64_t key) {
  const std::string raw_id(message.id);
  const std::string mark = core::FindString(message.params, "mark").value_or("");
  world_.trace.Add(fmt::format("{} is asked {} ({})", name(), message.method, mark));
  world_.trace.Total("asks heard");
  // What has no stream asks on the session's own: calls of a batch, and one that goes on when its
  // client has been refused or cut off before it heard of a stream.
  const bool on_own = kind == Kind::kListen;
  const std::string tag = core::FindString(message.params, "call").value_or("");
  const auto at =
      on_own
          ? std::find_if(calls_.begin(), calls_.end(),
                         [&](const auto& entry) { return mark.empty() || entry.second.tag == tag; })
          : calls_.find(key);
  const bool on_call = kind == Kind::kCall || kind == Kind::kResume;
  // What belongs to the session may come on any of its streams.
  const bool aside = core::FindMember(message.params, "aside").has_value();
  const bool over = on_own && session_ && (aside || tag.starts_with(session_->nonce + "-"));
  if ((!on_call && !on_own) || (at == calls_.end() && !over)) {
    world_.trace.Violate("an ask comes on the stream of its call",
                         fmt::format("{}: {}", name(), mark));
    return;
  }
  Call gone;
  gone.tag = tag;
  if (aside) world_.trace.Total("asks outside calls heard");
  if (session_) gone.nonce = session_->nonce;
  const Call& call = at == calls_.end() ? gone : at->second;
  // Two connections are not in step.
  if (call.answered && !on_own)
    world_.trace.Violate("nothing comes after the end of a call", call.tag);
  if (!asked_.insert(raw_id).second) {
    world_.trace.Violate("an ask reaches its client once", fmt::format("{} again", mark));
  }
  const std::string capability = message.method.substr(0, message.method.find('/'));
  if (!core::FindMember(habits_.capabilities, capability)) {
    world_.trace.Violate("a client is asked only what it offers",
                         fmt::format("{}: {}", name(), message.method));
  }
  world_.asks.push_back(raw_id);
  if (world_.asks.size() > kAsksRemembered) world_.asks.pop_front();
  // Of the tool "junk".
  if (mark.empty()) return Answer(raw_id, mark, true);
  if (!aside) {
    CheckOwn(message.params, call);
  } else if (core::FindString(message.params, "nonce") != call.nonce) {
    world_.trace.Violate("nothing reaches another session",
                         fmt::format("{} is asked {}", name(), mark));
  }

  auto later = [this, raw_id, mark](absl::Duration delay, bool with_error) {
    After(delay, [this, raw_id, mark, with_error] { Answer(raw_id, mark, with_error); });
  };
  switch (world_.random.Below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
      return Answer(raw_id, mark, false);
    case 4:
    case 5:
      return later(Between(300, 7'000), false);
    case 6:
      return later(Between(0, 500), true);
    case 7:
      return;
    case 8:
      Answer(raw_id, mark, false);
      return later(Between(0, 3'000), Chance(2));
    case 9:
      // Mostly after the call.
      return later(Between(12'000, 30'000), false);
    default:
      if (on_own) return later(Between(0, 3'000), false);
      After(Between(0, 300), [this, key] { DropConnection(key); });
      if (Chance(2)) later(Between(0, 3'000), false);
      return;
  }
}

void SimClient::Answer(const std::string& raw_id, const std::string& mark, bool with_error) {
  if (!session_ || vanished_) return;
  core::JsonObject said;
  said.String("mark", mark).String("nonce", session_->nonce);
  if (Chance(10)) said.String("fill", std::string(world_.random.Below(200'000), 'a'));
  const std::string text = said.Take();
  world_.trace.Add(fmt::format("{} answers {}{}", name(), mark, with_error ? ": no" : ""));
  Send(Kind::kAnswer, 0, "POST",
       with_error ? core::MakeErrorResponse(raw_id, -1, "the user says no", text)
                  : core::MakeResult(raw_id, text));
}

// Answers what somebody else was asked.
void SimClient::ForgeAnswer() {
  if (world_.asks.empty() || !session_) return;
  // The newest is likely to be open still.
  const size_t back = Chance(2) ? 0 : world_.random.Below(world_.asks.size());
  const std::string& raw_id = world_.asks[world_.asks.size() - 1 - back];
  if (asked_.contains(raw_id)) return;
  world_.trace.Total("forged answers");
  world_.trace.Add(fmt::format("{} answers {}, which is not its own", name(), raw_id));
  Send(Kind::kRude, 0, "POST", core::MakeResult(raw_id, R"({"mark":"forged"})"),
       {{"Mcp-Session-Id", session_->id}});
}

}  // namespace callboard::sim
