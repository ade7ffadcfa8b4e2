// The events of x-agent-status on one stream: at most one a second, the newest state, the end at
// once.
#pragma once

#include "absl/time/time.h"
#include "bridge/agent_status.h"
#include "bridge/sse_writer.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/event_loop.h"

namespace callboard::bridge {

// Owned by the exchange that owns the stream; loop thread. Writes nothing for a client that did not
// wish for events, and nothing while the stream is not open. Keeps the newest state alone.
class StatusEvents final {
 public:
  StatusEvents(core::EventLoop& loop, SseWriter& sse, StatusWish wish)
      : loop_(loop), sse_(sse), wanted_(wish == StatusWish::kEvents) {}

  bool wanted() const { return wanted_; }
  // Of a state that was told or waits; without a phase before the first.
  const v1::CallStatus& newest() const { return newest_; }

  // A reader for whom bytes wait learns of it once it has taken them.
  void Take(v1::CallStatus status);
  // To be called every second or so: what waits is told if it may be by now.
  void TellIfDue();
  // What waits goes out now: the stream has just begun.
  void TellFirst();
  // The last: how the call ended.
  void End(const v1::CallOutcome& outcome);

 private:
  void Tell();

  core::EventLoop& loop_;
  SseWriter& sse_;
  const bool wanted_;
  v1::CallStatus newest_;
  bool waits_ = false;
  absl::Time next_at_ = absl::InfinitePast();
};

}  // namespace callboard::bridge
