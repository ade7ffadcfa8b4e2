// Implementation of the methods of the tasks extension.
#include "bridge/endpoints/tasks.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "bridge/endpoints/request_exchange.h"
#include "bridge/errors.h"
#include "bridge/initialize_result.h"
#include "bridge/modern_result.h"
#include "bridge/spliced_text.h"
#include "bridge/task_view.h"
#include "core/mcp/envelope.h"
#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

constexpr size_t kShownBytesMax = 100;

}  // namespace

bool TasksEndpoint::RefuseUndeclared(const VisitPtr& visit, const ModernRequest& request) {
  if (HasTasks(request.envelope.capabilities)) return false;
  visit->answer.RpcError(
      400, visit->raw_id(), core::kMissingCapability,
      fmt::format("tasks are of the extension {}, which the request does not declare",
                  core::kTasks),
      TasksRequiredData());
  return true;
}

std::vector<std::string> TasksEndpoint::TakeOurs(v1::NoticeWish* wish) {
  std::vector<std::string> call_ids;
  v1::NoticeWish others;
  for (const std::string& name : wish->task_ids()) {
    if (auto call_id = CallIdOfTask(name)) {
      call_ids.push_back(*std::move(call_id));
    } else {
      others.add_task_ids(name);
    }
  }
  *wish->mutable_task_ids() = others.task_ids();
  return call_ids;
}

struct TasksEndpoint::Parting {
  VisitPtr visit;
  std::vector<std::string> left;
  std::vector<std::string> ours;
  std::vector<std::string> strangers;
  Parted then;
};

void TasksEndpoint::TellApart(const VisitPtr& visit, std::vector<std::string> call_ids,
                              Parted then) {
  auto parting = std::make_shared<Parting>();
  parting->visit = visit;
  parting->left = std::move(call_ids);
  parting->then = std::move(then);
  TellNextApart(parting);
}

void TasksEndpoint::TellNextApart(const std::shared_ptr<Parting>& parting) {
  if (parting->left.empty()) return parting->then(parting->ours, parting->strangers);
  v1::CallRef request;
  request.set_call_id(parting->left.back());
  core_.client.GetCall(
      std::move(request),
      core_.exchanges.Await<v1::Call>(
          parting->visit->answer, parting->visit->raw_id(),
          [this, parting](const absl::StatusOr<v1::Call>& found) {
            std::string call_id = std::move(parting->left.back());
            parting->left.pop_back();
            // While nobody can say it may be ours.
            const bool stranger = found.ok() ? !IsTask(*found) : IsCallersMistake(found.status());
            (stranger ? parting->strangers : parting->ours).push_back(std::move(call_id));
            TellNextApart(parting);
          }));
}

bool TasksEndpoint::Take(const VisitPtr& visit, const ModernRequest& request, PassOn pass_on) {
  const std::string& method = visit->message.method;
  if (!IsTaskMethod(method)) return false;
  if (RefuseUndeclared(visit, request)) return true;
  auto call_id = CallIdOfTask(request.named);
  if (!call_id) {
    // On the facade no backend has tasks.
    if (visit->route.endpoint != Endpoint::kFacade) return false;
    AnswerUnknown(visit);
    return true;
  }
  v1::CallRef call;
  call.set_call_id(*std::move(call_id));
  Stranger stranger = [this, visit, asked = ModernRequest(request),
                       pass_on = std::move(pass_on)]() mutable {
    AnswerStranger(visit, std::move(asked), std::move(pass_on));
  };
  if (method == "tasks/get") {
    Get(visit, call, std::move(stranger));
  } else if (method == "tasks/cancel") {
    Cancel(visit, call, std::move(stranger));
  } else {
    Update(visit, call, std::move(stranger));
  }
  return true;
}

void TasksEndpoint::AnswerStranger(const VisitPtr& visit, ModernRequest request, PassOn pass_on) {
  if (visit->route.endpoint == Endpoint::kFacade) return AnswerUnknown(visit);
  v1::ListInstancesRequest of_seat;
  of_seat.mutable_target()->set_instance(visit->route.instance);
  core_.client.ListInstances(
      std::move(of_seat),
      core_.exchanges.Await<v1::ListInstancesResponse>(
          visit->answer, visit->raw_id(),
          [this, visit, request = std::move(request), pass_on = std::move(pass_on)](
              const absl::StatusOr<v1::ListInstancesResponse>& rows) mutable {
            if (!rows.ok() || rows->instances_size() != 1 ||
                !HasTasks(rows->instances(0).modern_capabilities())) {
              return AnswerUnknown(visit);
            }
            pass_on(std::move(request));
          }));
}

void TasksEndpoint::Get(const VisitPtr& visit, const v1::CallRef& call, Stranger stranger) {
  v1::CallRef request = call;
  request.set_with_outcome(true);
  core_.client.GetCall(std::move(request),
                       core_.exchanges.Await<v1::Call>(
                           visit->answer, visit->raw_id(),
                           [this, visit, stranger = std::move(stranger)](
                               const absl::StatusOr<v1::Call>& found) mutable {
                             if (!found.ok() && !IsCallersMistake(found.status())) {
                               return visit->answer.Failure(visit->raw_id(), found.status());
                             }
                             if (!found.ok() || !IsTask(*found)) return stranger();
                             if (HasLargeTaskResult(*found)) return AnswerLarge(visit, *found);
                             Answer(visit, TaskResult(*found, core_.config));
                           }));
}

void TasksEndpoint::WithTask(const VisitPtr& visit, const v1::CallRef& call, Stranger stranger,
                             absl::AnyInvocable<void()> then) {
  core_.client.GetCall(call, core_.exchanges.Await<v1::Call>(
                                 visit->answer, visit->raw_id(),
                                 [visit, stranger = std::move(stranger), then = std::move(then)](
                                     const absl::StatusOr<v1::Call>& found) mutable {
                                   if (!found.ok() && !IsCallersMistake(found.status())) {
                                     return visit->answer.Failure(visit->raw_id(), found.status());
                                   }
                                   if (!found.ok() || !IsTask(*found)) return stranger();
                                   then();
                                 }));
}

void TasksEndpoint::Cancel(const VisitPtr& visit, const v1::CallRef& call, Stranger stranger) {
  WithTask(visit, call, std::move(stranger), [this, visit, call] {
    core_.client.CancelCall(call, core_.exchanges.Await<v1::Call>(
                                      visit->answer, visit->raw_id(),
                                      [this, visit](const absl::StatusOr<v1::Call>& done) {
                                        if (done.ok()) return Answer(visit, "{}");
                                        visit->answer.Failure(visit->raw_id(), done.status());
                                      }));
  });
}

void TasksEndpoint::Update(const VisitPtr& visit, const v1::CallRef& call, Stranger stranger) {
  const std::string_view responses =
      core::FindMember(visit->message.params, "inputResponses").value_or("{}");
  if (!core::IsObject(responses)) {
    return visit->answer.RpcError(200, visit->raw_id(), core::kInvalidParams,
                                  "inputResponses must be an object");
  }
  v1::SendRequest request;
  request.mutable_input()->set_call_id(call.call_id());
  request.mutable_input()->set_responses(std::string(responses));
  WithTask(visit, call, std::move(stranger), [this, visit, request = std::move(request)] {
    core_.client.Send(request,
                      core_.exchanges.Await<v1::SendResponse>(
                          visit->answer, visit->raw_id(),
                          [this, visit](const absl::StatusOr<v1::SendResponse>& sent) {
                            // What is answered already, or that nobody has asked, counts for
                            // nothing.
                            if (sent.ok()) return Answer(visit, "{}");
                            if (sent.status().code() != absl::StatusCode::kInvalidArgument) {
                              return visit->answer.Failure(visit->raw_id(), sent.status());
                            }
                            visit->answer.RpcError(200, visit->raw_id(), core::kInvalidParams,
                                                   core::Message(sent.status()));
                          }));
  });
}

void TasksEndpoint::AnswerLarge(const VisitPtr& visit, const v1::Call& call) {
  RequestSpec spec{.answer = visit->answer,
                   .session_id = {},
                   .revision = core::McpRevision::k2026_07_28,
                   .raw_id = visit->raw_id(),
                   .accepts_events = visit->accepts_events};
  ModernSpec& modern = spec.modern.emplace();
  modern.method = visit->message.method;
  modern.server_info = FacadeServerInfo(core_.config);
  RequestExchange& exchange =
      core_.exchanges.Add(std::make_unique<RequestExchange>(core_, std::move(spec)));
  LargeAnswer answer;
  answer.token = SplicedText::Token(core_.random.Hex(16));
  answer.text = core::MakeResult(visit->message.id, TaskResult(call, core_.config, answer.token));
  answer.call.set_call_id(call.call_id());
  answer.otherwise = [this, visit, told = call,
                      &exchange](absl::StatusOr<v1::CallOutcome> outcome) mutable {
    if (outcome.ok()) {
      *told.mutable_outcome() = *std::move(outcome);
    } else if (outcome.status().code() != absl::StatusCode::kUnimplemented) {
      return exchange.AnswerFailure(outcome.status(), /*started=*/false);
    }
    exchange.Answer(core::MakeResult(visit->message.id, TaskResult(told, core_.config)));
  };
  exchange.AnswerLarge(std::move(answer));
}

void TasksEndpoint::Answer(const VisitPtr& visit, const std::string& result) {
  const std::string server_info = FacadeServerInfo(core_.config);
  ModernResponse response = ToModernResponse({visit->message.method, {}, server_info},
                                             core::MakeResult(visit->message.id, result));
  visit->answer.Json(response.http_status, std::move(response.text));
}

void TasksEndpoint::AnswerUnknown(const VisitPtr& visit) {
  const auto task_id = core::FindString(visit->message.params, "taskId");
  visit->answer.RpcError(
      200, visit->raw_id(), core::kInvalidParams,
      fmt::format("unknown task '{}': there is none of that name, or it was given up",
                  std::string_view(task_id.value_or("")).substr(0, kShownBytesMax)));
}

}  // namespace callboard::bridge
