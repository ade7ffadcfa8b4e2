// McpSeat, a client of an earlier revision and a backend that speaks 2026-07-28 alone: results lose
// what only that one has, and input that is required is asked for in mid-call.
#include <utility>
#include <vector>

#include "backend_agent/mcp_seat.h"
#include "core/mcp/envelope.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

constexpr int kRoundsMax = 10;

McpReply Failed(std::string_view message) {
  McpReply reply;
  reply.kind = McpReply::Kind::kError;
  reply.body = Payload(core::MakeErrorObject(core::kInternalError, message));
  reply.reached = true;
  return reply;
}

}  // namespace

bool McpSeat::Translate(Call& call, McpReply& reply) {
  // A caller that has been told its end asks nobody.
  if (reply.kind != McpReply::Kind::kResult || call.told) return true;
  const std::string_view result = reply.body.view();
  const auto type = core::FindString(result, "resultType");
  if (type == "input_required") {
    if (call.round.number >= kRoundsMax) {
      reply = Failed(fmt::format("the application has asked for input {} times", kRoundsMax));
      return true;
    }
    const bool says_what = core::FindMember(result, "inputRequests").has_value() ||
                           core::FindMember(result, "requestState").has_value();
    if (!says_what) {
      reply = Failed("the application requires input and does not say which");
      return true;
    }
    AskForInput(call, result);
    return false;
  }
  if (type && type != "complete") {
    reply =
        Failed(fmt::format("the application answered with a '{}', which MCP before 2026-07-28 "
                           "does not have",
                           *type));
    return true;
  }
  // A large body is left as it is: older clients pass over members that they do not know.
  if (!type || result.size() > kInlineBodyMax) return true;
  std::string text = core::RemoveMember(result, "resultType");
  for (const char* member : {"ttlMs", "cacheScope"}) text = core::RemoveMember(text, member);
  reply.body = Payload(std::move(text));
  return true;
}

void McpSeat::AskForInput(Call& call, std::string_view result) {
  Round& round = call.round;
  ++round.number;
  round.state = std::string(core::FindMember(result, "requestState").value_or(""));
  round.responses.clear();
  call_of_request_.erase({call.session, call.request});
  struct Input {
    std::string key;
    std::string method;
    std::string params;
  };
  std::vector<Input> inputs;
  (void)core::ForEachMember(
      core::FindMember(result, "inputRequests").value_or("{}"), [&](core::JsonMember member) {
        const auto key = core::DecodeString(member.key_escaped ? fmt::format("\"{}\"", member.key)
                                                               : core::QuoteJson(member.key));
        inputs.push_back({key.value_or(""), core::FindString(member.value, "method").value_or(""),
                          std::string(core::FindMember(member.value, "params").value_or("{}"))});
        return inputs.size() < limits_.asks_max;
      });
  round.open = inputs.size();
  if (inputs.empty()) return SendRound(call);
  for (Input& input : inputs) {
    const uint64_t ask = next_ask_++;
    asks_[ask] = {call.spec.call_id, call.session, {}, std::move(input.key)};
    TellLater([this, ask, call_id = call.spec.call_id, method = std::move(input.method),
               params = std::move(input.params)]() mutable {
      if (asks_.contains(ask)) observer_.OnAsk(call_id, ask, std::move(method), std::move(params));
    });
  }
}

void McpSeat::TakeInput(const OpenAsk& open, bool is_error, const Payload& text) {
  const auto at = calls_.find(open.call_id);
  if (at == calls_.end() || at->second.told || at->second.phase != Phase::kRunning) return;
  Call& call = at->second;
  if (is_error) {
    McpReply reply;
    reply.kind = McpReply::Kind::kError;
    reply.body = text;
    reply.reached = true;
    // Later: whoever answers is in the midst of it.
    return TellLater([this, call_id = open.call_id, reply = std::move(reply)]() mutable {
      OnReply(call_id, std::move(reply));
    });
  }
  call.round.responses.emplace_back(open.key, text.view());
  if (--call.round.open == 0) SendRound(call);
}

void McpSeat::SendRound(Call& call) {
  if (session_ == nullptr) return;
  core::JsonObject responses;
  for (const auto& [key, raw] : call.round.responses) responses.Raw(key, raw);
  std::string params = core::SetMember(call.spec.params.view(), "inputResponses", responses.Take());
  if (!call.round.state.empty()) params = core::SetMember(params, "requestState", call.round.state);
  const std::string call_id = call.spec.call_id;
  call.request = session_->Request(
      call.spec.method, Payload(std::move(params)), call.spec.wants_progress,
      [this, call_id](McpReply reply) { OnReply(call_id, std::move(reply)); }, call.spec.trace,
      ClientDescription{.capabilities = call.spec.client_capabilities,
                        .client_info = call.spec.client_info,
                        .log_level = call.spec.log_level});
  call_of_request_[{call.session, call.request}] = call_id;
}

}  // namespace callboard::agent
