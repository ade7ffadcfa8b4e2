// McpSeat, a client of an earlier revision and a backend that speaks 2026-07-28 alone: results lose
// what only that one has, and input that is required is asked for in mid-call.
#include <algorithm>
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
constexpr size_t kUrlsMax = 16;
// Of a large result, what is copied at once.
constexpr size_t kPieceBytes = 1 << 20;
constexpr std::string_view kElicit = "elicitation/create";
constexpr std::string_view kUrlKey = "url-";

// Of what a client declares.
bool MayOpenUrls(std::string_view capabilities) {
  return core::FindPath(capabilities, {"elicitation", "url"}).has_value();
}

McpReply Failed(std::string_view message, int code = core::kInternalError,
                std::string_view raw_data = {}) {
  McpReply reply;
  reply.kind = McpReply::Kind::kError;
  reply.body = Payload(core::MakeErrorObject(code, message, raw_data));
  reply.reached = true;
  return reply;
}

bool AsksForUrl(std::string_view method, std::string_view params) {
  return method == kElicit && core::FindString(params, "mode") == "url";
}

// The result without what only 2026-07-28 has, and with an object as its structured content. What
// the spool has no room for stays as it is: older clients pass over members that they do not know.
Payload ForEarlierClient(Spool& spool, Payload result) {
  PayloadBuilder built(spool, result.size() + 64);
  bool changed = false;
  absl::Status status = built.Append("{");
  bool first = true;
  const absl::Status read = core::ForEachMember(result.view(), [&](const core::JsonMember& member) {
    if (member.Is("resultType") || member.Is("ttlMs") || member.Is("cacheScope")) {
      changed = true;
      return true;
    }
    const bool wrapped = member.Is("structuredContent") && !core::IsObject(member.value);
    changed = changed || wrapped;
    const std::string key = fmt::format(R"({}"{}":)", first ? "" : ",", member.key);
    first = false;
    const std::string_view begin = wrapped ? R"({"result":)" : "";
    const std::string_view end = wrapped ? "}" : "";
    for (std::string_view text : {std::string_view(key), begin, member.value, end}) {
      for (; status.ok() && !text.empty(); text.remove_prefix(std::min(text.size(), kPieceBytes))) {
        status = built.Append(text.substr(0, kPieceBytes));
      }
    }
    return status.ok();
  });
  if (status.ok()) status = built.Append("}");
  if (!changed || !read.ok() || !status.ok()) return result;
  return built.Take();
}

}  // namespace

bool McpSeat::Translate(Call& call, McpReply& reply) {
  // A caller that has been told its end asks nobody.
  if (call.told) return true;
  const std::string_view result = reply.body.view();
  if (reply.kind != McpReply::Kind::kResult) {
    const bool missing = call.spec.method == "resources/read" &&
                         core::FindInteger(result, "code") == core::kInvalidParams &&
                         core::FindPath(result, {"data", "uri"}).has_value();
    if (missing) {
      reply.body =
          Payload(core::SetMember(result, "code", std::to_string(core::kResourceNotFound)));
    }
    return true;
  }
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
    if (const std::string urls = UrlsOf(call, result); !urls.empty()) {
      reply = Failed("the application needs its user to open a URL first",
                     core::kUrlElicitationRequired, urls);
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
  reply.body = ForEarlierClient(spool_, std::move(reply.body));
  return true;
}

// What a client is told that cannot be asked to open a URL, as data of an error; "" if nothing of
// the kind is asked or it can.
std::string McpSeat::UrlsOf(const Call& call, std::string_view result) {
  if (MayOpenUrls(call.spec.client_capabilities)) return "";
  std::string urls;
  (void)core::ForEachMember(
      core::FindMember(result, "inputRequests").value_or("{}"),
      [&](const core::JsonMember& member) {
        const auto params = core::FindMember(member.value, "params");
        if (!params ||
            !AsksForUrl(core::FindString(member.value, "method").value_or(""), *params)) {
          return true;
        }
        urls.append(urls.empty() ? "" : ",")
            .append(core::SetMember(*params, "elicitationId", core::QuoteJson(random_.Hex(16))));
        return true;
      });
  if (urls.empty()) return "";
  return core::JsonObject().Raw("elicitations", fmt::format("[{}]", urls)).Take();
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
    if (AsksForUrl(input.method, input.params)) {
      // Earlier revisions name what they ask for.
      input.params =
          core::SetMember(input.params, "elicitationId", core::QuoteJson(random_.Hex(16)));
    }
    const uint64_t ask = next_ask_++;
    asks_[ask] = {call.spec.call_id, call.session, {}, std::move(input.key), {}};
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
  Put(call, Payload(std::move(params)));
}

// ---- URLs that the user has to open ------------------------------------------------------------

// The backend keeps no state of it: it ends the call with an error, and takes it when it comes once
// more. So does what is made of it here, which has no requestState.
void McpSeat::RequireUrls(const Call& call, McpReply& reply) {
  if (reply.kind != McpReply::Kind::kError || !call.spec.modern || call.in_modern ||
      core::MemberOfMcpName(call.spec.method).empty() ||
      core::FindInteger(reply.body.view(), "code") != core::kUrlElicitationRequired) {
    return;
  }
  core::JsonObject requests;
  size_t count = 0;
  const auto take = [&](std::string_view elicitation) {
    if (!core::FindString(elicitation, "url")) return true;
    std::string params = core::SetMember(elicitation, "mode", R"("url")");
    params = core::RemoveMember(params, "elicitationId");
    requests.Raw(fmt::format("{}{}", kUrlKey, ++count),
                 core::JsonObject().String("method", kElicit).Raw("params", params).Take());
    return count < kUrlsMax;
  };
  const auto listed = core::FindPath(reply.body.view(), {"data", "elicitations"});
  if (listed) (void)core::ForEachElement(*listed, take);
  if (count == 0) return;
  if (!MayOpenUrls(call.spec.client_capabilities)) {
    reply = Failed(
        "the application needs its user to open a URL first, which this client does not "
        "offer (elicitation.url)",
        core::kMissingCapability, R"({"requiredCapabilities":{"elicitation":{"url":{}}}})");
    return;
  }
  reply.kind = McpReply::Kind::kResult;
  reply.body = Payload(core::JsonObject()
                           .String("resultType", "input_required")
                           .Raw("inputRequests", requests.Take())
                           .Take());
}

std::optional<McpReply> McpSeat::DeclinedUrl(const Call& call) {
  if (!call.spec.modern || call.in_modern) return std::nullopt;
  const auto responses = core::FindMember(call.spec.params.view(), "inputResponses");
  if (!responses) return std::nullopt;
  bool declined = false;
  (void)core::ForEachMember(*responses, [&](const core::JsonMember& response) {
    declined = !response.key_escaped && response.key.starts_with(kUrlKey) &&
               core::FindString(response.value, "action") != "accept";
    return !declined;
  });
  if (!declined) return std::nullopt;
  constexpr std::string_view kWhy =
      "the application needs its user to open a URL first, and that was declined";
  if (call.spec.method != "tools/call") return Failed(kWhy);
  McpReply reply;
  reply.kind = McpReply::Kind::kResult;
  reply.body = Payload(core::MakeToolError(kWhy));
  return reply;
}

}  // namespace callboard::agent
