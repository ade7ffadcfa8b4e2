// Implementation of TaskWatch.
#include "bridge/endpoints/task_watch.h"

#include <utility>

#include "bridge/errors.h"
#include "bridge/facade/rendering.h"
#include "bridge/task_view.h"

namespace callboard::bridge {
namespace {

constexpr uint64_t kWaitMs = 60'000;

}  // namespace

TaskWatch::TaskWatch(BridgeCore& core, const std::vector<std::string>& call_ids) : core_(core) {
  for (const std::string& call_id : call_ids) open_[call_id];
}

void TaskWatch::Begin(Tell tell) {
  tell_ = std::move(tell);
  // Replies may come inline and end the waiting.
  std::vector<std::string> all;
  all.reserve(open_.size());
  for (const auto& [call_id, open] : open_) all.push_back(call_id);
  for (const std::string& call_id : all) Wait(call_id);
}

void TaskWatch::Wait(const std::string& call_id) {
  v1::CallRef request;
  request.set_call_id(call_id);
  request.set_wait_ms(kWaitMs);
  request.set_with_outcome(true);
  request.set_watch_input(true);
  for (const std::string& key : open_[call_id].known_input) request.add_known_input(key);
  core_.client.WaitCall(std::move(request),
                        lifetime_.Wrap([this, call_id](const absl::StatusOr<v1::Call>& call) {
                          OnCall(call_id, call);
                        }));
}

void TaskWatch::OnCall(const std::string& call_id, const absl::StatusOr<v1::Call>& call) {
  const bool unknown = call.ok() ? !IsTask(*call) : IsCallersMistake(call.status());
  if (unknown) {
    open_.erase(call_id);
    return;
  }
  if (!call.ok() || !IsOver(*call)) {
    Open& open = open_[call_id];
    open.again = core_.loop.After(core_.config.task_poll, [this, call_id] { Wait(call_id); });
    if (!call.ok()) return;
    std::set<std::string> asked;
    for (const auto& [key, request] : call->input_requests()) asked.insert(key);
    if (std::exchange(open.known_input, asked) != asked) tell_(*call);
    return;
  }
  open_.erase(call_id);
  tell_(*call);
}

}  // namespace callboard::bridge
