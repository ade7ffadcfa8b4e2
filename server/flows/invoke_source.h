// The events of one call for the caller that made it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "server/flows/call_flow.h"
#include "server/flows/stream_tail.h"

namespace callboard::server {

// Owned by the caller. Before a stream is opened there is nothing but the outcome; from then on the
// events come from the stream's log. Ends with OutOfRange after the outcome and its chunks, with
// Aborted when a Listen took the stream over or the control plane has gone before there was a
// stream, with Unavailable when it has gone later: the stream can be listened to.
class InvokeSource final : public PulledSource<v1::InvokeEvent>, public StreamReader {
 public:
  InvokeSource(CallFlow& flow, const CallId& call, std::string session_id);
  ~InvokeSource() override;

  // ---- for CallFlow ----
  // The stream is open; the call's events are read from it. `accepted` says all but its id.
  void Accept(std::shared_ptr<Stream> stream, uint64_t term, v1::Accepted accepted);
  // There is none and will be none.
  void Accept(v1::Accepted accepted);
  // Without a stream.
  void SetOutcome(v1::CallOutcome outcome);
  void WakeBody() { MarkReady(); }
  void PlaneGone();

  // ---- StreamReader ----
  void Wake() override { MarkReady(); }
  void EndReading(const char* reason) override;
  StreamPosition consumed() const override { return tail_.consumed(); }
  bool wants_status() const override { return true; }
  void SetStatus(v1::CallStatus status) override;

 protected:
  void OnDemand() override;
  std::optional<absl::StatusOr<v1::InvokeEvent>> Take() override;

 private:
  std::optional<absl::StatusOr<v1::InvokeEvent>> TakeWithoutStream();
  void LetGo();
  absl::Status Gone() const;

  CallFlow& flow_;
  const CallId call_;
  const std::string session_id_;
  StreamTail tail_;
  std::optional<v1::Accepted> accepted_;
  std::optional<v1::CallStatus> status_;
  std::deque<v1::CallOutcome> outcomes_;
  bool outcome_given_ = false;
  bool in_body_ = false;
  uint64_t piece_bytes_ = 0;
  bool attached_ = true;  // to the call
  std::optional<absl::Status> end_;
};

// A call that was done without the seat: told once what it changed is durable, or the store fails.
class StoredCallSource final : public PulledSource<v1::InvokeEvent> {
 public:
  StoredCallSource(std::shared_ptr<ReadyQueue> queue, DurableLog& durable, v1::CallOutcome outcome);

 protected:
  void OnDemand() override {}
  std::optional<absl::StatusOr<v1::InvokeEvent>> Take() override;

 private:
  v1::CallOutcome outcome_;
  bool stored_ = false;
  bool given_ = false;
  core::Lifetime lifetime_;
};

// A call that was refused before it began.
class EndedCallSource final : public core::EventSource<v1::InvokeEvent> {
 public:
  explicit EndedCallSource(v1::CallOutcome outcome) : outcome_(std::move(outcome)) {}
  void Next(absl::AnyInvocable<void(absl::StatusOr<v1::InvokeEvent>)> callback) override {
    if (given_) return callback(absl::OutOfRangeError("the call has ended"));
    given_ = true;
    v1::InvokeEvent event;
    *event.mutable_outcome() = std::move(outcome_);
    callback(std::move(event));
  }

 private:
  v1::CallOutcome outcome_;
  bool given_ = false;
};

}  // namespace callboard::server
