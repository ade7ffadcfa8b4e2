// CallFlow, callers without a session: a call whose backend asks something is parked, and resumed
// by the request that brings the answers (multi-round-trip requests of MCP 2026-07-28).
#include <utility>
#include <vector>

#include "core/mcp/canonical_json.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/digest.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/client_capabilities.h"
#include "server/flows/invoke_source.h"
#include "server/flows/outcome_source.h"

namespace callboard::server {
namespace {

constexpr size_t kParkedBytesMax = 64 << 10;

// The requests that may be answered with input_required.
bool MayBeParked(std::string_view method) {
  return method == "tools/call" || method == "prompts/get" || method == "resources/read";
}

// A request of an earlier revision as one of this revision.
std::string InputRequest(const std::string& method, std::string params) {
  if (method == "elicitation/create") {
    if (!core::FindMember(params, "mode")) params = core::SetMember(params, "mode", "\"form\"");
    params = core::RemoveMember(params, "elicitationId");
  }
  core::JsonObject request;
  request.String("method", method);
  if (!params.empty()) request.Raw("params", params);
  return request.Take();
}

v1::CallOutcome ErrorOutcome(const v1::InvokeRequest& request, int code, std::string_view message,
                             v1::Certainty certainty) {
  v1::CallOutcome outcome;
  outcome.set_client_request_id(request.client_request_id());
  outcome.set_class_(v1::RPC_ERROR);
  outcome.set_certainty(certainty);
  outcome.mutable_body()->set_inline_(core::MakeErrorObject(code, message));
  return outcome;
}

}  // namespace

// What a request has to be again when it brings the answers.
std::string CallFlow::ParkBinding(const v1::InvokeRequest& request, const std::string& seat_id) {
  std::string params = request.params();
  for (const char* member : {"_meta", "inputResponses", "requestState"}) {
    params = core::RemoveMember(params, member);
  }
  return fmt::format("{}\n{}\n{}\n{}", request.principal(), seat_id, request.method(),
                     core::Sha256Hex(core::CanonicalJson(params)));
}

void CallFlow::TakeAskOfParked(LiveCall& call, uint64_t n, const v1::Ask& ask, std::string params) {
  AckLater(call);
  const auto refuse = [&](int code, std::string_view why) {
    AnswerAsk(call, n, "", core::MakeErrorObject(code, why));
  };
  if (!MayBeAsked(call.request.client(), ask.method())) {
    return refuse(core::kMethodNotFound,
                  fmt::format("the client does not offer '{}'", ask.method()));
  }
  const bool there = call.source != nullptr || call.comes_back || call.as_task;
  // What a former control plane has been told, and this one knows by its record.
  if (call.parked.contains(n)) return;
  if (const auto said = call.answers.find(n); said != call.answers.end()) {
    AgentSession* link = agents_->LinkOf(call.agent_id);
    if (link != nullptr && call.step == CallStep::kSent) SendAnswer(*link, call, n, said->second);
    return;
  }
  const v1::ClientContext& client = call.request.client();
  const auto lacks = FitAsk(client.revision(), client.capabilities(), ask.method(), params);
  if (!lacks.empty()) {
    return refuse(core::kInvalidParams, fmt::format("the client does not offer '{}'", lacks));
  }
  if (call.ended || !there || call.asks.size() >= kAsksMax || call.parked_binding.empty() ||
      !MayBeParked(call.request.method())) {
    return refuse(core::kServerError,
                  fmt::format("the client cannot be asked ({}) now", ask.method()));
  }
  std::string request = InputRequest(ask.method(), std::move(params));
  size_t bytes = request.size();
  for (const auto& [other, text] : call.parked) bytes += text.size();
  if (bytes > kParkedBytesMax) {
    return refuse(core::kServerError, "the request is too large to be passed on");
  }
  call.asks.insert(n);
  call.parked[n] = std::move(request);
  // Of one that is parked its client learns when it comes back, or asks after its task.
  if (call.as_task) {
    call.unstored.insert(n);
    ShowAsked(call);
  } else if (call.source != nullptr) {
    Park(call);
  } else {
    Record(call);
  }
}

void CallFlow::Park(LiveCall& call) {
  const std::string state =
      request_state_.Seal({call.id, plane_.UnixMs(call.hard_at)}, call.parked_binding);
  v1::CallOutcome outcome;
  outcome.set_call_id(call.id.str());
  outcome.set_client_request_id(call.request.client_request_id());
  outcome.set_class_(v1::RESULT);
  outcome.set_certainty(v1::RUNNING);
  outcome.mutable_facts()->add_era_fields("resultType");
  outcome.mutable_body()->set_inline_(core::JsonObject()
                                          .String("resultType", "input_required")
                                          .Raw("inputRequests", ParkedRequests(call))
                                          .String("requestState", state)
                                          .Take());
  // For its reader that is the end; the call goes on without one.
  call.was_parked = call.comes_back = true;
  // A control plane that takes over knows what was asked. One that is killed before this is stored
  // says that the call was interrupted.
  Record(call);
  call.accept_at = absl::InfiniteFuture();
  InvokeSource* const source = std::exchange(call.source, nullptr);
  if (auto stream = std::exchange(call.stream, nullptr)) {
    stream->finished = true;
    durable_.Append(*stream, {std::move(outcome), 0, call.attempt}, DurableLog::Wait::kNo);
  } else if (source != nullptr) {
    source->SetOutcome(std::move(outcome));
  }
}

std::unique_ptr<core::EventSource<v1::InvokeEvent>> CallFlow::Resume(
    const v1::InvokeRequest& request) {
  const auto text = core::FindString(request.params(), "requestState");
  using Maker = RequestState::Maker;
  const Maker maker = text ? request_state_.MakerOf(*text) : Maker::kSomebodyElse;
  if (maker == Maker::kSomebodyElse) return nullptr;
  const auto fail = [&](int code, std::string_view message,
                        v1::Certainty certainty = v1::NOT_STARTED) {
    return std::make_unique<EndedCallSource>(ErrorOutcome(request, code, message, certainty));
  };
  const auto seat = plane_.seats.Resolve(request.target());
  if (!seat.ok()) return fail(core::kInvalidParams, core::Message(seat.status()));
  if (maker == Maker::kAnotherCallboard) {
    // Of the one behind the seat. A backend that gives out no states would run the call anew.
    if (!(*seat)->state.modern_capabilities().empty()) return nullptr;
    return fail(core::kInvalidParams,
                "requestState failed its check: it was changed, or made by another Callboard than "
                "this one, and the seat makes none");
  }
  const std::string binding = ParkBinding(request, (*seat)->state.seat_id());
  const auto parked = request_state_.Open(*text, binding, plane_.UnixMs(Now()));
  if (!parked.ok()) return fail(core::kInvalidParams, core::Message(parked.status()));
  LiveCall* call = Find(parked->call);
  if (call == nullptr || call->ended) {
    if (plane_.executions.Find(parked->call) != nullptr) {
      return std::make_unique<OutcomeSource>(*this, parked->call, request.client_request_id());
    }
    return fail(core::kInvalidParams,
                "requestState belongs to a call that was interrupted while its client was asked: "
                "the control plane was restarted; whether it has run is not known",
                v1::UNKNOWN);
  }
  if (call->source != nullptr) {
    return fail(core::kInvalidParams, "requestState is in use by another request");
  }
  const std::string_view responses =
      core::FindMember(request.params(), "inputResponses").value_or("{}");
  const auto answered = FindResponses(*call, responses);
  if (!answered.ok()) return fail(core::kInvalidParams, core::Message(answered.status()));
  // It comes as a request again: what was told as a task meanwhile is only looked at from now on.
  call->comes_back = call->as_task = false;
  TakeResponses(*call, *answered);
  call = Find(parked->call);
  if (call == nullptr || call->ended) {
    return std::make_unique<OutcomeSource>(*this, parked->call, request.client_request_id());
  }
  *call->request.mutable_client() = request.client();
  call->request.set_log_level(request.log_level());
  call->request.set_on_detach(request.on_detach());
  auto source = Reattach(*call, request);
  if (!call->parked.empty()) Park(*call);
  return source;
}

}  // namespace callboard::server
