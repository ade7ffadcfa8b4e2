// Implementation of the endpoint of revision 2026-07-28.
#include "bridge/endpoints/modern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bridge/endpoints/notice_exchange.h"
#include "bridge/errors.h"
#include "bridge/initialize_result.h"
#include "bridge/modern_result.h"
#include "bridge/task_view.h"
#include "core/mcp/json.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

using core::JsonRpcMessage;

constexpr int kListedMax = 256;
// The members of a filter.
constexpr std::string_view kTools = "toolsListChanged";
constexpr std::string_view kPrompts = "promptsListChanged";
constexpr std::string_view kResources = "resourcesListChanged";
constexpr std::string_view kUris = "resourceSubscriptions";
constexpr std::string_view kTaskIds = "taskIds";

// Requests of earlier revisions that this one has no more: never passed on.
bool IsRemoved(std::string_view method) {
  constexpr std::array<std::string_view, 5> kMethods = {
      "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"};
  return std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
}

SessionInfo NoSessionOf(const Visit& visit) {
  SessionInfo info;
  info.revision = core::McpRevision::k2026_07_28;
  info.facade = visit.route.endpoint == Endpoint::kFacade && visit.tools.empty();
  info.instance_name = visit.route.instance;
  info.tools = visit.tools;
  return info;
}

// The texts of the array `member`; InvalidArgument: it is there and no array.
absl::Status ReadTexts(std::string_view filter, std::string_view member,
                       google::protobuf::RepeatedPtrField<std::string>* texts) {
  const auto listed = core::FindMember(filter, member);
  if (!listed) return absl::OkStatus();
  absl::Status read = core::ForEachElement(*listed, [&](std::string_view element) {
    auto text = core::DecodeString(element);
    if (text && texts->size() < kListedMax) *texts->Add() = *std::move(text);
    return true;
  });
  if (read.ok()) return read;
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("params.notifications.{} must be an array of texts", member));
}

// InvalidArgument: no filter.
absl::Status ReadWish(std::string_view params, v1::NoticeWish* wish) {
  const auto filter = core::FindMember(params, "notifications");
  if (!filter || !core::IsObject(*filter)) {
    return absl::InvalidArgumentError(
        "subscriptions/listen needs params.notifications, an object: what to tell of");
  }
  const auto flag = [&](std::string_view name) {
    return core::FindBool(*filter, name).value_or(false);
  };
  wish->set_tools_list_changed(flag(kTools));
  wish->set_prompts_list_changed(flag(kPrompts));
  wish->set_resources_list_changed(flag(kResources));
  CALLBOARD_RETURN_IF_ERROR(ReadTexts(*filter, kUris, wish->mutable_resource_uris()));
  return ReadTexts(*filter, kTaskIds, wish->mutable_task_ids());
}

// Leaves of a wish what the instance says that it can tell of. Of one whose backend has not been
// there yet nothing is known, and all stays.
void LeaveWhatItCan(const v1::InstanceRow& row, v1::NoticeWish* wish) {
  if (row.capabilities().empty()) return;
  const std::string can = PassedCapabilities(row.capabilities());
  const auto has = [&](std::string_view kind, std::string_view what) {
    return core::FindPath(can, {kind, what}) == "true";
  };
  if (!has("prompts", "listChanged")) wish->set_prompts_list_changed(false);
  if (!has("resources", "listChanged")) wish->set_resources_list_changed(false);
  if (!has("resources", "subscribe")) wish->clear_resource_uris();
  if (!HasTasks(row.modern_capabilities())) wish->clear_task_ids();
}

std::string ArrayOf(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  std::string listed;
  for (const std::string& text : texts) {
    listed.append(listed.empty() ? "" : ",").append(core::QuoteJson(text));
  }
  return fmt::format("[{}]", listed);
}

// A wish, and tasks of ours beside it, as the client is told that they are honoured.
std::string Honoured(const v1::NoticeWish& wish, const std::vector<std::string>& ours) {
  core::JsonObject told;
  if (wish.tools_list_changed()) told.Bool(kTools, true);
  if (wish.prompts_list_changed()) told.Bool(kPrompts, true);
  if (wish.resources_list_changed()) told.Bool(kResources, true);
  if (wish.resource_uris_size() > 0) told.Raw(kUris, ArrayOf(wish.resource_uris()));
  auto tasks = wish.task_ids();
  for (const std::string& call_id : ours) *tasks.Add() = TaskIdOf(call_id);
  if (!tasks.empty()) told.Raw(kTaskIds, ArrayOf(tasks));
  return told.Take();
}

}  // namespace

void ModernEndpoint::Post(const VisitPtr& visit) {
  const JsonRpcMessage& message = visit->message;
  const HttpAnswer& answer = visit->answer;
  // Clients of this era have nothing to tell a server; what they no longer want they hang up.
  if (message.kind == JsonRpcMessage::Kind::kNotification) return answer.Empty(202);
  ModernRequest request;
  if (const auto fault = ReadModernRequest(visit->http, message, &request)) {
    return answer.RpcError(400, visit->raw_id(), fault->code, fault->message, fault->data);
  }
  if (core_.draining) return visit->RefuseDraining(core::kInternalError);
  if (IsRemoved(message.method)) {
    return answer.RpcError(404, visit->raw_id(), core::kMethodNotFound,
                           fmt::format("MCP 2026-07-28 has no '{}'", message.method));
  }
  if (message.method == "server/discover") return Discover(visit);
  if (message.method == "subscriptions/listen") return Listen(visit, request);
  const auto pass_on = [this, visit](ModernRequest asked) { Serve(visit, std::move(asked)); };
  if (tasks_.Take(visit, request, pass_on)) return;
  Serve(visit, std::move(request));
}

void ModernEndpoint::Answer(const VisitPtr& visit, const std::string& response) {
  const std::string server_info = FacadeServerInfo(core_.config);
  ModernResponse modern = ToModernResponse({visit->message.method, {}, server_info}, response);
  visit->answer.Json(modern.http_status, std::move(modern.text));
}

void ModernEndpoint::Discover(const VisitPtr& visit) {
  if (visit->route.endpoint == Endpoint::kFacade) {
    const std::string result = visit->tools.empty() ? FacadeDiscoverResult(core_.config)
                                                    : ToolsDiscoverResult(core_.config);
    return visit->answer.Json(200, core::MakeResult(visit->message.id, result));
  }
  v1::ListInstancesRequest request;
  request.mutable_target()->set_instance(visit->route.instance);
  core_.client.ListInstances(
      std::move(request),
      // Without an id: a control plane that is silent must not look like an older server.
      core_.exchanges.Await<v1::ListInstancesResponse>(
          visit->answer, {}, [this, visit](const absl::StatusOr<v1::ListInstancesResponse>& rows) {
            if (!rows.ok()) return visit->answer.Failure(visit->raw_id(), rows.status());
            if (rows->instances_size() != 1) {
              return visit->answer.RpcError(
                  404, visit->raw_id(), core::kInvalidParams,
                  fmt::format("{}; see list_instances on /mcp",
                              NoSuchInstance(visit->route.instance, rows->instances_size())),
                  R"({"reason":"seat_unknown"})");
            }
            visit->answer.Json(
                200, core::MakeResult(visit->message.id,
                                      InstanceDiscoverResult(core_.config, rows->instances(0))));
          }));
}

void ModernEndpoint::Listen(const VisitPtr& visit, const ModernRequest& asked) {
  v1::ListenRequest request;
  const absl::Status wish = ReadWish(visit->message.params, request.mutable_wish());
  if (!wish.ok()) {
    return visit->answer.RpcError(200, visit->raw_id(), core::kInvalidParams, core::Message(wish));
  }
  const bool of_tasks = request.wish().task_ids_size() > 0;
  if (of_tasks && TasksEndpoint::RefuseUndeclared(visit, asked)) return;
  if (!visit->accepts_events) {
    return visit->answer.RpcError(406, visit->raw_id(), core::kInvalidRequest,
                                  "subscriptions/listen is answered by an event stream: Accept "
                                  "must list text/event-stream");
  }
  std::vector<std::string> ours = TasksEndpoint::TakeOurs(request.mutable_wish());
  if (!visit->tools.empty()) {
    // Of selected tools there is the list alone.
    const bool list = request.wish().tools_list_changed();
    request.mutable_wish()->Clear();
    request.mutable_wish()->set_tools_list_changed(list);
    request.set_tools(visit->tools);
    return BeginListen(visit, std::move(request), ours);
  }
  if (visit->route.endpoint == Endpoint::kFacade) {
    // Its tools are always the same.
    request.mutable_wish()->Clear();
    return BeginListen(visit, std::nullopt, ours);
  }
  request.mutable_target()->set_instance(visit->route.instance);
  v1::ListInstancesRequest instance;
  *instance.mutable_target() = request.target();
  core_.client.ListInstances(
      std::move(instance),
      core_.exchanges.Await<v1::ListInstancesResponse>(
          visit->answer, visit->raw_id(),
          [this, visit, request = std::move(request),
           ours = std::move(ours)](const absl::StatusOr<v1::ListInstancesResponse>& rows) mutable {
            if (!rows.ok()) {
              return visit->answer.RpcError(StatusHttpCode(rows.status()), visit->raw_id(),
                                            core::kInternalError, core::Message(rows.status()),
                                            StatusData(rows.status(), /*started=*/false));
            }
            // If it is not there the control plane says so to whoever listens.
            if (rows->instances_size() != 1) return BeginListen(visit, std::move(request), ours);
            LeaveWhatItCan(rows->instances(0), request.mutable_wish());
            if (!HasTasks(rows->instances(0).modern_capabilities())) {
              return BeginListen(visit, std::move(request), ours);
            }
            tasks_.TellApart(visit, std::move(ours),
                             [this, visit, request = std::move(request)](
                                 const std::vector<std::string>& known,
                                 const std::vector<std::string>& strangers) mutable {
                               for (const std::string& call_id : strangers) {
                                 request.mutable_wish()->add_task_ids(TaskIdOf(call_id));
                               }
                               BeginListen(visit, std::move(request), known);
                             });
          }));
}

void ModernEndpoint::BeginListen(const VisitPtr& visit, std::optional<v1::ListenRequest> request,
                                 const std::vector<std::string>& ours) {
  if (!StreamSlot::HasRoom(core_, {})) {
    ++core_.gauges.streams.refused;
    return visit->answer.RpcError(503, visit->raw_id(), core::kInternalError,
                                  "too many open streams", R"({"reason":"too_many"})",
                                  RetryAfter());
  }
  std::string honoured = Honoured(request ? request->wish() : v1::NoticeWish(), ours);
  NoticeExchange& exchange = core_.exchanges.Add(
      std::make_unique<NoticeExchange>(core_, visit->answer, visit->raw_id(), std::move(honoured)));
  exchange.Watch(ours);
  exchange.Start(std::move(request));
}

void ModernEndpoint::Serve(const VisitPtr& visit, ModernRequest request) {
  const SessionInfo nobody = NoSessionOf(*visit);
  JsonRpcMessage message = visit->message;
  const std::string params = core::RemoveEnvelope(message.params);
  message.params = params;
  if (const auto text = requests_.AnswerHere(nobody, message)) return Answer(visit, *text);
  RequestSpec spec{.answer = visit->answer,
                   .session_id = {},
                   .revision = nobody.revision,
                   .raw_id = visit->raw_id(),
                   .accepts_events = visit->accepts_events,
                   .status_wish = ParseStatusWish(visit->http.Header(kAgentStatus))};
  spec.trace = visit->trace();
  spec.idempotency_key = visit->HeaderText("Idempotency-Key");
  ModernSpec& modern = spec.modern.emplace();
  modern.method = message.method;
  modern.named = std::move(request.named);
  if (nobody.instance_name.empty()) modern.server_info = FacadeServerInfo(core_.config);
  modern.client.set_revision(std::string(core::RevisionName(nobody.revision)));
  modern.client.set_capabilities(std::string(request.envelope.capabilities));
  modern.takes_tasks = HasTasks(request.envelope.capabilities);
  if (nobody.instance_name.empty()) {
    // A task of a backend could not be found again from here: what becomes one is ours.
    modern.client.set_capabilities(WithoutTasks(request.envelope.capabilities));
  }
  modern.client.set_client_info(std::string(request.envelope.client_info));
  modern.client.set_log_level(std::move(request.envelope.log_level));
  if (nobody.facade) {
    for (const char* member : {"inputResponses", "requestState"}) {
      const auto raw = core::FindMember(params, member);
      if (raw) modern.answers.emplace_back(member, *raw);
    }
  } else {
    modern.param_headers = std::move(request.param_headers);
  }
  requests_.Serve(nobody, message, std::move(spec));
}

}  // namespace callboard::bridge
