// RequestExchange, answers with a large result that the control plane has kept.
#include <utility>

#include "bridge/endpoints/request_exchange.h"
#include "bridge/modern_result.h"
#include "core/mcp/jsonrpc.h"
#include "fmt/format.h"

namespace callboard::bridge {

void RequestExchange::AnswerLarge(LargeAnswer answer) {
  if (finished()) return;
  if (spec_.modern) {
    answer.text =
        ToModernResponse({spec_.modern->method, spec_.modern->named, spec_.modern->server_info},
                         answer.text)
            .text;
  }
  large_.emplace(Large{.text = SplicedText(answer.text, answer.token),
                       .call = std::move(answer.call),
                       .otherwise = std::move(answer.otherwise)});
  hard_wait_ = core_.config.hard_wait;
  FetchLarge();
}

// Once for each place in the answer.
void RequestExchange::FetchLarge() {
  Heard();
  events_.emplace(core_.client.FetchOutcome(large_->call),
                  [this](absl::StatusOr<v1::InvokeEvent> event) { OnLarge(std::move(event)); });
  AskNext();
}

void RequestExchange::OnLarge(absl::StatusOr<v1::InvokeEvent> event) {
  if (finished()) return;
  if (!event.ok()) {
    if (large_->begun) return Break();
    auto otherwise = std::move(large_->otherwise);
    return otherwise(event.status());
  }
  Heard();
  if (event->has_chunk()) return OnLargeChunk(event->chunk());
  if (!event->has_outcome()) return AskNext();
  const uint64_t size = event->outcome().body().size();
  if (size == 0 && !large_->begun) {
    auto otherwise = std::move(large_->otherwise);
    return otherwise(std::move(*event->mutable_outcome()));
  }
  if (!std::exchange(large_->begun, true)) {
    if (spec_.collect && size * large_->text.places() > core_.config.limits.batch_bytes_max) {
      return Answer(core::MakeErrorResponse(
          spec_.raw_id, core::kServerError,
          fmt::format("the result has {} bytes, too many for a batch; ask for it alone", size),
          R"({"reason":"result_too_large"})"));
    }
    BeginLarge(size);
  } else if (size == 0) {
    return Break();
  }
  body_.Start(size);
  AskNext();
}

void RequestExchange::BeginLarge(uint64_t size) {
  const std::optional<uint64_t> bytes = large_->text.Size(size);
  std::string head = large_->text.TakeText();
  if (spec_.collect) {
    collected_ = std::move(head);
  } else if (out_.open() || answer_.accepts_only_events()) {
    if (!out_.open()) sse_.Start(StatusHeaders(ended_state_));
    out_.BeginEvent(outcome_id_, head);
  } else {
    answer_.StartJson(bytes, StatusHeaders(ended_state_));
    answer_.responder().Write(std::move(head), nullptr);
  }
}

void RequestExchange::OnLargeChunk(const v1::BodyChunk& chunk) {
  if (!body_.Take(chunk)) return Break();
  const bool last = !body_.running();
  std::string text = large_->text.Splice(chunk.bytes(), last);
  if (last && !large_->text.at_place()) {
    tail_ = large_->text.TakeText();
    if (spec_.collect) return Answer(std::move(collected_.append(text).append(tail_)));
    TellPiece(std::move(text), nullptr);
    return FinishBody();
  }
  if (last) text.append(large_->text.TakeText());
  TellPiece(std::move(text), Guard([this, last] { last ? FetchLarge() : AskNext(); }));
}

void RequestExchange::TellPiece(std::string text, absl::AnyInvocable<void()> next) {
  if (spec_.collect) {
    collected_.append(text);
    return next();
  }
  if (out_.open()) return out_.Piece(std::move(text), std::move(next));
  answer_.responder().Write(std::move(text), std::move(next));
}

}  // namespace callboard::bridge
