// One GET: a stream of a session, replayed after an id if the client names one, then live.
#pragma once

#include <optional>
#include <string>

#include "bridge/agent_status.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/body_countdown.h"
#include "bridge/event_pump.h"
#include "bridge/exchange.h"
#include "bridge/session_cache.h"
#include "bridge/sse_writer.h"
#include "bridge/status_events.h"

namespace callboard::bridge {

// Owned by Exchanges; loop thread. Lives until the client goes, the control plane ends the stream,
// is away for longer than BridgeConfig::reattach, or the stream's maximum life is over.
class ListenExchange final : public Exchange {
 public:
  // `after`: where to go on; nullopt listens to the session's own stream from now on.
  ListenExchange(BridgeCore& core, HttpAnswer answer, const SessionInfo& session,
                 std::optional<v1::EventId> after, StatusWish status_wish);

  // Starts to listen. The session's own stream opens at once, a call's with the first thing to
  // tell: of one that has nothing more the answer is 204.
  void Start();

  void Drain(bool last) override;
  // A session's own stream is open for as long as its client likes.
  bool ends() const override { return after_ && after_->stream() != 0; }

 private:
  // A silent stream is nothing unusual: it has no deadline but its maximum life.
  void OnHardTimer() override;
  void OnTick() override;

  void OnEvent(absl::StatusOr<v1::ListenEvent> event);
  void OpenEvents();
  void Prime(const v1::EventId& id);
  void Relay(const v1::EventId& id, const std::string& text);
  void OnStatus(v1::CallStatus status);
  void OnOutcome(const v1::CallOutcome& outcome);
  void OnChunk(v1::BodyChunk chunk);
  void OnBroken(const absl::Status& status);
  void AnswerUnknown();
  void End();
  // Once, of one that has `after`.
  void CountResume(Resume resume);
  void AskNext() { events_->Ask(); }

  BridgeCore& core_;
  std::string session_id_;
  core::McpRevision revision_;
  uint64_t term_;
  std::optional<v1::EventId> after_;
  bool may_prime_;
  bool resume_counted_ = false;
  std::string tail_;
  BodyCountdown body_;
  SseWriter sse_;
  StatusEvents states_;  // of the call whose stream it is
  bool first_status_ = true;
  StreamSlot slot_;
  std::optional<EventPump<v1::ListenEvent>> events_;
};

}  // namespace callboard::bridge
