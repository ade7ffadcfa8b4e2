// Implementation of OutcomeSource.
#include "server/flows/outcome_source.h"

#include <utility>

#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

}  // namespace

OutcomeSource::OutcomeSource(CallFlow& flow, const CallId& call,
                             std::optional<std::string> client_request_id)
    : PulledSource(flow.plane().ready),
      flow_(flow),
      alive_(flow.lifetime().Watch()),
      call_(call),
      client_request_id_(std::move(client_request_id)) {
  const Execution* record = flow_.plane().executions.Find(call_);
  named_ = record == nullptr || record->over();
  flow_.Follow(call_, this);
}

OutcomeSource::~OutcomeSource() {
  if (!alive_.expired()) flow_.Unfollow(call_, this);
}

void OutcomeSource::OnEnded() {
  if (!std::exchange(asked_, true)) AskOutcome();
}

void OutcomeSource::AskOutcome() {
  flow_.OutcomeOf(call_, lifetime_.Wrap([this](v1::CallOutcome outcome) {
    if (client_request_id_) outcome.set_client_request_id(*client_request_id_);
    outcome_ = std::move(outcome);
    size_ = outcome_->body().size();
    if (size_ == 0) {
      ready_ = true;
      return MarkReady();
    }
    if (!flow_.bodies().coming(call_)) return ReadOn();
    const absl::Duration patience = flow_.plane().config.budgets.upper_wait_margin;
    patience_ = flow_.plane().loop.After(patience, [this] {
      if (alive_.expired()) return;
      Fail(core::MakeError(
          absl::StatusCode::kUnavailable,
          fmt::format("the call has ended, but its result of {} bytes is not here yet ({}); "
                      "ask again",
                      size_, flow_.bodies().WhyComing(call_))));
    });
    flow_.bodies().WhenOver(call_, lifetime_.Wrap([this] {
      if (!end_) ReadOn();
    }));
  }));
}

void OutcomeSource::ReadOn() {
  patience_.Cancel();
  flow_.bodies().Read(
      call_, read_, kPieceBytes,
      lifetime_.Wrap([this](absl::StatusOr<std::string> piece) { OnPiece(std::move(piece)); }));
}

void OutcomeSource::OnPiece(absl::StatusOr<std::string> piece) {
  if (!piece.ok()) {
    // What is known of it now is in place of the outcome.
    const bool gone = absl::IsNotFound(piece.status());
    if (gone && !ready_ && !std::exchange(asked_again_, true)) return AskOutcome();
    return Fail(ready_ ? core::MakeError(absl::StatusCode::kAborted, core::Message(piece.status()))
                       : piece.status());
  }
  ready_ = true;
  read_ += piece->size();
  piece_ = *std::move(piece);
  MarkReady();
}

void OutcomeSource::Fail(absl::Status status) {
  end_ = std::move(status);
  MarkReady();
}

std::optional<absl::StatusOr<v1::InvokeEvent>> OutcomeSource::Take() {
  v1::InvokeEvent event;
  if (!std::exchange(named_, true)) {
    event.mutable_accepted()->set_call_id(call_.str());
    if (!alive_.expired()) *event.mutable_accepted() = flow_.AcceptanceOf(call_);
    return event;
  }
  if (ready_ && !std::exchange(given_, true)) {
    *event.mutable_outcome() = *std::move(outcome_);
    if (size_ == 0) end_ = absl::OutOfRangeError("the call has ended");
    return event;
  }
  if (piece_) {
    const bool last = read_ == size_;
    event.mutable_chunk()->set_bytes(*std::exchange(piece_, std::nullopt));
    event.mutable_chunk()->set_last(last);
    if (last) {
      end_ = absl::OutOfRangeError("the call has ended");
    } else if (!alive_.expired()) {
      ReadOn();
    }
    return event;
  }
  if (end_) return *end_;
  if (alive_.expired()) return absl::UnavailableError("the control plane has ended");
  return std::nullopt;
}

}  // namespace callboard::server
