// SimDcc: what its tools ask of the client whose call they work on, what it asks clients outside
// calls, and what is answered.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "tests/sim/dcc_process.h"
#include "tests/sim/sim_backend.h"

namespace callboard::sim {
namespace {

// From its arrival at the agent to its end: the longest run budget, and some.
constexpr absl::Duration kAskBudget = absl::Seconds(24);

}  // namespace

struct SimDcc::Question {
  std::string_view method;
  std::string_view capability;
};

const SimDcc::Question& SimDcc::ChooseQuestion(uint64_t serial) const {
  static constexpr Question kQuestions[] = {{"sampling/createMessage", "sampling"},
                                            {"elicitation/create", "elicitation"},
                                            {"roots/list", "roots"}};
  const auto peer = peers_.find(serial);
  const std::string offered = peer == peers_.end() ? "" : peer->second.capabilities;
  const Question* question = &kQuestions[place_.random_.Below(3)];
  for (int i = 0; i < 3 && !core::FindMember(offered, question->capability); ++i) {
    question = &kQuestions[place_.random_.Below(3)];
  }
  return *question;
}

void SimDcc::Proceed(uint64_t number) {
  Run& run = runs_.at(number);
  if (run.main_thread && frozen_until_ > place_.loop_.Now()) {
    run.timer = place_.loop_.At(frozen_until_, [this, number] { Proceed(number); });
    return;
  }
  if (run.detached || place_.backends_.count(run.serial) == 0) run.asks_left = 0;
  if (run.asks_left == 0) return Finish(number);
  const int count = run.asks_at_once ? run.asks_left : 1;
  run.asks_left -= count;
  run.asks_open += count;
  for (int i = 0; i < count; ++i) Ask(number);
}

void SimDcc::Ask(uint64_t number) {
  core::Random& random = place_.random_;
  const Run& run = runs_.at(number);
  const Question& question = ChooseQuestion(run.serial);
  const std::string raw_id = fmt::format("\"q{}-{}\"", pid_, ++last_ask_);
  OpenAsk& ask = asks_[raw_id];
  ask.serial = run.serial;
  ask.run = number;
  ask.mark = fmt::format("{}-{}-q{}", run.tag, pid_, last_ask_);
  core::JsonObject params;
  params.String("nonce", run.nonce).String("call", run.tag).String("mark", ask.mark);
  if (random.Below(12) == 0) params.String("fill", std::string(random.Below(150'000), 'q'));
  place_.trace_.Total("asks");
  place_.trace_.Add(fmt::format("{} asks {} of {}", place_.name(), question.method, ask.mark));
  if (random.Below(10) == 0) {
    const auto wait = absl::Milliseconds(100 + static_cast<int64_t>(random.Below(4'000)));
    GiveUpAfter(wait, raw_id, ask);
  }
  Put(run.serial, run.exchange, raw_id, core::MakeRequest(raw_id, question.method, params.Take()));
}

void SimDcc::GiveUpAfter(absl::Duration wait, const std::string& raw_id, OpenAsk& ask) {
  ask.patience = place_.loop_.After(wait, [this, id = raw_id] {
    OpenAsk& open = asks_.at(id);
    if (open.ended || open.given_up) return;
    place_.trace_.Add(fmt::format("{} no longer wants to know {}", place_.name(), open.mark));
    const auto run = runs_.find(open.run);
    if (open.run == 0 || run != runs_.end()) {
      Reply(open.serial, open.run == 0 ? 0 : run->second.exchange,
            core::MakeNotification("notifications/cancelled",
                                   core::JsonObject().Raw("requestId", id).Take()),
            false);
    }
    GiveUp(id, open);
  });
}

void SimDcc::Put(uint64_t serial, uint64_t exchange, const std::string& raw_id,
                 std::string request) {
  auto arrived = [&place = place_, pid = pid_, raw_id] {
    if (place.dcc_ != nullptr && place.pid() == pid) place.dcc_->OnAskArrived(raw_id);
  };
  place_.backends_.at(serial)->Deliver(exchange, std::move(request), false, std::move(arrived));
}

void SimDcc::AskAsideLater(uint64_t serial) {
  const auto backend = place_.backends_.find(serial);
  const auto peer = peers_.find(serial);
  const bool of_one_client = backend != place_.backends_.end() && !backend->second->shared();
  if (!of_one_client || peer == peers_.end() || peer->second.nonce.empty()) return;
  if (place_.random_.Below(3) != 0) return;
  const auto wait = absl::Milliseconds(static_cast<int64_t>(place_.random_.Below(4'000)));
  peer->second.aside = place_.loop_.After(wait, [this, serial] { AskAside(serial); });
}

void SimDcc::AskAside(uint64_t serial) {
  if (!place_.backends_.contains(serial) || !place_.changes_) return;
  const Peer& peer = peers_.at(serial);
  const Question& question = ChooseQuestion(serial);
  const std::string raw_id = fmt::format("\"q{}-{}\"", pid_, ++last_ask_);
  OpenAsk& ask = asks_[raw_id];
  ask.serial = serial;
  ask.mark = fmt::format("{}-aside-{}-q{}", peer.nonce, pid_, last_ask_);
  core::JsonObject params;
  params.String("nonce", peer.nonce).Bool("aside", true).String("mark", ask.mark);
  if (place_.random_.Below(12) == 0) {
    params.String("fill", std::string(place_.random_.Below(100'000), 'q'));
  }
  place_.trace_.Total("asks outside calls");
  place_.trace_.Add(
      fmt::format("{} asks {} of {}, outside calls", place_.name(), question.method, ask.mark));
  if (place_.random_.Below(8) == 0) {
    const auto wait = absl::Milliseconds(static_cast<int64_t>(place_.random_.Below(4'000)));
    GiveUpAfter(wait, raw_id, ask);
  }
  Put(serial, 0, raw_id, core::MakeRequest(raw_id, question.method, params.Take()));
}

void SimDcc::OnAskArrived(const std::string& raw_id) {
  OpenAsk& ask = asks_.at(raw_id);
  ask.arrived = true;
  ask.deadline = place_.loop_.After(kAskBudget, [this, raw_id] {
    const OpenAsk& open = asks_.at(raw_id);
    if (open.ended || open.given_up) return;
    place_.trace_.Violate("every ask ends within its budget",
                          fmt::format("{} is not answered", open.mark));
  });
}

void SimDcc::TakeAnswer(uint64_t serial, const core::JsonRpcMessage& message) {
  const std::string raw_id(message.id);
  const auto at = asks_.find(raw_id);
  if (at == asks_.end()) {
    if (raw_id == "7") return;  // of the tool "junk"
    place_.trace_.Violate("a DCC is answered what it has asked",
                          fmt::format("{} gets an answer to {}", place_.name(), raw_id));
    return;
  }
  OpenAsk& ask = at->second;
  if (ask.serial != serial) {
    place_.trace_.Violate("an answer comes in the session that was asked", ask.mark);
  }
  if (std::exchange(ask.ended, true)) {
    return place_.trace_.Violate("an answer is never delivered twice", ask.mark);
  }
  const bool is_result = message.kind == core::JsonRpcMessage::Kind::kResult;
  const std::string_view client_says =
      is_result ? message.result : core::FindMember(message.error, "data").value_or("");
  const auto mark = core::FindString(client_says, "mark");
  if ((is_result || mark) && mark.value_or("") != ask.mark) {
    place_.trace_.Violate("an ask is answered by the client it was for",
                          fmt::format("{} is answered with '{}'", ask.mark, mark.value_or("")));
  }
  place_.trace_.Total(is_result ? "asks answered" : "asks refused");
  if (ask.run == 0 && is_result) place_.trace_.Total("asks outside calls answered");
  place_.trace_.Add(fmt::format("{} is {}", ask.mark, is_result ? "answered" : "refused"));
  if (!ask.given_up) AskDone(ask.run);
}

void SimDcc::GiveUp(const std::string& raw_id, OpenAsk& ask) {
  if (ask.ended || std::exchange(ask.given_up, true)) return;
  place_.trace_.Add(fmt::format("{} goes on without {}", place_.name(), raw_id));
  AskDone(ask.run);
}

// Later: the caller may be in the middle of anything.
void SimDcc::AskDone(uint64_t number) {
  const auto at = runs_.find(number);
  if (at == runs_.end() || --at->second.asks_open > 0) return;
  at->second.timer = place_.loop_.After(absl::Milliseconds(1), [this, number] { Proceed(number); });
}

void SimDcc::Left(uint64_t serial) {
  for (auto& [raw_id, ask] : asks_) {
    if (ask.serial == serial) GiveUp(raw_id, ask);
  }
  peers_.erase(serial);
}

std::string SimDcc::OpenAsks() const {
  std::string text;
  for (const auto& [raw_id, ask] : asks_) {
    if (ask.arrived && !ask.ended && !ask.given_up) text.append(ask.mark).append(" ");
  }
  return text;
}

}  // namespace callboard::sim
