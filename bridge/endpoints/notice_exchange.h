// One subscriptions/listen: a stream of what a seat says by itself, as its client asked for it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/bridge_core.h"
#include "bridge/endpoints/large_notice.h"
#include "bridge/endpoints/task_watch.h"
#include "bridge/event_pump.h"
#include "bridge/exchange.h"
#include "bridge/shared_stream.h"
#include "bridge/sse_writer.h"

namespace callboard::bridge {

// First the acknowledgement, then notifications, each with the id of the request. Owned by
// Exchanges; loop thread. Lives until the client goes, the bridge drains (then a result ends it),
// the control plane is away for longer than BridgeConfig::reattach, or its maximum life is over.
class NoticeExchange final : public Exchange {
 public:
  // `honoured`: the filter as it is acknowledged, raw JSON.
  NoticeExchange(BridgeCore& core, HttpAnswer answer, std::string raw_id, std::string honoured);

  // Tells of these tasks besides. To be called before Start().
  void Watch(const std::vector<std::string>& call_ids);
  // Without a request there is nothing else to hear, now or later.
  void Start(std::optional<v1::ListenRequest> request);

  void Drain(bool last) override;
  // It is open for as long as its client likes.
  bool ends() const override { return false; }

 private:
  void OnHardTimer() override;
  void OnTick() override;

  void OnEvent(absl::StatusOr<v1::ListenEvent> event);
  void Acknowledge();
  // Params with the id of the request.
  std::string Tagged(std::string_view params) const;
  void Relay(const v1::StreamEvent& event);
  void TellTask(const v1::Call& task);
  // With all that the call itself has in it.
  void TellSmallTask(const v1::Call& task);
  void TellLargeTask(const v1::Call& task);
  void End();

  BridgeCore& core_;
  const std::string raw_id_;
  const std::string honoured_;
  bool acknowledged_ = false;
  SseWriter sse_;
  // While one notification comes in pieces all others wait.
  std::shared_ptr<SharedStream> out_;
  std::map<std::string, LargeNotice> large_;  // being told, by call id
  StreamSlot slot_;
  std::optional<EventPump<v1::ListenEvent>> events_;
  std::optional<TaskWatch> tasks_;
};

}  // namespace callboard::bridge
