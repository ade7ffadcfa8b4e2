// A Listen that outlives its control plane's absence: asked for anew, after the last id that was
// given.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "bridge/control_plane_client.h"
#include "bridge/endpoints/body_countdown.h"
#include "core/runtime/backoff.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/event_source.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"

namespace callboard::bridge {

// The events of one stream without a gap and without a repetition, over any number of Listens. A
// Listen that is lost (Unavailable, or End{drain}) is repeated with backoff until `patience` is
// over, counted from the loss; the consumer only notices a pause. Passed on are: every other
// status, a loss before the first event of a stream that was not open yet, and one in the middle of
// a body, which cannot be continued. The control plane decides what it still has: an id it cannot
// serve is its NotFound or its Gap.
//
// Loop thread; owned by the consumer, who may destroy it in the callback. Keeps one event at most.
class LastingListen final : public core::EventSource<v1::ListenEvent> {
 public:
  // `open`: whoever reads has had events of this stream before, by another way.
  LastingListen(core::EventLoop& loop, core::Random& random, ControlPlaneClient& client,
                v1::ListenRequest request, absl::Duration patience, bool open);

  void Next(absl::AnyInvocable<void(absl::StatusOr<v1::ListenEvent>)> callback) override;

 private:
  void Listen();
  void Pull();
  void OnEvent(absl::StatusOr<v1::ListenEvent> event);
  void OnLost(const absl::Status& status);
  // Takes note of where the stream stands; false if the consumer knows this already.
  bool Note(const v1::ListenEvent& event);
  void Give(absl::StatusOr<v1::ListenEvent> event);

  core::EventLoop& loop_;
  ControlPlaneClient& client_;
  v1::ListenRequest request_;
  const absl::Duration patience_;
  bool open_;
  bool again_ = false;  // the present Listen is a repetition
  bool ended_ = false;
  BodyCountdown body_;
  absl::Time lost_at_ = absl::InfiniteFuture();
  core::Backoff backoff_;
  core::Timer retry_;
  std::unique_ptr<core::EventSource<v1::ListenEvent>> source_;
  // The lost one; not destroyed before its own callback has returned.
  std::unique_ptr<core::EventSource<v1::ListenEvent>> former_;
  absl::AnyInvocable<void(absl::StatusOr<v1::ListenEvent>)> callback_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::bridge
