// The events of a call for a caller that came with the same idempotency key: which call it is, and
// its one outcome.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "server/flows/call_flow.h"

namespace callboard::server {

// Owned by the caller. Names the call that runs (Accepted without a stream, which is the first
// caller's), so that its caller need not wait for it. Waits until the call has ended, however it
// was begun; bodies by reference are the first caller's, so that this one is told where to ask.
// Unavailable when the control plane is gone.
class KeyedSource final : public PulledSource<v1::InvokeEvent> {
 public:
  KeyedSource(CallFlow& flow, const CallId& call, std::string client_request_id)
      : PulledSource(flow.plane().ready),
        flow_(flow),
        alive_(flow.lifetime().Watch()),
        call_(call),
        client_request_id_(std::move(client_request_id)) {
    const Execution* record = flow_.plane().executions.Find(call_);
    named_ = record == nullptr || record->over();
    flow_.Follow(call_, this);
  }
  ~KeyedSource() override {
    if (!alive_.expired()) flow_.Unfollow(call_, this);
  }

  // The call is over.
  void OnEnded() {
    if (std::exchange(asked_, true)) return;
    flow_.OutcomeOf(call_, lifetime_.Wrap([this](v1::CallOutcome outcome) {
      outcome.set_client_request_id(client_request_id_);
      outcome_ = std::move(outcome);
      MarkReady();
    }));
  }
  void PlaneGone() { MarkReady(); }

 protected:
  void OnDemand() override {}
  std::optional<absl::StatusOr<v1::InvokeEvent>> Take() override {
    if (given_) return absl::OutOfRangeError("the call has ended");
    if (!std::exchange(named_, true)) {
      v1::InvokeEvent event;
      event.mutable_accepted()->set_call_id(call_.str());
      return event;
    }
    if (outcome_) {
      given_ = true;
      v1::InvokeEvent event;
      *event.mutable_outcome() = *std::move(outcome_);
      return event;
    }
    if (alive_.expired()) return absl::UnavailableError("the control plane has ended");
    return std::nullopt;
  }

 private:
  CallFlow& flow_;
  std::weak_ptr<char> alive_;
  const CallId call_;
  const std::string client_request_id_;
  std::optional<v1::CallOutcome> outcome_;
  bool named_ = false;
  bool asked_ = false;
  bool given_ = false;
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
