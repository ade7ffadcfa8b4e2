// Implementation of LastingListen.
#include "bridge/lasting_listen.h"

#include <utility>

namespace callboard::bridge {
namespace {

constexpr absl::Duration kRetryFirst = absl::Milliseconds(100);
constexpr absl::Duration kRetryMax = absl::Seconds(5);

}  // namespace

LastingListen::LastingListen(core::EventLoop& loop, core::Random& random,
                             ControlPlaneClient& client, v1::ListenRequest request,
                             absl::Duration patience, bool open)
    : loop_(loop),
      client_(client),
      request_(std::move(request)),
      patience_(patience),
      open_(open),
      backoff_(kRetryFirst, kRetryMax, random) {
  if (open_) {
    again_ = true;
    lost_at_ = loop_.Now();
  }
  Listen();
}

void LastingListen::Listen() {
  former_ = nullptr;
  source_ = client_.Listen(request_);
}

void LastingListen::Next(absl::AnyInvocable<void(absl::StatusOr<v1::ListenEvent>)> callback) {
  callback_ = std::move(callback);
  if (!retry_.pending()) Pull();
}

void LastingListen::Pull() {
  source_->Next(
      lifetime_.Wrap([this](absl::StatusOr<v1::ListenEvent> event) { OnEvent(std::move(event)); }));
}

void LastingListen::OnEvent(absl::StatusOr<v1::ListenEvent> event) {
  const bool drained = event.ok() && event->end().reason() == "drain";
  const bool lost = drained || event.status().code() == absl::StatusCode::kUnavailable;
  if (lost && !ended_ && open_ && !body_.running()) {
    return OnLost(drained ? absl::UnavailableError("the control plane shuts down")
                          : event.status());
  }
  if (!event.ok()) return Give(std::move(event));
  open_ = true;
  lost_at_ = absl::InfiniteFuture();
  backoff_.Reset();
  if (!Note(*event)) return Pull();
  Give(std::move(event));
}

void LastingListen::OnLost(const absl::Status& status) {
  if (lost_at_ == absl::InfiniteFuture()) lost_at_ = loop_.Now();
  if (loop_.Now() - lost_at_ >= patience_) return Give(status);
  again_ = true;
  former_ = std::move(source_);
  retry_ = loop_.After(backoff_.Next(), [this] {
    Listen();
    if (callback_) Pull();
  });
}

bool LastingListen::Note(const v1::ListenEvent& event) {
  switch (event.event_case()) {
    case v1::ListenEvent::kReplaying:
      // Where a stream stands that was asked for "from now on".
      if (!request_.has_after()) *request_.mutable_after() = event.replaying().from();
      return !again_;
    case v1::ListenEvent::kLive:
      return !again_;
    case v1::ListenEvent::kStreamEvent:
      *request_.mutable_after() = event.stream_event().id();
      return true;
    case v1::ListenEvent::kAsk:
      *request_.mutable_after() = event.ask().id();
      return true;
    case v1::ListenEvent::kOutcome:
      *request_.mutable_after() = event.outcome().id();
      if (event.outcome().body().size() > 0) body_.Start(event.outcome().body().size());
      return true;
    case v1::ListenEvent::kChunk:
      // What does not fit is the consumer's to refuse.
      (void)body_.Take(event.chunk());
      return true;
    case v1::ListenEvent::kEnd:
      ended_ = true;
      return true;
    default:
      return true;
  }
}

void LastingListen::Give(absl::StatusOr<v1::ListenEvent> event) {
  auto callback = std::exchange(callback_, nullptr);
  callback(std::move(event));
}

}  // namespace callboard::bridge
