// Implementation of the MCP endpoint: classification, sessions, dispatch.
#include "bridge/endpoints/mcp.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bridge/content_negotiation.h"
#include "bridge/endpoints/batch_exchange.h"
#include "bridge/endpoints/listen_exchange.h"
#include "bridge/endpoints/probe_exchange.h"
#include "bridge/endpoints/selected_tools.h"
#include "bridge/errors.h"
#include "bridge/modern_request.h"
#include "bridge/translator.h"
#include "core/mcp/envelope.h"

namespace callboard::bridge {
namespace {

using core::JsonRpcMessage;
using Kind = core::JsonRpcMessage::Kind;

constexpr std::string_view kSessionHeader = "Mcp-Session-Id";
constexpr size_t kSessionIdBytesMax = 256;
constexpr size_t kShownBytesMax = 100;
constexpr size_t kInstancePrefixMin = 8;

bool IsBatch(std::string_view body) {
  const size_t first = body.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && body[first] == '[';
}

std::string ModernRefusal() {
  return fmt::format("this server speaks MCP {} only: send initialize", ServedRevisions());
}

std::string_view ShownTools(const std::string& tools) {
  return std::string_view(tools).substr(0, kShownBytesMax);
}

bool IsCall(const JsonRpcMessage& message) {
  return message.kind == Kind::kRequest || message.kind == Kind::kNotification;
}

}  // namespace

void McpEndpoint::Handle(Route route, net::HttpRequest request, HttpAnswer answer) {
  const std::string* const version = request.Header(kVersionHeader);
  if (core_.config.modern && version != nullptr && IsModernVersion(*version)) {
    answer.UseModernCodes();
  }
  if (!core_.exchanges.has_room()) {
    return answer.RpcError(503, {}, answer.server_error(), "too many requests under way",
                           R"({"reason":"too_many"})", RetryAfter());
  }
  auto tools = SelectedTools::OfRequest(route, request);
  if (!tools.ok()) {
    return answer.RpcError(400, {}, core::kInvalidRequest, core::Message(tools.status()),
                           R"({"reason":"tools_invalid"})");
  }
  const auto visit = std::make_shared<Visit>(Visit{
      std::move(route), std::move(request), std::move(answer), *std::move(tools), true, {}, {}});
  if (visit->http.method == "POST") return Post(visit);
  if (visit->http.method == "GET") return Get(visit);
  Delete(visit);
}

// ---- POST ----

void McpEndpoint::Post(const VisitPtr& visit) {
  const HttpAnswer& answer = visit->answer;
  if (!IsJsonContent(visit->HeaderText("Content-Type"))) {
    return answer.RpcError(415, {}, answer.refused_request(),
                           "Content-Type must be application/json");
  }
  const std::string_view accept = visit->HeaderText("Accept");
  visit->accepts_events = Accepts(accept, "text/event-stream");
  if (!Accepts(accept, "application/json")) {
    if (!visit->accepts_events) {
      return answer.RpcError(406, {}, answer.refused_request(),
                             "Accept must list application/json and text/event-stream");
    }
    visit->answer.AcceptOnlyEvents();
  }
  if (IsBatch(visit->http.body)) return PostBatch(visit);

  if (!visit->ReadMessage()) return;
  if (TakeModern(visit)) return;
  const bool initialize =
      visit->message.kind == Kind::kRequest && visit->message.method == "initialize";
  if (initialize) return Initialize(visit);
  WithSession(visit, [this, visit](const SessionInfo& session) { Serve(visit, session); });
}

bool McpEndpoint::TakeModern(const VisitPtr& visit) {
  const JsonRpcMessage& message = visit->message;
  const bool initialize = message.kind == Kind::kRequest && message.method == "initialize";
  // Whatever it says besides, initialize opens a session, unless it has all that this era wants.
  const bool claims = initialize
                          ? HasModernEnvelope(message.params)
                          : IsCall(message) && core::FindModernClaim(message.params).has_value();
  const bool header = IsModernVersion(visit->HeaderText(kVersionHeader));
  if (!core_.config.modern) {
    if (!claims && (!header || visit->http.Header(kSessionHeader) != nullptr)) return false;
    // Neither silence nor a code of the modern era: the client then falls back to initialize.
    visit->answer.RpcError(400, visit->raw_id(), core::kInvalidRequest, ModernRefusal());
    return true;
  }
  if (!claims && !header) return false;
  // Session headers are no evidence: a client may send one along that it has from elsewhere.
  if (!IsCall(message)) {
    visit->answer.RpcError(400, visit->raw_id(), core::kInvalidRequest,
                           "MCP 2026-07-28 has no responses of clients");
  } else if (!claims && initialize) {
    visit->answer.RpcError(400, visit->raw_id(), core::kHeaderMismatch,
                           "initialize opens a session, MCP-Protocol-Version names a revision "
                           "without sessions");
  } else {
    visit->answer.UseModernCodes();
    modern_.Post(visit);
  }
  return true;
}

void McpEndpoint::PostBatch(const VisitPtr& visit) {
  const HttpAnswer& answer = visit->answer;
  std::string& body = visit->http.body;
  if (const absl::Status status = core::ValidateJson(body); !status.ok()) {
    return answer.RpcError(400, {}, core::kParseError, core::Message(status));
  }
  core::FlattenLines(body.data(), body.size());
  std::string_view problem;
  (void)core::ForEachElement(body, [&](std::string_view item) {
    auto message = core::ParseJsonRpc(item, /*validate=*/false);
    if (message.ok() && IsCall(*message) && core::FindModernClaim(message->params)) {
      problem = "a batch cannot carry requests of 2026-07-28";
    } else if (message.ok() && message->method == "initialize") {
      problem = "initialize must not be part of a batch";
    } else if (visit->batch.size() >= core_.config.limits.batch_items_max) {
      problem = "the batch has too many messages";
    }
    visit->batch.push_back(std::move(message));
    return problem.empty();
  });
  if (visit->batch.empty()) problem = "the batch is empty";
  if (IsModernVersion(visit->HeaderText(kVersionHeader))) problem = "MCP 2026-07-28 has no batches";
  if (!problem.empty()) return answer.RpcError(400, {}, core::kInvalidRequest, problem);
  WithSession(visit, [this, visit](const SessionInfo& session) {
    if (session.revision != core::McpRevision::k2025_03_26) {
      return visit->answer.RpcError(400, {}, core::kInvalidRequest,
                                    fmt::format("MCP {} has no batches: send one message a POST",
                                                core::RevisionName(session.revision)));
    }
    const bool asks = std::any_of(
        visit->batch.begin(), visit->batch.end(),
        [](const auto& message) { return message.ok() && message->kind == Kind::kRequest; });
    if (core_.draining && asks) return visit->RefuseDraining(core::kServerError);
    ServeBatch(visit, session);
  });
}

RequestSpec McpEndpoint::MakeSpec(const Visit& visit, const SessionInfo& session,
                                  std::string_view raw_id) {
  RequestSpec spec{.answer = visit.answer,
                   .session_id = session.id,
                   .revision = session.revision,
                   .raw_id = std::string(raw_id),
                   .accepts_events = visit.accepts_events,
                   .status_wish = ParseStatusWish(visit.http.Header(kAgentStatus))};
  spec.trace = visit.trace();
  spec.idempotency_key = visit.HeaderText("Idempotency-Key");
  return spec;
}

void McpEndpoint::Serve(const VisitPtr& visit, const SessionInfo& session) {
  const JsonRpcMessage& message = visit->message;
  if (message.kind == Kind::kRequest) {
    if (auto text = requests_.AnswerHere(session, message)) {
      return visit->answer.Json(200, *std::move(text));
    }
    if (core_.draining) return visit->RefuseDraining(core::kServerError);
    requests_.Serve(session, message, MakeSpec(*visit, session, message.id));
    return;
  }
  auto request = ToSend(session.id, message);
  if (!request) return visit->answer.Empty(202);
  core_.client.Send(
      *std::move(request),
      core_.exchanges.Await<v1::SendResponse>(
          visit->answer, {}, [this, visit](const absl::StatusOr<v1::SendResponse>& sent) {
            if (sent.ok()) return visit->answer.Empty(202);
            if (sent.status().code() == absl::StatusCode::kNotFound) return AnswerNoSession(visit);
            visit->answer.Failure({}, sent.status());
          }));
}

void McpEndpoint::ServeBatch(const VisitPtr& visit, const SessionInfo& session) {
  auto& batch = core_.exchanges.Add(std::make_unique<BatchExchange>(core_, visit->answer));
  // What is served below may change the cache that `session` is part of.
  const SessionInfo own = session;
  for (const auto& message : visit->batch) {
    if (!message.ok()) {
      batch.AddAnswer(
          core::MakeErrorResponse({}, core::kInvalidRequest, core::Message(message.status())));
      continue;
    }
    if (message->kind != Kind::kRequest) {
      if (auto request = ToSend(own.id, *message)) {
        core_.client.Send(*std::move(request), [](const absl::StatusOr<v1::SendResponse>&) {});
      }
      continue;
    }
    if (auto text = requests_.AnswerHere(own, *message)) {
      batch.AddAnswer(*std::move(text));
    } else {
      batch.AddRequest(requests_, own, *message, MakeSpec(*visit, own, message->id));
    }
  }
  batch.Seal();
}

// ---- initialize ----

void McpEndpoint::Initialize(const VisitPtr& visit) {
  if (core_.draining) return visit->RefuseDraining(core::kServerError);
  // A session id that is still known means a second initialize, an unknown one a fresh start.
  const std::string_view old = visit->HeaderText(kSessionHeader);
  if (!old.empty() && core_.sessions.Find(old, core_.loop.Now()) != nullptr) {
    return visit->answer.RpcError(400, visit->raw_id(), core::kInvalidRequest,
                                  "the session is initialized already; leave out Mcp-Session-Id "
                                  "to open another");
  }
  if (visit->route.endpoint == Endpoint::kFacade) return OpenSession(visit, {visit->tools, {}});
  FindInstance(core_, visit,
               [this, visit](const v1::InstanceRow& row) { OpenSession(visit, {{}, row}); });
}

void McpEndpoint::OpenSession(const VisitPtr& visit, const Surface& surface) {
  const std::string_view params = visit->message.params;
  const core::McpRevision revision = NegotiateRevision(params);
  core_.client.OpenSession(
      ToOpenSession(surface, revision, params),
      core_.exchanges.Await<v1::Session>(
          visit->answer, visit->raw_id(),
          [this, visit, result = InitializeResult(core_.config, surface, revision)](
              const absl::StatusOr<v1::Session>& session) {
            if (!session.ok()) {
              return visit->answer.Failure(visit->raw_id(), session.status());
            }
            if (session->tools() != visit->tools) return AnswerOldControlPlane(visit, *session);
            SessionInfo info = ToSessionInfo(*session);
            info.instance_name = visit->route.instance;
            core_.sessions.Confirm(std::move(info), core_.loop.Now());
            visit->answer.Json(200, core::MakeResult(visit->message.id, result),
                               {{std::string(kSessionHeader), session->session_id()}});
          }));
}

// It took the session for one of the facade.
void McpEndpoint::AnswerOldControlPlane(const VisitPtr& visit, const v1::Session& session) {
  v1::SessionRef request;
  request.set_session_id(session.session_id());
  core_.client.CloseSession(request, [](const absl::StatusOr<v1::CloseSessionResponse>&) {});
  visit->answer.Failure(visit->raw_id(), OldControlPlane());
}

// ---- sessions ----

void McpEndpoint::WithSession(const VisitPtr& visit, WithSessionFn then) {
  const std::string_view version = visit->HeaderText(kVersionHeader);
  const int refused = visit->batch.empty() ? core::kServerError : core::kInvalidRequest;
  if (!version.empty() && !IsServedRevision(version)) {
    return visit->answer.RpcError(
        400, visit->raw_id(), refused,
        fmt::format("unsupported MCP-Protocol-Version '{}'; supported: {}",
                    version.substr(0, kShownBytesMax), ServedRevisions()));
  }
  const std::string_view id = visit->HeaderText(kSessionHeader);
  if (id.empty()) {
    return visit->answer.RpcError(400, visit->raw_id(), refused,
                                  "Mcp-Session-Id is missing; send initialize first");
  }
  if (id.size() > kSessionIdBytesMax) return AnswerNoSession(visit);
  if (SessionInfo* const known = core_.sessions.Find(id, core_.loop.Now())) {
    return CheckSurface(visit, *known, std::move(then));
  }
  v1::SessionRef request;
  request.set_session_id(std::string(id));
  core_.client.GetSession(
      std::move(request),
      core_.exchanges.Await<v1::Session>(
          visit->answer, visit->raw_id(),
          [this, visit, then = std::move(then)](const absl::StatusOr<v1::Session>& found) mutable {
            if (!found.ok() && IsCallersMistake(found.status())) return AnswerNoSession(visit);
            if (!found.ok()) {
              return visit->answer.Failure(visit->raw_id(), found.status());
            }
            SessionInfo& session = core_.sessions.Confirm(ToSessionInfo(*found), core_.loop.Now());
            CheckSurface(visit, session, std::move(then));
          }));
}

void McpEndpoint::CheckSurface(const VisitPtr& visit, SessionInfo& session, WithSessionFn then) {
  const bool one_seat = visit->route.endpoint == Endpoint::kInstance;
  if (one_seat == session.seat_id.empty()) return AnswerNoSession(visit);
  // A URL that says nothing of tools leaves it to the session.
  if (!visit->tools.empty() && visit->tools != session.tools) {
    return AnswerOtherTools(visit, session);
  }
  const std::string& name = visit->route.instance;
  const bool same_seat = !one_seat || name == session.instance_name || name == session.seat_id ||
                         (name.size() >= kInstancePrefixMin && session.seat_id.starts_with(name));
  if (same_seat) return then(session);

  v1::ListInstancesRequest request;
  request.mutable_target()->set_instance(name);
  request.set_include_stale(true);
  request.set_include_dead(true);
  core_.client.ListInstances(
      std::move(request), core_.exchanges.Await<v1::ListInstancesResponse>(
                              visit->answer, visit->raw_id(),
                              [this, visit, own = session, then = std::move(then)](
                                  const absl::StatusOr<v1::ListInstancesResponse>& rows) mutable {
                                if (!rows.ok()) {
                                  return visit->answer.Failure(visit->raw_id(), rows.status());
                                }
                                // A restarted control plane knows the session before the seat,
                                // whose agent is still on its way: then the session decides.
                                const bool known = rows->instances_size() > 0;
                                const bool same = rows->instances_size() == 1 &&
                                                  rows->instances(0).seat_id() == own.seat_id;
                                if (known && !same) return AnswerNoSession(visit);
                                if (known) own.instance_name = visit->route.instance;
                                then(core_.sessions.Confirm(std::move(own), core_.loop.Now()));
                              }));
}

void McpEndpoint::AnswerNoSession(const VisitPtr& visit) {
  ++core_.gauges.session_mismatches;
  core_.sessions.Forget(visit->HeaderText(kSessionHeader));
  visit->answer.NoSession(visit->raw_id());
}

void McpEndpoint::AnswerOtherTools(const VisitPtr& visit, const SessionInfo& session) {
  ++core_.gauges.session_mismatches;
  visit->answer.RpcError(
      404, visit->raw_id(), core::kSessionNotFound,
      fmt::format("the session was opened with {}, not with tools={}: send initialize again",
                  session.tools.empty() ? "no tools selected"
                                        : fmt::format("tools={}", ShownTools(session.tools)),
                  ShownTools(visit->tools)));
}

// ---- GET and DELETE ----

void McpEndpoint::Get(const VisitPtr& visit) {
  const std::string* const accept = visit->http.Header("Accept");
  if (accept == nullptr || accept->empty() || !Accepts(*accept, "text/event-stream")) {
    return visit->answer.RpcError(406, {}, core::kServerError,
                                  "Accept must list text/event-stream; messages go by POST");
  }
  if (const std::string* const wanted = visit->http.Header(kProbeHeader); wanted != nullptr) {
    return Probe(visit->answer, *wanted);
  }
  std::optional<v1::EventId> after;
  if (const std::string* const last = visit->http.Header("Last-Event-ID"); last != nullptr) {
    after = ParseEventId(*last);
    if (!after) {
      return visit->answer.RpcError(
          400, {}, core::kInvalidRequest,
          fmt::format("Last-Event-ID '{}' is none of ours; they look like 0.1.7",
                      std::string_view(*last).substr(0, kShownBytesMax)));
    }
  }
  WithSession(visit, [this, visit, after = std::move(after)](const SessionInfo& session) {
    if (core_.draining || !StreamSlot::HasRoom(core_, session.id)) {
      return RefuseStream(core_, visit->answer);
    }
    core_.exchanges
        .Add(std::make_unique<ListenExchange>(core_, visit->answer, session, after,
                                              ParseStatusWish(visit->http.Header(kAgentStatus))))
        .Start();
  });
}

void McpEndpoint::Probe(const HttpAnswer& answer, std::string_view wanted) {
  const auto beat = ProbeExchange::ParseBeat(wanted);
  if (!beat) {
    return answer.RpcError(400, {}, core::kInvalidRequest,
                           fmt::format("{} must be beats or silent, not '{}'", kProbeHeader,
                                       wanted.substr(0, kShownBytesMax)));
  }
  const bool room = core_.probes < core_.config.limits.probes_max &&
                    core_.gauges.streams.open < core_.config.limits.streams_max;
  if (core_.draining || !room) return RefuseStream(core_, answer);
  core_.exchanges.Add(std::make_unique<ProbeExchange>(core_, answer, *beat)).Start();
}

void McpEndpoint::Delete(const VisitPtr& visit) {
  WithSession(visit, [this, visit](const SessionInfo& session) {
    v1::SessionRef request;
    request.set_session_id(session.id);
    core_.sessions.Forget(request.session_id());
    core_.client.CloseSession(
        request, core_.exchanges.Await<v1::CloseSessionResponse>(
                     visit->answer, {},
                     [this, visit](const absl::StatusOr<v1::CloseSessionResponse>& closed) {
                       if (closed.ok()) return visit->answer.Empty(200);
                       if (closed.status().code() == absl::StatusCode::kNotFound) {
                         return AnswerNoSession(visit);
                       }
                       visit->answer.Failure({}, closed.status());
                     }));
  });
}

}  // namespace callboard::bridge
