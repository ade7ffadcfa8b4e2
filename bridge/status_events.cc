// Implementation of StatusEvents.
#include "bridge/status_events.h"

#include <utility>

namespace callboard::bridge {
namespace {

constexpr absl::Duration kEvery = absl::Seconds(1);

}  // namespace

void StatusEvents::Take(v1::CallStatus status) {
  newest_ = std::move(status);
  waits_ = wanted_;
  TellIfDue();
}

void StatusEvents::TellIfDue() {
  if (waits_ && sse_.open() && sse_.idle() && loop_.Now() >= next_at_) Tell();
}

void StatusEvents::TellFirst() {
  if (waits_ && sse_.open()) Tell();
}

void StatusEvents::Tell() {
  waits_ = false;
  next_at_ = loop_.Now() + kEvery;
  sse_.Aside(kAgentStatus, RenderAgentStatus(newest_));
}

void StatusEvents::End(const v1::CallOutcome& outcome) {
  waits_ = false;
  if (wanted_ && sse_.open()) sse_.Aside(kAgentStatus, RenderAgentStatus(newest_, outcome));
}

}  // namespace callboard::bridge
