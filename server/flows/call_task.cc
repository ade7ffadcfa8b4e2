// CallFlow, calls of clients without a session that go on as tasks: what is asked in mid-call is
// kept for whoever asks after the task, and what is answered goes to the backend.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"

namespace callboard::server {
namespace {

constexpr uint32_t kRoundsMax = 10;

// No key is used twice in a task: events of later attempts are counted from 1 again.
std::string InputKey(const LiveCall& call, uint64_t n) {
  return call.attempt == 1 ? fmt::format("ask-{}", n) : fmt::format("ask-{}-{}", call.attempt, n);
}

}  // namespace

void CallFlow::MakeTask(const CallId& id) {
  LiveCall* call = Find(id);
  if (call == nullptr || call->ended || call->as_task || !call->request.has_client()) return;
  call->as_task = true;
  call->job_stored = false;  // as what it is now
  Record(*call);
}

std::map<std::string, std::string> CallFlow::InputRequests(const CallId& id) const {
  std::map<std::string, std::string> requests;
  const LiveCall* call = Find(id);
  if (call == nullptr || !call->as_task) return requests;
  for (const auto& [n, request] : call->parked) {
    if (!call->unstored.contains(n)) requests[InputKey(*call, n)] = request;
  }
  return requests;
}

absl::StatusOr<bool> CallFlow::TakeInput(const CallId& id, std::string_view responses) {
  LiveCall* call = Find(id);
  if (call == nullptr || call->ended || !call->as_task) return false;
  const auto found = FindResponses(*call, responses);
  if (!found.ok()) return found.status();
  TakeResponses(*call, *found);
  return true;
}

absl::StatusOr<CallFlow::Responses> CallFlow::FindResponses(const LiveCall& call,
                                                            std::string_view responses) {
  Responses found;
  for (const auto& [n, request] : call.parked) {
    const std::string key = InputKey(call, n);
    const auto response = core::FindMember(responses, key);
    if (!response) continue;  // asked again
    if (!core::IsObject(*response)) {
      return absl::InvalidArgumentError(fmt::format("inputResponses['{}'] must be an object", key));
    }
    found.emplace_back(n, *response);
  }
  return found;
}

void CallFlow::TakeResponses(LiveCall& call, const Responses& responses) {
  if (responses.empty()) return;
  for (const auto& [n, response] : responses) {
    call.asks.erase(n);
    call.parked.erase(n);
    call.unstored.erase(n);
    if (call.step == CallStep::kAsking) {
      call.round.mutable_inputs(static_cast<int>(n) - 1)->set_response(std::string(response));
    } else {
      AnswerAsk(call, n, std::string(response), "");
    }
  }
  TellInput(call);
  if (call.step == CallStep::kAsking && call.parked.empty()) return SendRound(call);
  // Whoever takes over says the answers again, and asks for none of them.
  Record(call);
}

std::string CallFlow::ParkedRequests(const LiveCall& call) {
  core::JsonObject requests;
  for (const auto& [n, request] : call.parked) requests.Raw(InputKey(call, n), request);
  return requests.Take();
}

void CallFlow::ShowAsked(LiveCall& call) {
  Record(call);
  durable_.WhenDurable(lifetime_.Wrap(
      [this, id = call.id, attempt = call.attempt, shown = call.unstored](const absl::Status&) {
        LiveCall* asking = Find(id);
        if (asking == nullptr || asking->ended || asking->attempt != attempt) return;
        for (const uint64_t n : shown) asking->unstored.erase(n);
        TellInput(*asking);
        AckLater(*asking);
      }));
}

void CallFlow::TellInput(const LiveCall& call) {
  if (call.as_task && !call.ended) asked_hook_(call.id);
}

// ---- backends that require input in place of a result -------------------------------------------

bool CallFlow::RequiresInput(const LiveCall& call, const v1::Outcome& outcome) {
  return call.as_task && !call.ended && outcome.class_() == v1::RESULT &&
         outcome.body().has_inline_() && outcome.facts().era_fields_size() > 0 &&
         core::FindString(outcome.body().inline_(), "resultType") == "input_required";
}

void CallFlow::AskForInput(LiveCall& call, const std::string& result) {
  if (call.cancel_by != absl::InfiniteFuture()) {
    return EndOwn(call, v1::CANCELLED, call.cancel_reason, v1::FINISHED,
                  "cancelled when the tool wanted to ask; it does not go on");
  }
  const auto fail = [&](std::string why) {
    EndOwn(call, v1::LOST, v1::BACKEND_PROTOCOL_ERROR, v1::FINISHED, std::move(why));
  };
  const auto requests = core::FindMember(result, "inputRequests");
  const auto state = core::FindMember(result, "requestState");
  if (!requests && !state) {
    return fail("the application requires input and does not say which");
  }
  v1::InputRound round;
  round.set_number(call.round.number() + 1);
  if (round.number() > kRoundsMax) {
    return fail(fmt::format("the application has asked for input {} times", kRoundsMax));
  }
  round.set_request_state(std::string(state.value_or("")));
  std::vector<std::string> inputs;
  (void)core::ForEachMember(requests.value_or("{}"), [&](const core::JsonMember& member) {
    const auto key = core::DecodeString(member.key_escaped ? fmt::format("\"{}\"", member.key)
                                                           : core::QuoteJson(member.key));
    round.add_inputs()->set_key(key.value_or(""));
    inputs.emplace_back(member.value);
    return inputs.size() <= kAsksMax;
  });
  if (inputs.size() > kAsksMax) {
    return fail(fmt::format("the application asks for more than {} things at once", kAsksMax));
  }
  NextAttempt(call);
  call.round = std::move(round);
  if (inputs.empty()) return SendRound(call);
  call.step = CallStep::kAsking;
  for (std::string& input : inputs) {
    const uint64_t n = call.parked.size() + 1;
    call.parked[n] = std::move(input);
    call.asks.insert(n);
    call.unstored.insert(n);
  }
  SetPhase(call, v1::CALL_WAITING, std::string(kAsksItsClient));
  ShowAsked(call);
  Arm(call);
}

bool CallFlow::AwaitsInput(const v1::InputRound& round) {
  return std::any_of(round.inputs().begin(), round.inputs().end(),
                     [](const v1::InputRound::Input& input) { return input.response().empty(); });
}

std::string CallFlow::RoundParams(const LiveCall& call) {
  const std::string& params = call.params != nullptr ? *call.params : call.request.params();
  core::JsonObject responses;
  for (const v1::InputRound::Input& input : call.round.inputs()) {
    responses.Raw(input.key(), input.response());
  }
  std::string again = core::SetMember(params, "inputResponses", responses.Take());
  const std::string& state = call.round.request_state();
  return state.empty() ? core::RemoveMember(again, "requestState")
                       : core::SetMember(again, "requestState", state);
}

void CallFlow::SendRound(LiveCall& call) {
  // The answers are durable before they leave: after a kill nobody is asked for them again.
  call.may_be_sent = false;
  call.unstored.clear();
  Record(call);
  const CallId id = call.id;
  Send(call);
  if (LiveCall* sent = Find(id)) Arm(*sent);
}

}  // namespace callboard::server
