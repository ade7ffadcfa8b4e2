// Calls of ours as tasks of MCP 2026-07-28 (extension io.modelcontextprotocol/tasks). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "bridge/config.h"
#include "callboard/v1/control.pb.h"

namespace callboard::bridge {

// `capabilities`: raw JSON of a client or a server.
bool HasTasks(std::string_view capabilities);
// The same capabilities with the extension, whatever they say of it staying; and without it.
std::string WithTasks(std::string_view capabilities);
std::string WithoutTasks(std::string_view capabilities);

// tasks/get, tasks/update and tasks/cancel: all that this revision has.
bool IsTaskMethod(std::string_view method);
// The data of the error for a client that calls them and does not declare the extension.
std::string TasksRequiredData();

// The name of a call as a task: no backend's task is called so.
std::string TaskIdOf(std::string_view call_id);
// nullopt: no task of ours.
std::optional<std::string> CallIdOfTask(std::string_view task_id);

// Tasks are calls of clients without a session; whoever has one asks for its calls in other ways.
bool IsTask(const v1::Call& call);

// A call that goes on, as the result of the request that made it.
std::string NewTaskResult(const v1::Call& call, const BridgeConfig& config);
// What it is now, for tasks/get; `call` comes with its outcome, if that is kept. Once it is told to
// be over it stays what it is: a result that comes late is not told. `body_token` stands for a
// large result (SplicedText); without one such a result is told as one that is not kept.
std::string TaskResult(const v1::Call& call, const BridgeConfig& config,
                       std::string_view body_token = {});
// Whether its result is to be fetched.
bool HasLargeTaskResult(const v1::Call& call);
// The same as params of notifications/tasks.
std::string TaskNotice(const v1::Call& call, const BridgeConfig& config,
                       std::string_view body_token = {});

}  // namespace callboard::bridge
