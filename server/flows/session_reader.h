// Listen: one stream of a session, replayed after an id and then live.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/flows/call_flow.h"
#include "server/flows/stream_tail.h"

namespace callboard::server {

// Owned by the listener. Replaying and Gap come first, Live between what was kept and what is new,
// End last; then OutOfRange. Unavailable when the control plane is gone. Counts as a reader of its
// session while it lives.
class SessionReader final : public PulledSource<v1::ListenEvent>, public StreamReader {
 public:
  // `after`: the last event the listener has.
  SessionReader(CallFlow& flow, std::shared_ptr<Stream> stream, StreamPosition after,
                bool wants_status);
  ~SessionReader() override;

  void Wake() override { MarkReady(); }
  void EndReading(const char* reason) override;
  StreamPosition consumed() const override { return tail_.consumed(); }
  bool wants_status() const override { return wants_status_; }
  void SetStatus(v1::CallStatus status) override;

 protected:
  void OnDemand() override { tail_.OnDemand(); }
  std::optional<absl::StatusOr<v1::ListenEvent>> Take() override;

 private:
  void LetGo();

  CallFlow& flow_;
  const std::string session_id_;
  const bool wants_status_;
  StreamTail tail_;
  std::optional<v1::Replaying> replaying_;
  std::optional<v1::CallStatus> status_;  // the newest, behind all events
  bool live_ = false;
  bool counted_ = true;
  const char* end_reason_ = nullptr;
  bool ended_ = false;
};

// The source for a request: NotFound for an unknown session or stream, InvalidArgument for an id of
// another stream. Ends the stream's former reader.
std::unique_ptr<core::EventSource<v1::ListenEvent>> OpenReader(CallFlow& flow,
                                                               const v1::ListenRequest& request);

}  // namespace callboard::server
