// The outcome of a call for somebody who did not make it, with its body: for those who came with
// the same idempotency key, and for those who ask by its id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/flows/call_flow.h"
#include "server/flows/ready_queue.h"

namespace callboard::server {

// Owned by its consumer. Names a call that runs and tells how long it may (Accepted without a
// stream, which is the first caller's), so that nobody need wait for it. Waits until the call has
// ended, however it was begun, and for a large body that is still coming no longer than
// upper_wait_margin. Of such a body one piece is held at a time. Unavailable: the control plane is
// gone, or the body is not here yet; Aborted: it was lost half-way.
class OutcomeSource final : public PulledSource<v1::InvokeEvent> {
 public:
  // `client_request_id`: of the request that wants it, if it is another one.
  OutcomeSource(CallFlow& flow, const CallId& call, std::optional<std::string> client_request_id);
  ~OutcomeSource() override;

  // The call is over.
  void OnEnded();
  void PlaneGone() { MarkReady(); }

 protected:
  void OnDemand() override {}
  std::optional<absl::StatusOr<v1::InvokeEvent>> Take() override;

 private:
  void AskOutcome();
  void ReadOn();
  void OnPiece(absl::StatusOr<std::string> piece);
  void Fail(absl::Status status);

  CallFlow& flow_;
  std::weak_ptr<char> alive_;
  const CallId call_;
  const std::optional<std::string> client_request_id_;
  std::optional<v1::CallOutcome> outcome_;
  std::optional<std::string> piece_;
  std::optional<absl::Status> end_;  // said when what is here has been given
  uint64_t size_ = 0;                // of the body
  uint64_t read_ = 0;                // of that, here or given
  core::Timer patience_;
  bool named_ = false;
  bool asked_ = false;
  bool asked_again_ = false;
  bool ready_ = false;  // the outcome may be given
  bool given_ = false;
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
