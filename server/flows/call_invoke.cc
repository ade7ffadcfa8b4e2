// CallFlow, admission: from Invoke to a call that may be sent, or to a refusal that says why.
#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "core/runtime/milliseconds.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/client_capabilities.h"
#include "server/flows/invoke_source.h"
#include "server/flows/mirrored_arguments.h"

namespace callboard::server {
namespace {

constexpr size_t kKeyBytesMax = 256;

// Requests of MCP that change nothing and may be asked twice.
bool IsReading(std::string_view method) {
  return method.ends_with("/list") || method.ends_with("/read") || method == "prompts/get" ||
         method == "completion/complete" || method == "ping" || method == "tasks/get";
}

struct CallParams {
  std::string_view name;       // raw
  std::string_view arguments;  // raw
  std::string_view meta;       // raw
};

CallParams Split(std::string_view params) {
  CallParams parts;
  (void)core::ForEachMember(params, [&](core::JsonMember member) {
    if (member.Is("name")) parts.name = member.value;
    if (member.Is("arguments")) parts.arguments = member.value;
    if (member.Is("_meta")) parts.meta = member.value;
    return true;
  });
  return parts;
}

}  // namespace

std::unique_ptr<core::EventSource<v1::InvokeEvent>> CallFlow::Refuse(
    const v1::InvokeRequest& request, Refusal refusal) {
  plane_.executions.metrics().Refused(refusal.reason);
  v1::CallOutcome outcome;
  outcome.set_client_request_id(request.client_request_id());
  outcome.set_class_(v1::REJECTED);
  outcome.set_reason(refusal.reason);
  outcome.set_certainty(v1::NOT_STARTED);
  outcome.set_message(std::move(refusal.message));
  return std::make_unique<EndedCallSource>(std::move(outcome));
}

std::unique_ptr<core::EventSource<v1::InvokeEvent>> CallFlow::Invoke(v1::InvokeRequest request) {
  Session* session = nullptr;
  if (!request.session_id().empty()) {
    session = plane_.sessions.Use(request.session_id(), Now());
    if (session == nullptr) {
      return std::make_unique<EndedSource<v1::InvokeEvent>>(NoSession(request.session_id()));
    }
  }
  if (session == nullptr && !request.tools().empty() && !request.has_target()) {
    if (auto refusal = RouteByName(request, nullptr)) return Refuse(request, *std::move(refusal));
  }
  if (request.has_client()) {
    if (auto source = Resume(request)) return source;
  }
  auto owned = std::make_unique<LiveCall>();
  LiveCall& call = *owned;
  call.request = std::move(request);
  call.created = Now();
  call.window = plane_.config.limits.window;
  auto refusal = Admit(call, session);
  std::string key_scope;
  std::string digest;
  if (!call.request.idempotency_key().empty() && !call.seat_id.empty()) {
    key_scope = KeyScope(call, session);
    digest = ArgumentsDigest(call);
    // Before a refusal for a reason of now: the call may have been made already.
    if (auto source = TakeKeyed(call, session, key_scope, digest)) return source;
  }
  if (refusal) return Refuse(call.request, *std::move(refusal));
  if (session != nullptr &&
      plane_.requests.TakeCancel(session->id, call.request.client_request_id(), Now())) {
    v1::CallOutcome cancelled;
    cancelled.set_client_request_id(call.request.client_request_id());
    cancelled.set_class_(v1::CANCELLED);
    cancelled.set_reason(v1::CANCELLED_BY_CLIENT);
    cancelled.set_certainty(v1::NOT_STARTED);
    cancelled.set_message("cancelled before it arrived");
    return std::make_unique<EndedCallSource>(std::move(cancelled));
  }
  if (session != nullptr && call.request.method() == "resources/unsubscribe" &&
      audience_.KeepsSubscription(*session, call.request.params())) {
    v1::CallOutcome done;
    done.set_client_request_id(call.request.client_request_id());
    done.set_class_(v1::RESULT);
    done.set_certainty(v1::FINISHED);
    done.mutable_body()->set_inline_("{}");
    return std::make_unique<StoredCallSource>(plane_.ready, durable_, std::move(done));
  }
  if (MayBeAsked(call.request.client())) {
    call.parked_binding = ParkBinding(call.request, call.seat_id);
  }
  call.id = CallId::New(plane_.random, plane_.UnixMs(call.created));
  const std::string& request_id = call.request.client_request_id();
  const std::string session_id = call.request.session_id();
  if (session != nullptr && !request_id.empty() &&
      !plane_.requests.Add(session_id, request_id, call.id)) {
    return Refuse(call.request,
                  {v1::PARAMS_INVALID, fmt::format("request id {} is in use by a request of this "
                                                   "session that has not ended",
                                                   request_id)});
  }

  Execution& record = plane_.executions.Open(call.id, call.created);
  record.seat_id = call.seat_id;
  record.agent_id = call.agent_id;
  record.session_id = session_id;
  record.client_request_id = request_id;
  record.method = call.request.method();
  record.tool = call.tool;
  record.principal = call.request.principal();
  if (record.principal.empty() && session != nullptr) record.principal = session->principal;
  if (!key_scope.empty()) {
    plane_.executions.SetKey(record, std::move(key_scope), call.request.idempotency_key(),
                             std::move(digest));
  }
  call.order = record.order;
  if (session != nullptr) session->calls.insert(call.order);
  calls_.emplace_hint(calls_.end(), call.order, std::move(owned));
  by_id_[call.id] = &call;

  if (call.request.params().size() > kInlineMax) {
    call.params = std::make_shared<const std::string>(std::move(*call.request.mutable_params()));
    call.request.clear_params();
  }
  call.hard_at =
      call.created + call.queue_budget + call.run_budget + plane_.config.budgets.upper_wait_margin;
  auto source = std::make_unique<InvokeSource>(*this, call.id, session_id);
  call.source = source.get();
  AcceptInTime(call);
  Send(call);
  Arm(call);
  return source;
}

std::optional<CallFlow::Refusal> CallFlow::Admit(LiveCall& call, Session* session) {
  v1::InvokeRequest& request = call.request;
  const Limits& limits = plane_.config.limits;
  if (plane_.draining) {
    return Refusal{v1::DRAINING, "the control plane is shutting down; try again shortly"};
  }
  const bool durable =
      !request.idempotency_key().empty() ||
      (session != nullptr && !request.never_open_stream() && request.open_stream_after_ms() == 0);
  if (durable) {
    if (const absl::Status store = durable_.status(); !store.ok()) {
      return Refusal{v1::STORE_UNAVAILABLE, std::string(core::Message(store))};
    }
  }
  if (request.idempotency_key().size() > kKeyBytesMax) {
    return Refusal{v1::PARAMS_INVALID, fmt::format("an idempotency key may have {} bytes, not {}",
                                                   kKeyBytesMax, request.idempotency_key().size())};
  }
  if (request.method().empty()) return Refusal{v1::PARAMS_INVALID, "a call needs a method"};
  if (request.params().size() > limits.params_bytes_max) {
    return Refusal{v1::PARAMS_TOO_LARGE,
                   fmt::format("params have {} bytes, at most {} are taken (params_bytes_max)",
                               request.params().size(), limits.params_bytes_max)};
  }
  if (!request.params().empty() && !core::IsObject(request.params())) {
    return Refusal{v1::PARAMS_INVALID, "params must be a JSON object"};
  }
  if (plane_.executions.full()) {
    return Refusal{v1::QUEUE_FULL, fmt::format("{} calls are open, which is the limit "
                                               "(open_executions_max); try again later",
                                               plane_.executions.open())};
  }
  if (session != nullptr && session->calls.size() >= limits.calls_per_session_max) {
    return Refusal{v1::QUEUE_FULL, fmt::format("this session has {} open calls, which is the limit "
                                               "(calls_per_session_max)",
                                               session->calls.size())};
  }
  if (!request.has_target() && session != nullptr) {
    if (!session->seat_id.empty()) request.mutable_target()->set_seat_id(session->seat_id);
    if (!session->opened.tools().empty()) {
      if (auto refusal = RouteByName(request, session)) return refusal;
    }
  }
  const auto resolved = plane_.seats.Resolve(request.target());
  if (!resolved.ok()) {
    const bool offline = resolved.status().code() == absl::StatusCode::kUnavailable ||
                         resolved.status().code() == absl::StatusCode::kFailedPrecondition;
    return Refusal{offline ? v1::SEAT_OFFLINE : v1::SEAT_UNKNOWN,
                   std::string(core::Message(resolved.status()))};
  }
  const SeatRecord& seat = **resolved;
  if (seat.presence == Presence::kDead || seat.presence == Presence::kStale) {
    return Refusal{
        v1::SEAT_OFFLINE,
        fmt::format("seat '{}' is {}: last seen {} ago; ask list_instances",
                    plane_.seats.DisplayName(seat),
                    seat.presence == Presence::kDead ? "dead" : "stale",
                    absl::FormatDuration(absl::Trunc(Now() - seat.last_seen, absl::Seconds(1))))};
  }
  call.seat_id = seat.state.seat_id();
  call.agent_id = seat.agent_id;
  const Budgets& budgets = plane_.config.budgets;
  call.queue_budget = request.queue_ms() != 0
                          ? std::min(core::FromMillis(request.queue_ms()), budgets.call_max)
                          : budgets.queue;
  return AdmitTool(call, seat, session);
}

std::optional<CallFlow::Refusal> CallFlow::RouteByName(v1::InvokeRequest& request,
                                                       const Session* session) {
  if (request.method() != "tools/call") {
    return Refusal{v1::PARAMS_INVALID,
                   fmt::format("of selected tools there are tools only; '{}' needs a target",
                               request.method())};
  }
  const auto name = core::DecodeString(Split(request.params()).name);
  if (!name) return Refusal{v1::PARAMS_INVALID, "tools/call needs params.name, a string"};
  const auto origin = session == nullptr ? selections_.Find(request.tools(), *name)
                                         : selections_.Find(*session, *name);
  if (!origin.ok()) {
    const absl::StatusCode code = origin.status().code();
    const v1::Reason reason = code == absl::StatusCode::kUnavailable         ? v1::SEAT_OFFLINE
                              : code == absl::StatusCode::kResourceExhausted ? v1::QUEUE_FULL
                              : code == absl::StatusCode::kInvalidArgument   ? v1::PARAMS_INVALID
                                                                             : v1::TOOL_UNKNOWN;
    return Refusal{reason, std::string(core::Message(origin.status()))};
  }
  request.mutable_target()->set_seat_id(origin->seat_id);
  request.set_params(core::SetMember(request.params(), "name", core::QuoteJson(origin->tool)));
  return std::nullopt;
}

std::optional<CallFlow::Refusal> CallFlow::AdmitTool(LiveCall& call, const SeatRecord& seat,
                                                     Session* session) {
  const v1::InvokeRequest& request = call.request;
  const Budgets& budgets = plane_.config.budgets;
  const CallParams parts = Split(request.params());
  absl::Duration by_class = budgets.heavy_call;
  if (request.method() == "tools/call") {
    call.lane = v1::MAIN;
    auto name = core::DecodeString(parts.name);
    if (!name) return Refusal{v1::PARAMS_INVALID, "tools/call needs params.name, a string"};
    call.tool = *std::move(name);
    const auto list = plane_.catalog.Of(call.seat_id);
    const ToolInfo* tool = list == nullptr ? nullptr : list->Find(call.tool);
    if (tool != nullptr) {
      if (request.has_client()) {
        const absl::Status headers =
            CheckMirroredArguments(tool->input_schema, parts.arguments, request.param_headers());
        if (!headers.ok()) {
          return Refusal{v1::PARAM_HEADER_MISMATCH, std::string(core::Message(headers))};
        }
      }
      const absl::Status arguments = plane_.argument_check.Check(*list, *tool, parts.arguments);
      if (!arguments.ok()) {
        return Refusal{v1::PARAMS_INVALID, std::string(core::Message(arguments))};
      }
      call.read_only = tool->read_only;
      call.idempotent = tool->idempotent;
      by_class =
          tool->timeout_hint.value_or(tool->read_only ? budgets.quick_call : budgets.heavy_call);
    }
  } else if (IsReading(request.method())) {
    call.read_only = call.idempotent = true;
    by_class = budgets.quick_call;
  }
  call.run_budget = by_class;
  if (request.run_ms() != 0) {
    call.run_budget = core::FromMillis(request.run_ms());
  } else if (const auto dcc = core::FindMember(parts.meta, "dcc")) {
    const auto wish = core::FindInteger(*dcc, "timeout_ms");
    if (wish && *wish > 0) call.run_budget = core::FromMillis(static_cast<uint64_t>(*wish));
  }
  call.run_budget = std::min(call.run_budget, budgets.call_max);
  if (session != nullptr) return CheckPin(call, seat, *session);
  return std::nullopt;
}

std::optional<CallFlow::Refusal> CallFlow::CheckPin(LiveCall& call, const SeatRecord& seat,
                                                    Session& session) {
  const uint64_t now = seat.state.incarnation();
  auto pin = session.pins.find(call.seat_id);
  if (pin == session.pins.end()) {
    if (session.pins.size() >= Session::kPinsMax) session.pins.erase(session.pins.begin());
    pin = session.pins.emplace(call.seat_id, now).first;
    durable_.TouchSession(session);
  }
  if (call.read_only || call.lane != v1::MAIN) return std::nullopt;
  const uint64_t pinned = std::exchange(pin->second, now);
  call.expect_incarnation = now;
  if (pinned == now) return std::nullopt;
  durable_.TouchSession(session);
  return Refusal{
      v1::WRONG_INCARNATION,
      fmt::format("'{}' has been restarted since this session used it: then incarnation {}, now "
                  "incarnation {}{}. Nothing was sent; call again to work in the new process",
                  plane_.seats.DisplayName(seat), pinned, now,
                  seat.state.scene().empty() ? std::string(", no scene")
                                             : fmt::format(", scene '{}'", seat.state.scene()))};
}

}  // namespace callboard::server
