// SimClient: what it calls, what it cancels, and how it misbehaves.
#include <fmt/format.h>

#include <utility>

#include "core/mcp/json.h"
#include "tests/sim/client_request.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_dcc.h"

namespace callboard::sim {
namespace {

// How often each tool is called, in hundredths.
struct Share {
  std::string_view tool;
  uint64_t share;
};
constexpr Share kShares[] = {{"echo", 18}, {"count", 15}, {"steps", 10}, {"redo", 5},
                             {"slow", 10}, {"big", 6},    {"idem", 5},   {"forever", 3},
                             {"twice", 3}, {"junk", 3},   {"die", 1},    {"load_skill", 2},
                             {"ask", 12},  {"askfree", 7}};

}  // namespace

void SimClient::Think() {
  if (vanished_) return;
  if (calling_) {
    size_t open = 0;
    for (const auto& [key, call] : calls_) open += call.open ? 1 : 0;
    if (!session_) {
      Connect();
    } else if (habits_.rude && Chance(4)) {
      RudeAct();
    } else if (!habits_.rude && open == 0 && Chance(25)) {
      CloseSession();
    } else if (habits_.wishes && Chance(3)) {
      MakeWish();
    } else if (open < static_cast<size_t>(habits_.calls_max)) {
      if (habits_.batches && Chance(3)) {
        MakeBatch();
      } else {
        MakeCall();
      }
    }
  }
  After(Between(20, Chance(5) ? 8'000 : 1'500), [this] { Think(); });
}

std::string SimClient::PickTool() {
  if (on_facade() && Chance(8)) return Chance(2) ? "search_tools" : "list_instances";
  uint64_t dice = world_.random.Below(100);
  for (const Share& share : kShares) {
    if (dice < share.share) return std::string(share.tool);
    dice -= share.share;
  }
  return "echo";
}

const SeatName& SimClient::PickSeat() {
  const size_t seat = habits_.seat >= 0 ? static_cast<size_t>(habits_.seat)
                                        : world_.random.Below(world_.seats.size());
  return world_.seats[seat];
}

void SimClient::MakeCall() {
  const uint64_t key = SendCall(PickTool(), PickSeat(), true);
  MaybeCancel(key);
  if (habits_.rude) RudeTurn(key);
  if (habits_.reads_slowly) ReadSlowly(calls_[key].request);
}

uint64_t SimClient::SendCall(const std::string& tool, const SeatName& seat, bool checked) {
  const uint64_t key = OpenCall(tool, seat, checked);
  Call& call = calls_[key];
  call.request = Send(Kind::kCall, key, "POST", ComposeCall(call, seat));
  return key;
}

uint64_t SimClient::OpenCall(const std::string& wanted, const SeatName& seat, bool checked) {
  const bool of_catalogue = wanted == "search_tools" || wanted == "list_instances";
  const std::string tool = seat.jobs_only && !of_catalogue ? "job" : wanted;
  const uint64_t key = ++last_call_;
  Call& call = calls_[key];
  call.id = static_cast<int64_t>(key);
  call.tag = fmt::format("{}-c{}", session_->nonce, key);
  call.tool = tool;
  call.seat_id = seat.seat_id;
  call.nonce = session_->nonce;
  call.sent = world_.loop.Now();
  call.checked = checked && !habits_.rude;
  call.wants_progress = Chance(3) || GoesInSteps(tool);
  call.facade_answer =
      tool == "search_tools" || tool == "list_instances" || (on_facade() && tool == "load_skill");
  world_.ledger.Sent(call.tag, MayRepeat(tool));
  world_.trace.Total("calls");
  world_.trace.Add(fmt::format("{} calls {} at {}", call.tag, tool, seat.name));
  return key;
}

std::string SimClient::ComposeCall(Call& call, const SeatName& seat) {
  const std::string& tool = call.tool;
  const bool facade = on_facade();
  core::JsonObject arguments;
  arguments.String("nonce", call.nonce).String("call", call.tag);
  if (tool == "slow") arguments.Int("ms", absl::ToInt64Milliseconds(Between(300, 8'000)));
  if (GoesInSteps(tool)) arguments.Int("ms", absl::ToInt64Milliseconds(Between(20, 6'000)));
  if (tool == "big") {
    call.bytes = static_cast<int64_t>(1 + world_.random.Below(world_.big_bytes_max));
    arguments.Int("bytes", call.bytes);
  }
  if (tool == "load_skill") arguments.String("skill_name", "rigging");
  std::string text = arguments.Take();
  std::string name = tool;
  if (facade && call.facade_answer) {
    text =
        core::JsonObject().String("skill_name", "rigging").String("instance", seat.seat_id).Take();
    if (tool != "load_skill") text = R"({"query":"","limit":5})";
  } else if (facade) {
    name = "call_tool";
    const auto slug = fmt::format("{}.{}.{}", seat.app, seat.seat_id.substr(0, 8), tool);
    text = core::JsonObject().String("tool_slug", slug).Raw("arguments", text).Take();
  }
  if (habits_.selects) {
    name = fmt::format("{}_{}__{}", seat.app, seat.seat_id.substr(0, 8), tool);
  }
  core::JsonObject params;
  params.String("name", name).Raw("arguments", text);
  core::JsonObject meta;
  if (call.wants_progress) meta.String("progressToken", call.tag);
  if (Chance(5)) {
    meta.Raw("dcc", core::JsonObject()
                        .Int("timeout_ms", absl::ToInt64Milliseconds(Between(1'000, 15'000)))
                        .Take());
  }
  params.Raw("_meta", meta.Take());
  return core::MakeRequest(fmt::format("{}", call.id), "tools/call", params.Take());
}

void SimClient::Ask(int seat, absl::AnyInvocable<void(bool ok)> done) {
  auto ask = [this, seat, done = std::move(done)]() mutable {
    const uint64_t key = SendCall("echo", world_.seats[static_cast<size_t>(seat)], true);
    calls_[key].done = std::move(done);
  };
  if (session_) {
    ask();
  } else {
    when_connected_.push_back(std::move(ask));
    Connect();
  }
}

// ---- cancels ------------------------------------------------------------------------------------

void SimClient::MaybeCancel(uint64_t key) {
  const Call& call = calls_[key];
  if (call.facade_answer) return;
  if (call.tool != "forever" && !Chance(12)) return;
  After(Between(5, call.tool == "forever" ? 10'000 : 2'000), [this, key, nonce = call.nonce] {
    const auto at = calls_.find(key);
    if (at == calls_.end() || !at->second.open || !session_ || session_->nonce != nonce) return;
    world_.trace.Add(fmt::format("{} is cancelled by its client", at->second.tag));
    at->second.cancel_sent = true;
    world_.trace.Total("cancels");
    Send(Kind::kCancel, key, "POST",
         core::MakeNotification(
             "notifications/cancelled",
             fmt::format(R"({{"requestId":{},"reason":"changed my mind"}})", at->second.id)));
  });
}

// The cancel was accepted: where nothing fails meanwhile it reaches a DCC that is at work.
void SimClient::CheckCancel(uint64_t key) {
  const Call& call = calls_[key];
  // Where the network stood still meanwhile the cancel may have overtaken its call, on another
  // connection: the control plane then knew of nothing to cancel, and rightly ignored it.
  if (world_.last_disturbance(name()) >= call.sent) return;
  const uint64_t faults = world_.seat_faults(call.seat_id);
  const uint64_t plane = world_.plane_generation();
  After(absl::Seconds(10), [this, tag = call.tag, seat = call.seat_id, faults, plane] {
    if (world_.seat_faults(seat) != faults || world_.plane_generation() != plane) return;
    const Ledger::Call& truth = world_.ledger.Of(tag);
    if (truth.running > 0 && !truth.cancel_reached && !truth.detached) {
      world_.trace.Violate("a cancel reaches the DCC or the call is over", tag);
    }
  });
}

// ---- rudeness -----------------------------------------------------------------------------------

void SimClient::RudeAct() {
  world_.trace.Total("rude acts");
  net::HeaderList bogus = {{"Mcp-Session-Id", "00000000000000000000000000000000"}};
  switch (world_.random.Below(7)) {
    case 5:
      return ForgeAnswer();
    case 0:
      Send(Kind::kRude, 0, "POST", "{\"jsonrpc\":");
      return;
    case 1:
      Send(Kind::kRude, 0, "POST", core::MakeRequest("1", "tools/list", ""), std::move(bogus));
      return;
    case 2:
      Send(Kind::kRude, 0, "GET", "", std::move(bogus));
      return;
    case 3: {
      // The id of a call that may still be open.
      if (calls_.empty()) return;
      const uint64_t key = SendCall("count", world_.seats.front(), false);
      const int64_t id = calls_.begin()->second.id;
      calls_[key].tool += " with a used id";
      Send(Kind::kRude, 0, "POST",
           core::MakeRequest(fmt::format("{}", id), "tools/call", R"({"name":"echo"})"),
           {{"Mcp-Session-Id", session_->id}});
      return;
    }
    case 4: {
      // Another reader of the GET stream, gone at once.
      const uint64_t key = Send(Kind::kRude, 0, "GET", "", {{"Mcp-Session-Id", session_->id}});
      After(Between(0, 3'000), [this, key] { requests_.erase(key); });
      return;
    }
    default:
      // Forgets its session without ending it.
      LoseSession("forgotten");
      return;
  }
}

// Lets every answer wait for a while before it reads on.
void SimClient::ReadSlowly(uint64_t request) {
  After(Between(200, 1'500), [this, request] {
    const auto at = requests_.find(request);
    if (at == requests_.end() || at->second->stopped) return;
    at->second->paused = !at->second->paused;
    at->second->exchange->PauseBody(at->second->paused);
    ReadSlowly(request);
  });
}

// Hangs up on an answer that has begun, as a client does whose network changes; comes back later.
void SimClient::DropConnection(uint64_t key) {
  const auto at = calls_.find(key);
  if (at == calls_.end() || !at->second.open || at->second.request == 0) return;
  requests_.erase(std::exchange(at->second.request, 0));
  world_.trace.Add(fmt::format("{} loses its connection", at->second.tag));
  if (at->second.last_id.empty()) return EndCall(at->second, "broken connection");
  After(Between(50, 4'000), [this, key] { Resume(key); });
}

// What a rude client does to a call it has just made.
void SimClient::RudeTurn(uint64_t key) {
  const uint64_t request = calls_[key].request;
  switch (world_.random.Below(5)) {
    case 0:
      // Drops the connection in mid-answer and never comes back.
      After(Between(0, 2'000), [this, key, request] {
        requests_.erase(request);
        const auto at = calls_.find(key);
        if (at != calls_.end()) EndCall(at->second, "dropped");
      });
      return;
    case 1: {
      // Stops reading.
      const auto at = requests_.find(request);
      if (at == requests_.end()) return;
      at->second->stopped = true;
      at->second->exchange->PauseBody(true);
      After(Between(5'000, 50'000), [this, key, request] {
        requests_.erase(request);
        const auto call = calls_.find(key);
        if (call != calls_.end()) EndCall(call->second, "never read");
      });
      return;
    }
    default:
      return;
  }
}

}  // namespace callboard::sim
