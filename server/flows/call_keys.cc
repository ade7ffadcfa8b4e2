// CallFlow, idempotency keys: the same key and arguments mean the same call, for a day.
#include <algorithm>
#include <utility>

#include "core/mcp/canonical_json.h"
#include "core/mcp/json.h"
#include "core/runtime/digest.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/invoke_source.h"
#include "server/flows/outcome_source.h"

namespace callboard::server {

std::string CallFlow::KeyScope(const LiveCall& call, const Session* session) const {
  const v1::InvokeRequest& request = call.request;
  std::string owner = request.principal();
  if (owner.empty() && session != nullptr) owner = session->principal;
  // Without a principal nobody but the session itself can mean the same.
  const std::string whose = owner.empty() ? fmt::format("session {}", request.session_id())
                                          : fmt::format("principal {}", owner);
  std::string scope = fmt::format("{}\n{}\n{}\n{}\n{}", whose, call.seat_id, request.method(),
                                  call.tool, request.idempotency_key());
  // Each round of a request that is asked for input is a call of its own (MCP 2026-07-28).
  std::string round;
  for (const char* member : {"inputResponses", "requestState"}) {
    if (!request.has_client()) break;
    round.append(core::FindMember(request.params(), member).value_or(""));
  }
  if (!round.empty()) scope.append("\n").append(core::Sha256Hex(round));
  return scope;
}

std::string CallFlow::ArgumentsDigest(const LiveCall& call) {
  const std::string& params = call.request.params();
  if (call.request.method() == "tools/call") {
    const auto arguments = core::FindMember(params, "arguments");
    return core::Sha256Hex(core::CanonicalJson(arguments.value_or("{}")));
  }
  return core::Sha256Hex(core::CanonicalJson(core::RemoveMember(params, "_meta")));
}

std::unique_ptr<core::EventSource<v1::InvokeEvent>> CallFlow::TakeKeyed(LiveCall& call,
                                                                        Session* session,
                                                                        const std::string& scope,
                                                                        const std::string& digest) {
  const Execution* known = plane_.executions.FindKey(scope);
  if (known == nullptr) return nullptr;
  // Nothing ran: whoever tries again means it.
  if (known->over() && known->certainty == v1::NOT_STARTED) return nullptr;
  if (known->arguments_digest != digest) {
    return Refuse(
        call.request,
        {v1::IDEMPOTENCY_CONFLICT,
         fmt::format("idempotency key '{}' was used with other arguments {} ago (call "
                     "{}); use a new key for a new call",
                     call.request.idempotency_key(),
                     absl::FormatDuration(absl::Trunc(Now() - known->created, absl::Seconds(1))),
                     known->call_id.hex())});
  }
  LiveCall* running = Find(known->call_id);
  const bool own =
      running != nullptr && session != nullptr && running->request.session_id() == session->id;
  if (own && running->source == nullptr && running->stream == nullptr && !running->ended) {
    return Reattach(*running, call.request);
  }
  return std::make_unique<OutcomeSource>(*this, known->call_id, call.request.client_request_id());
}

// The first caller has left: this one takes its place.
std::unique_ptr<core::EventSource<v1::InvokeEvent>> CallFlow::Reattach(
    LiveCall& call, const v1::InvokeRequest& request) {
  const std::string& session_id = call.request.session_id();
  if (!session_id.empty()) {
    plane_.requests.Remove(session_id, call.request.client_request_id(), call.id);
    if (!request.client_request_id().empty()) {
      plane_.requests.Add(session_id, request.client_request_id(), call.id);
    }
  }
  call.request.set_client_request_id(request.client_request_id());
  call.request.set_progress_token(request.progress_token());
  call.request.set_never_open_stream(request.never_open_stream());
  call.request.set_open_stream_after_ms(request.open_stream_after_ms());
  auto source = std::make_unique<InvokeSource>(*this, call.id, session_id);
  call.source = source.get();
  AcceptInTime(call);
  Arm(call);
  return source;
}

void CallFlow::Follow(const CallId& id, OutcomeSource* source) {
  followers_[id].push_back(source);
  const Execution* record = plane_.executions.Find(id);
  if (record == nullptr || record->over()) TellFollowers(id);
}

void CallFlow::Unfollow(const CallId& id, OutcomeSource* source) {
  auto found = followers_.find(id);
  if (found == followers_.end()) return;
  std::erase(found->second, source);
  if (found->second.empty()) followers_.erase(found);
}

void CallFlow::TellFollowers(const CallId& id) {
  if (!followers_.contains(id)) return;
  plane_.loop.Post(lifetime_.Wrap([this, id] {
    auto found = followers_.find(id);
    if (found == followers_.end()) return;
    const std::vector<OutcomeSource*> sources = found->second;
    for (OutcomeSource* source : sources) source->OnEnded();
  }));
}

void CallFlow::OutcomeOf(const CallId& id, OutcomeReply reply) {
  receipts_.ReadOutcome(id, [this, id, reply = std::move(reply)](
                                std::optional<v1::CallOutcome> kept) mutable {
    const Execution* record = plane_.executions.Find(id);
    const bool unknown = record != nullptr && record->certainty == v1::UNKNOWN;
    v1::CallOutcome outcome;
    if (kept) {
      outcome = *std::move(kept);
    } else {
      outcome.set_call_id(id.str());
      outcome.set_class_(record == nullptr || record->outcome == v1::RESULT ? v1::LOST
                                                                            : record->outcome);
      outcome.set_reason(outcome.class_() == v1::LOST && !unknown ? v1::BODY_LOST
                         : record == nullptr                      ? v1::REASON_UNSPECIFIED
                                                                  : record->reason);
      outcome.set_certainty(record == nullptr ? v1::UNKNOWN : record->certainty);
      outcome.set_message("the call has ended, but its result is no longer kept");
    }
    if (!kept || unknown) {
      outcome.set_message(fmt::format(
          "{}; ask for its receipt by call id {}",
          outcome.message().empty() ? "the outcome is not known" : outcome.message(), id.hex()));
    }
    reply(std::move(outcome));
  });
}

}  // namespace callboard::server
