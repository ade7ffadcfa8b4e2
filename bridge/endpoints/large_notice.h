// One notification with a large result in it, which is told in pieces as it comes.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/body_countdown.h"
#include "bridge/event_pump.h"
#include "bridge/message_stream.h"
#include "bridge/spliced_text.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/event_loop.h"

namespace callboard::bridge {

// Fetches what the control plane has kept of a call and tells it in the place of `token`; a result
// that is still on its way to the control plane is asked for again every BridgeConfig::task_poll.
// Owned by its listener, which may destroy it at any time: a notification that has begun then cuts
// the stream, as does a control plane that is silent in its middle for BridgeConfig::hard_wait.
// Loop thread. In memory is a piece at a time.
class LargeNotice {
 public:
  // Nothing has been told. The outcome has no body: the result is no longer kept, and that is what
  // is to be told. An error: it cannot be had.
  using Otherwise = absl::AnyInvocable<void(absl::StatusOr<v1::CallOutcome>)>;

  // `text`: the notification with `token` (SplicedText) in one place.
  LargeNotice(BridgeCore& core, std::unique_ptr<MessageStream> out, std::string_view text,
              std::string_view token, std::string call_id);

  // `told` or `otherwise` runs once, may destroy this, and is the last that is heard of it.
  void Begin(absl::AnyInvocable<void()> told, Otherwise otherwise);

 private:
  void Fetch();
  void OnEvent(absl::StatusOr<v1::InvokeEvent> event);
  void OnOutcome(v1::CallOutcome outcome);
  void OnChunk(const v1::BodyChunk& chunk);
  void Ask();
  void GiveUp(absl::StatusOr<v1::CallOutcome> outcome);

  BridgeCore& core_;
  std::unique_ptr<MessageStream> out_;
  SplicedText text_;
  const std::string call_id_;
  absl::AnyInvocable<void()> told_;
  Otherwise otherwise_;
  bool begun_ = false;
  BodyCountdown body_;
  core::Timer timer_;  // until it is asked for again, or the control plane is given up
  std::unique_ptr<EventPump<v1::InvokeEvent>> events_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::bridge
