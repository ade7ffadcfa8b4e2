// Implementation of NoticeExchange.
#include "bridge/endpoints/notice_exchange.h"

#include <memory>
#include <utility>

#include "bridge/errors.h"
#include "bridge/lasting_listen.h"
#include "bridge/spliced_text.h"
#include "bridge/task_view.h"
#include "core/mcp/envelope.h"
#include "core/mcp/jsonrpc.h"

namespace callboard::bridge {

NoticeExchange::NoticeExchange(BridgeCore& core, HttpAnswer answer, std::string raw_id,
                               std::string honoured)
    : Exchange(core.exchanges, answer),
      core_(core),
      raw_id_(std::move(raw_id)),
      honoured_(std::move(honoured)),
      sse_(core.loop, core.random, core.config, core.gauges, std::move(answer)),
      out_(std::make_shared<SharedStream>(sse_)),
      slot_(core, {}) {
  WatchPeer();
}

void NoticeExchange::Watch(const std::vector<std::string>& call_ids) {
  if (!call_ids.empty()) tasks_.emplace(core_, call_ids);
}

void NoticeExchange::Start(std::optional<v1::ListenRequest> request) {
  if (!request) return Acknowledge();
  Restart(core_.config.unary_wait);
  events_.emplace(std::make_unique<LastingListen>(core_.loop, core_.random, core_.client,
                                                  *std::move(request), core_.config.reattach,
                                                  /*open=*/false),
                  [this](absl::StatusOr<v1::ListenEvent> event) { OnEvent(std::move(event)); });
  events_->Ask();
}

void NoticeExchange::OnEvent(absl::StatusOr<v1::ListenEvent> event) {
  if (finished()) return;
  if (!event.ok()) {
    if (sse_.open()) return End();
    answer_.RpcError(StatusHttpCode(event.status()), raw_id_, core::kInternalError,
                     core::Message(event.status()), StatusData(event.status(), /*started=*/false));
    return Finish();
  }
  switch (event->event_case()) {
    case v1::ListenEvent::kLive:
      Acknowledge();
      break;
    case v1::ListenEvent::kStreamEvent:
      return Relay(event->stream_event());
    case v1::ListenEvent::kEnd:
      return End();
    default:
      break;
  }
  events_->Ask();
}

void NoticeExchange::Acknowledge() {
  // A silent stream is nothing unusual: it has no deadline but its maximum life.
  Restart(absl::InfiniteDuration());
  if (std::exchange(acknowledged_, true)) return;
  sse_.Start();
  const std::string meta = core::JsonObject().Raw(core::kMetaSubscriptionId, raw_id_).Take();
  out_->Event(core::MakeNotification(
                  "notifications/subscriptions/acknowledged",
                  core::JsonObject().Raw("_meta", meta).Raw("notifications", honoured_).Take()),
              nullptr);
  if (tasks_) tasks_->Begin([this](const v1::Call& task) { TellTask(task); });
}

void NoticeExchange::TellTask(const v1::Call& task) {
  HasLargeTaskResult(task) ? TellLargeTask(task) : TellSmallTask(task);
}

void NoticeExchange::TellSmallTask(const v1::Call& task) {
  out_->Event(core::MakeNotification("notifications/tasks", Tagged(TaskNotice(task, core_.config))),
              nullptr);
}

void NoticeExchange::TellLargeTask(const v1::Call& task) {
  const std::string token = SplicedText::Token(core_.random.Hex(16));
  const std::string text =
      core::MakeNotification("notifications/tasks", Tagged(TaskNotice(task, core_.config, token)));
  const std::string& call_id = task.call_id();
  const auto [notice, added] =
      large_.try_emplace(call_id, core_, out_->Branch(), text, token, call_id);
  if (!added) return;
  notice->second.Begin([this, call_id] { large_.erase(call_id); },
                       [this, told = task](absl::StatusOr<v1::CallOutcome> outcome) mutable {
                         large_.erase(told.call_id());
                         if (!sse_.open()) return Finish();
                         if (outcome.ok()) *told.mutable_outcome() = *std::move(outcome);
                         TellSmallTask(told);
                       });
}

std::string NoticeExchange::Tagged(std::string_view params) const {
  return core::SetPath(params, {"_meta", core::kMetaSubscriptionId}, raw_id_);
}

void NoticeExchange::Relay(const v1::StreamEvent& event) {
  out_->Event(core::MakeNotification(event.method(), Tagged(event.params())),
              lifetime_.Wrap([this] { events_->Ask(); }));
}

void NoticeExchange::End() {
  large_.clear();  // one in its middle cuts the stream
  if (sse_.open()) {
    const std::string meta = core::JsonObject().Raw(core::kMetaSubscriptionId, raw_id_).Take();
    sse_.Event(
        {},
        core::MakeResult(
            raw_id_, core::JsonObject().String("resultType", "complete").Raw("_meta", meta).Take()),
        nullptr);
    sse_.End();
  } else if (!acknowledged_) {
    answer_.RpcError(504, raw_id_, core::kInternalError, "the control plane did not answer in time",
                     HardTimerData(/*started=*/false));
  }
  Finish();
}

void NoticeExchange::OnHardTimer() { End(); }

void NoticeExchange::OnTick() {
  if (sse_.open() && !sse_.Check(Exchanges::kTick)) Finish();
}

void NoticeExchange::Drain(bool last) {
  if (last) End();
}

}  // namespace callboard::bridge
