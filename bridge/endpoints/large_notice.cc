// Implementation of LargeNotice.
#include "bridge/endpoints/large_notice.h"

#include <utility>

namespace callboard::bridge {

LargeNotice::LargeNotice(BridgeCore& core, std::unique_ptr<MessageStream> out,
                         std::string_view text, std::string_view token, std::string call_id)
    : core_(core), out_(std::move(out)), text_(text, token), call_id_(std::move(call_id)) {}

void LargeNotice::Begin(absl::AnyInvocable<void()> told, Otherwise otherwise) {
  told_ = std::move(told);
  otherwise_ = std::move(otherwise);
  Fetch();
}

void LargeNotice::Fetch() {
  v1::CallRef call;
  call.set_call_id(call_id_);
  events_ = std::make_unique<EventPump<v1::InvokeEvent>>(
      core_.client.FetchOutcome(std::move(call)),
      [this](absl::StatusOr<v1::InvokeEvent> event) { OnEvent(std::move(event)); });
  Ask();
}

void LargeNotice::Ask() {
  timer_ = core_.loop.After(core_.config.hard_wait, [this] {
    GiveUp(absl::DeadlineExceededError("the control plane is silent"));
  });
  events_->Ask();
}

void LargeNotice::OnEvent(absl::StatusOr<v1::InvokeEvent> event) {
  timer_.Cancel();
  if (!event.ok()) {
    if (begun_ || event.status().code() != absl::StatusCode::kUnavailable) {
      return GiveUp(event.status());
    }
    timer_ = core_.loop.After(core_.config.task_poll, [this] { Fetch(); });
    return;
  }
  if (event->has_chunk()) return OnChunk(event->chunk());
  if (event->has_outcome()) return OnOutcome(std::move(*event->mutable_outcome()));
  Ask();
}

void LargeNotice::OnOutcome(v1::CallOutcome outcome) {
  const uint64_t size = outcome.body().size();
  if (size == 0) return GiveUp(std::move(outcome));
  begun_ = true;
  out_->BeginEvent({}, text_.TakeText());
  body_.Start(size);
  Ask();
}

void LargeNotice::OnChunk(const v1::BodyChunk& chunk) {
  if (!body_.Take(chunk)) return GiveUp(absl::InternalError("the result is not as it was told"));
  const bool last = !body_.running();
  std::string text = text_.Splice(chunk.bytes(), last);
  out_->Piece(std::move(text), lifetime_.Wrap([this, last] {
    if (!last) return Ask();
    out_->FinishEvent(text_.TakeText());
    out_->End();
    auto told = std::move(told_);
    told();
  }));
}

void LargeNotice::GiveUp(absl::StatusOr<v1::CallOutcome> outcome) {
  if (begun_) out_->Cut();
  auto otherwise = std::move(otherwise_);
  otherwise(std::move(outcome));
}

}  // namespace callboard::bridge
