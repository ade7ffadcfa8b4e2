// Implementation of StdioFace: the session, its losses, and what the server says.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/stdio/stdio_face.h"
#include "bridge/errors.h"
#include "core/mcp/json.h"
#include "core/mcp/versions.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::apps {
namespace {

using core::JsonRpcMessage;

// Of initialize that the client knows nothing of.
constexpr std::string_view kOwnId = R"("callboard-initialize")";

bool IsResponse(const JsonRpcMessage& message) {
  return message.kind == JsonRpcMessage::Kind::kResult ||
         message.kind == JsonRpcMessage::Kind::kError;
}

bool IsTrue(std::string_view object, std::string_view key) {
  return core::FindBool(object, key).value_or(false);
}

}  // namespace

// ---- losses -----------------------------------------------------------------------------------

void StdioFace::OnTrouble(Trouble trouble, std::string detail) {
  loop_.Post(lifetime_.Wrap([this, trouble, epoch = epoch_, detail = std::move(detail)] {
    // What is told of a former session says nothing of this one.
    if (epoch == epoch_) HandleTrouble(trouble, detail);
  }));
}

void StdioFace::HandleTrouble(Trouble trouble, const std::string& detail) {
  if (trouble == Trouble::kUnauthenticated || trouble == Trouble::kForbidden) {
    return reconnector_.Refused(
        trouble == Trouble::kForbidden ? Attempt::kForbidden : Attempt::kUnauthenticated, detail);
  }
  if (!connected() || ending_) return;
  absl::Duration budget = config_.reconnect.budget;
  for (const auto& [number, request] : requests_) {
    budget = std::max(budget, request->asked().wish);
  }
  core::LogWarn(
      "session_away",
      {{"session", session_.session}, {"reason", detail}, {"open_requests", requests_.size()}});
  reconnector_.Lost(trouble == Trouble::kGone, detail, budget);
  for (const auto& [number, request] : requests_) request->Await();
}

void StdioFace::Probe() {
  attempt_ = std::make_unique<SessionAttempt>(
      *this, [this](SessionAttempt::Result result) { OnAttempt(std::move(result)); });
  attempt_->Probe();
}

void StdioFace::Initialize() {
  attempt_ = std::make_unique<SessionAttempt>(
      *this, [this](SessionAttempt::Result result) { OnAttempt(std::move(result)); });
  behind_ = initialize_id_.empty();
  if (!behind_) {
    return attempt_->Initialize(initialize_text_, initialize_id_, /*confirm=*/false);
  }
  attempt_->Initialize(core::MakeRequest(kOwnId, "initialize", initialize_params_),
                       std::string(kOwnId), /*confirm=*/true);
}

void StdioFace::OnAttempt(SessionAttempt::Result result) {
  attempt_.reset();
  if (!initialize_id_.empty() && result.refused) {
    // The client's own business: it has asked for something that is not there.
    reconnector_.Stop();
    initialize_params_.clear();
    AnswerInitialize(std::move(result.response));
    for (const auto& [number, request] : std::exchange(requests_, {})) {
      SayError(request->asked().id, core::kInvalidRequest, "initialize has failed",
               "not_initialized");
    }
    request_bytes_ = 0;
    return EndIfDone();
  }
  if (result.attempt == Attempt::kValid && !result.response.empty()) {
    session_ = std::move(result.session);
    ++epoch_;
    if (!initialize_id_.empty()) AnswerInitialize(std::move(result.response));
  }
  reconnector_.Tried(result.attempt, std::move(result.detail));
}

void StdioFace::AnswerInitialize(std::string response) {
  const auto result = core::FindMember(response, "result");
  capabilities_ = result ? core::FindMember(*result, "capabilities").value_or("{}") : "{}";
  const bool rename = speaks_2024_ && result &&
                      core::FindString(*result, "protocolVersion") ==
                          core::RevisionName(core::McpRevision::k2025_03_26);
  if (rename) {
    response = core::SetPath(response, {"result", "protocolVersion"},
                             core::QuoteJson(core::RevisionName(core::McpRevision::k2024_11_05)));
  }
  initialize_id_.clear();
  initialize_text_.clear();
  Say(std::move(response));
  EndIfDone();
}

void StdioFace::OnConnected(Reconnector::Success success) {
  core::LogInfo("session_connected",
                {{"session", session_.session},
                 {"how", success == Reconnector::Success::kResumed        ? "resumed"
                         : success == Reconnector::Success::kReRegistered ? "re_registered"
                                                                          : "opened"},
                 {"revision", session_.revision},
                 {"attempts", reconnector_.attempts()},
                 {"open_requests", requests_.size()}});
  if (success == Reconnector::Success::kResumed) {
    notes_.Resume();
    stream_.Resume();
    std::vector<ClientRequest*> open;
    for (const auto& [number, request] : requests_) open.push_back(request.get());
    // None ends in this: what may not be asked for again has a stream, or a key.
    for (ClientRequest* request : open) request->Resume();
    return;
  }
  OnNewSession();
}

// Nothing of the former session means anything to this one.
void StdioFace::OnNewSession() {
  ForgetAsks("the session with the server was lost");
  if (behind_) {
    notes_.Renew();
    stream_.Renew();
    stream_.Open();
  } else {
    // The client itself says notifications/initialized.
    notes_.Resume();
  }
  // What was to be restored of the former one is restored anew.
  std::erase_if(requests_, [this](const auto& entry) {
    if (!entry.second->asked().own) return false;
    request_bytes_ -= entry.second->asked().text.size();
    return true;
  });
  std::vector<uint64_t> lost;
  for (const auto& [number, request] : requests_) {
    if (!request->Renew()) lost.push_back(number);
  }
  for (const uint64_t number : lost) {
    const auto found = requests_.find(number);
    if (found == requests_.end()) continue;
    OnNoAnswer(*found->second, "session_lost",
               "the server does not know the session any more, and the call may have run in it");
  }
  if (!behind_) return;
  Restore();
  TellThatListsChanged();
}

void StdioFace::Restore() {
  const auto ask = [this](std::string_view method, std::string params) {
    ClientRequest::Asked asked;
    asked.id = core::QuoteJson(fmt::format("callboard-restore-{}", last_request_ + 1));
    asked.method = method;
    asked.text = core::MakeRequest(asked.id, method, params);
    asked.repeatable = asked.own = true;
    Add(std::move(asked));
  };
  if (!log_level_params_.empty()) ask("logging/setLevel", log_level_params_);
  for (const std::string& uri : subscribed_) {
    ask("resources/subscribe", core::JsonObject().Raw("uri", uri).Take());
  }
}

void StdioFace::TellThatListsChanged() {
  for (const std::string_view kind : {"tools", "resources", "prompts"}) {
    const auto capability = core::FindMember(capabilities_, kind);
    if (capability && IsTrue(*capability, "listChanged")) {
      Say(core::MakeNotification(fmt::format("notifications/{}/list_changed", kind), {}));
    }
  }
}

void StdioFace::ForgetAsks(std::string_view why) {
  for (const std::string& id : std::exchange(asks_, {})) {
    Say(core::MakeNotification(
        "notifications/cancelled",
        core::JsonObject().Raw("requestId", id).String("reason", why).Take()));
  }
}

void StdioFace::OnFailed(const Reconnector::Failure& failure) {
  const bool refused = failure.reason != "reconnect_budget_spent";
  const std::string sentence =
      refused ? fmt::format("{} refuses this client: {}", place_, failure.detail)
              : fmt::format("nobody answers at {} ({}); is callboardd running there?", place_,
                            failure.detail);
  core::LogError("session_failed", {{"session", session_.session},
                                    {"reason", failure.reason},
                                    {"detail", failure.detail},
                                    {"attempts", reconnector_.attempts()},
                                    {"open_requests", requests_.size()}});
  attempt_.reset();
  std::vector<std::string> answers;
  for (const auto& [number, request] : requests_) {
    if (!request->asked().own) {
      answers.push_back(FailedAnswer(*request, failure.reason, sentence));
    }
  }
  requests_.clear();
  request_bytes_ = 0;
  notes_.Clear();
  stream_.Close();
  session_ = {};
  ++epoch_;
  for (std::string& answer : answers) Say(std::move(answer));
  ForgetAsks("the server is away");
  if (!initialize_id_.empty()) {
    initialize_params_.clear();
    AnswerInitialize(
        core::MakeErrorResponse(initialize_id_, core::kServerError, sentence,
                                core::JsonObject().String("reason", failure.reason).Take()));
  }
  EndIfDone();
}

// ---- answers ----------------------------------------------------------------------------------

void StdioFace::OnAnswer(ClientRequest& request, std::string response) {
  reconnector_.Heard();
  const auto found = FindRequest(request.asked().id);
  if (found == requests_.end()) return;
  Learn(request.asked(), response);
  const bool own = request.asked().own;
  Remove(found);
  if (!own) Say(std::move(response));
}

void StdioFace::OnNoAnswer(ClientRequest& request, std::string_view reason,
                           std::string_view sentence) {
  const auto found = FindRequest(request.asked().id);
  if (found == requests_.end()) return;
  std::string answer = FailedAnswer(request, reason, sentence);
  core::LogWarn(
      "request_failed",
      {{"session", session_.session}, {"method", request.asked().method}, {"reason", reason}});
  const bool own = request.asked().own;
  Remove(found);
  if (!own) Say(std::move(answer));
}

std::string StdioFace::FailedAnswer(const ClientRequest& request, std::string_view reason,
                                    std::string_view sentence) const {
  std::string results = "[";
  for (const std::string& result : reconnector_.results()) {
    if (results.size() > 1) results.push_back(',');
    results.append(core::QuoteJson(result));
  }
  results.push_back(']');
  const std::string diagnostics =
      bridge::DiagnosticsOf(loop_, request.begun())
          .Int("last_event_age_ms", absl::ToInt64Milliseconds(loop_.Now() - request.heard()))
          .Int("away_ms", absl::ToInt64Milliseconds(reconnector_.away()))
          .Int("reconnect_attempts", reconnector_.attempts())
          .Raw("reconnect_results", results)
          .String("session", session_.session)
          .String("url", place_)
          .String("last_state", StateName(reconnector_.state()))
          .Take();
  const std::string data =
      core::JsonObject()
          .String("error", "tool_call_failed")
          .String("reason", reason)
          .String("certainty", request.may_have_run() ? "unknown" : "not_started")
          .Raw("diagnostics", diagnostics)
          .Take();
  return core::MakeErrorResponse(request.asked().id, core::kServerError,
                                 fmt::format("tool_call_failed: {}", sentence), data);
}

void StdioFace::OnServerMessage(std::string text) {
  const auto message = core::ParseJsonRpc(text, /*validate=*/false);
  if (!message.ok()) {
    return core::LogWarn("server_message_dropped", {{"reason", core::Message(message.status())}});
  }
  reconnector_.Heard();
  if (IsResponse(*message)) {
    // Of a request whose stream was resumed elsewhere; anything else has been answered before.
    const auto found = FindRequest(message->id);
    if (found != requests_.end()) OnAnswer(*found->second, std::move(text));
    return;
  }
  if (message->kind == JsonRpcMessage::Kind::kRequest) {
    if (asks_.size() >= config_.asks_max) asks_.erase(asks_.begin());
    asks_.emplace(message->id);
  } else if (message->method == "notifications/cancelled") {
    if (const auto id = core::FindMember(message->params, "requestId")) {
      asks_.erase(std::string(*id));
    }
  }
  Say(std::move(text));
}

// What another session must be told, and which tools may run twice.
void StdioFace::Learn(const ClientRequest::Asked& asked, std::string_view response) {
  const auto result = core::FindMember(response, "result");
  if (!result || asked.own) return;
  const auto params = core::FindMember(asked.text, "params");
  if (asked.method == "logging/setLevel" && params) {
    log_level_params_ = *params;
  } else if (asked.method == "resources/subscribe" || asked.method == "resources/unsubscribe") {
    const auto uri = params ? core::FindMember(*params, "uri") : std::nullopt;
    if (!uri) return;
    if (asked.method == "resources/unsubscribe") {
      subscribed_.erase(std::string(*uri));
    } else if (subscribed_.size() < config_.names_max) {
      subscribed_.emplace(*uri);
    }
  } else if (asked.method == "tools/list") {
    const auto tools = core::FindMember(*result, "tools");
    if (!tools) return;
    (void)core::ForEachElement(*tools, [this](std::string_view tool) {
      auto name = core::FindString(tool, "name");
      const auto hints = core::FindMember(tool, "annotations");
      if (!name) return true;
      if (!hints || (!IsTrue(*hints, "readOnlyHint") && !IsTrue(*hints, "idempotentHint"))) {
        repeatable_.erase(*name);
      } else if (repeatable_.size() < config_.names_max) {
        repeatable_.insert(*std::move(name));
      }
      return true;
    });
  }
}

}  // namespace callboard::apps
