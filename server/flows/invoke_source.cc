// Implementation of InvokeSource.
#include "server/flows/invoke_source.h"

#include <string_view>
#include <utility>

namespace callboard::server {

InvokeSource::InvokeSource(CallFlow& flow, const CallId& call, std::string session_id)
    : PulledSource(flow.plane().ready),
      flow_(flow),
      call_(call),
      session_id_(std::move(session_id)),
      tail_(flow) {
  flow_.AddReader(session_id_);
}

InvokeSource::~InvokeSource() { LetGo(); }

void InvokeSource::LetGo() {
  if (!attached_) return;
  attached_ = false;
  if (!tail_.alive()) return;
  tail_.Detach();
  flow_.RemoveReader(session_id_);
  flow_.OnSourceGone(call_, this, true);
}

void InvokeSource::Accept(std::shared_ptr<Stream> stream, uint64_t term, v1::Accepted accepted) {
  if (!stream->session_id.empty()) {
    accepted.mutable_id()->set_stream(stream->number);
    accepted.mutable_id()->set_term(term);
  }
  accepted_ = std::move(accepted);
  tail_.Attach(std::move(stream), {term, 0}, this);
  MarkReady();
}

void InvokeSource::Accept(v1::Accepted accepted) {
  accepted_ = std::move(accepted);
  MarkReady();
}

void InvokeSource::SetStatus(v1::CallStatus status) {
  status_ = std::move(status);
  MarkReady();
}

void InvokeSource::SetOutcome(v1::CallOutcome outcome) {
  outcomes_.push_back(std::move(outcome));
  MarkReady();
}

absl::Status InvokeSource::Gone() const {
  if (tail_.attached() && !session_id_.empty()) {
    return absl::UnavailableError("the control plane has ended; listen to the stream");
  }
  return absl::AbortedError("the control plane has ended; whether the call has run is not known");
}

void InvokeSource::PlaneGone() {
  attached_ = false;
  end_ = Gone();
  MarkReady();
}

void InvokeSource::EndReading(const char* reason) {
  if (std::string_view(reason) != "taken_over") return;  // the outcome ends this source
  tail_.Release();
  end_ = absl::AbortedError("taken over by a Listen on the call's stream");
  if (attached_) {
    attached_ = false;
    flow_.RemoveReader(session_id_);
    flow_.OnSourceGone(call_, this, false);
  }
  MarkReady();
}

void InvokeSource::OnDemand() {
  if (!attached_) return;
  tail_.OnDemand();
  if (!tail_.attached() && outcome_given_) {
    flow_.OnConsumed(call_, std::exchange(piece_bytes_, 0));
  }
}

std::optional<absl::StatusOr<v1::InvokeEvent>> InvokeSource::Take() {
  if (end_) return *end_;
  if (!tail_.alive()) return Gone();
  v1::InvokeEvent event;
  if (accepted_) {
    // First the state, so that it can be told with the headers of the stream.
    if (status_) {
      *event.mutable_status() = *std::exchange(status_, std::nullopt);
      return event;
    }
    if (tail_.attached() && !tail_.announced()) return std::nullopt;
    *event.mutable_accepted() = *std::exchange(accepted_, std::nullopt);
    return event;
  }
  if (!tail_.attached()) return TakeWithoutStream();
  if (tail_.TakeGap() > 0 && !session_id_.empty()) {
    // Only Listen can tell a gap: whoever reads comes back by it. The call goes on.
    end_ =
        absl::UnavailableError("events were dropped before they were read; listen to the stream");
    LetGo();
    return *end_;
  }
  if (auto next = tail_.Take<v1::InvokeEvent>()) {
    // Nothing but its body follows an outcome.
    if (next->has_outcome()) status_.reset();
    return *std::move(next);
  }
  if (tail_.body_lost()) {
    end_ = absl::AbortedError("the result's body is lost: the agent no longer has it");
    LetGo();
    return *end_;
  }
  if (tail_.done()) {
    end_ = absl::OutOfRangeError("the call has ended");
    LetGo();
    return *end_;
  }
  if (status_) {
    *event.mutable_status() = *std::exchange(status_, std::nullopt);
    return event;
  }
  return std::nullopt;
}

std::optional<absl::StatusOr<v1::InvokeEvent>> InvokeSource::TakeWithoutStream() {
  v1::InvokeEvent event;
  if (in_body_) {
    if (auto piece = flow_.TakePiece(call_)) {
      piece_bytes_ = piece->bytes.size();
      in_body_ = !piece->last;
      event.mutable_chunk()->set_bytes(std::move(piece->bytes));
      event.mutable_chunk()->set_last(piece->last);
      return event;
    }
    if (flow_.StateOfBody(call_) != CallFlow::BodyState::kGone) return std::nullopt;
    end_ = absl::AbortedError("the result's body is lost: the agent no longer has it");
    LetGo();
    return *end_;
  }
  if (!outcomes_.empty()) {
    *event.mutable_outcome() = std::move(outcomes_.front());
    outcomes_.pop_front();
    outcome_given_ = true;
    in_body_ = event.outcome().body().has_size();
    return event;
  }
  if (!outcome_given_) return std::nullopt;
  end_ = absl::OutOfRangeError("the call has ended");
  LetGo();
  return *end_;
}

StoredCallSource::StoredCallSource(std::shared_ptr<ReadyQueue> queue, DurableLog& durable,
                                   v1::CallOutcome outcome)
    : PulledSource(std::move(queue)), outcome_(std::move(outcome)) {
  durable.WhenDurable(lifetime_.Wrap([this](const absl::Status&) {
    stored_ = true;
    MarkReady();
  }));
}

std::optional<absl::StatusOr<v1::InvokeEvent>> StoredCallSource::Take() {
  if (!stored_) return std::nullopt;
  if (std::exchange(given_, true)) return absl::OutOfRangeError("the call has ended");
  v1::InvokeEvent event;
  *event.mutable_outcome() = std::move(outcome_);
  return event;
}

}  // namespace callboard::server
