// Reads one stream from a number on, then live, and the body of the outcome that ends it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "callboard/v1/control.pb.h"
#include "core/runtime/planted_bug.h"
#include "server/flows/call_flow.h"

namespace callboard::server {

// The common part of the sources of Invoke and Listen; a member of one. Registers its owner as the
// stream's reader, so that back-pressure counts what this reader has consumed. Loop thread.
class StreamTail {
 public:
  explicit StreamTail(CallFlow& flow) : flow_(flow), alive_(flow.lifetime().Watch()) {}
  ~StreamTail() { Detach(); }

  // The former reader has been ended already.
  void Attach(std::shared_ptr<Stream> stream, uint64_t after, StreamReader* owner) {
    stream_ = std::move(stream);
    stream_->reader = owner;
    cursor_ = consumed_ = after;
    if (core::Planted(core::PlantedBug::kSkippedEvent) && after < stream_->log.last()) ++cursor_;
  }
  // The stream goes on without us.
  void Detach() {
    if (stream_ == nullptr) return;
    auto stream = std::move(stream_);
    stream->reader = nullptr;
    if (alive()) flow_.OnReaderGone(*stream);
  }
  // Somebody else has taken our place already.
  void Release() { stream_ = nullptr; }

  bool attached() const { return stream_ != nullptr; }
  bool alive() const { return !alive_.expired(); }
  uint64_t consumed() const { return consumed_; }
  // Outcome and body have been handed out, or the reader had them before.
  bool done() const {
    return stream_ != nullptr && stream_->finished && !in_body_ && cursor_ >= stream_->log.last();
  }
  bool body_lost() const { return body_lost_; }
  Stream* stream() { return stream_.get(); }

  // What was handed out last is consumed.
  void OnDemand() {
    if (stream_ == nullptr || !alive()) return;
    const bool progressed = consumed_ != cursor_ || piece_bytes_ != 0;
    consumed_ = cursor_;
    if (stream_->session_id.empty()) stream_->log.Acknowledge(consumed_);
    if (!progressed || stream_->call_id.empty()) return;
    if (const auto call = CallId::From(stream_->call_id)) {
      flow_.OnConsumed(*call, std::exchange(piece_bytes_, 0));
    }
  }

  // How many events are gone that should come next; they are then passed over.
  uint64_t TakeGap() {
    if (stream_ == nullptr || cursor_ >= stream_->log.floor()) return 0;
    return stream_->log.floor() - std::exchange(cursor_, stream_->log.floor());
  }

  template <class Event>
  std::optional<Event> Take() {
    if (stream_ == nullptr || !alive()) return std::nullopt;
    if (in_body_) return TakePiece<Event>();
    const StreamItem* item = stream_->log.Find(cursor_ + 1);
    if (item == nullptr) return std::nullopt;
    Event event;
    if (const auto* outcome = std::get_if<v1::CallOutcome>(&item->event)) {
      if (outcome->body().has_size()) {
        const auto state = StateOfBody(true);
        if (state == CallFlow::BodyState::kComing) return std::nullopt;
        in_body_ = state == CallFlow::BodyState::kReady;
      }
      *event.mutable_outcome() = *outcome;
      if (outcome->body().has_size() && !in_body_) SayBodyLost(*event.mutable_outcome());
    } else if (const auto* ask = std::get_if<v1::AskEvent>(&item->event)) {
      *event.mutable_ask() = *ask;
    } else {
      *event.mutable_stream_event() = std::get<v1::StreamEvent>(item->event);
    }
    ++cursor_;
    return event;
  }

 private:
  CallFlow::BodyState StateOfBody(bool prepare) {
    const auto call = CallId::From(stream_->call_id);
    if (!call) return CallFlow::BodyState::kGone;
    return prepare ? flow_.PrepareBody(*call) : flow_.StateOfBody(*call);
  }

  static void SayBodyLost(v1::CallOutcome& outcome) {
    outcome.clear_body();
    outcome.set_class_(v1::LOST);
    outcome.set_reason(v1::BODY_LOST);
    outcome.set_message("the call has ended, but its result is no longer kept");
  }

  template <class Event>
  std::optional<Event> TakePiece() {
    const auto call = CallId::From(stream_->call_id);
    auto piece = call ? flow_.TakePiece(*call) : std::nullopt;
    if (!piece) {
      body_lost_ = StateOfBody(false) == CallFlow::BodyState::kGone;
      return std::nullopt;
    }
    Event event;
    piece_bytes_ = piece->bytes.size();
    event.mutable_chunk()->set_bytes(std::move(piece->bytes));
    event.mutable_chunk()->set_last(piece->last);
    in_body_ = !piece->last;
    return event;
  }

  CallFlow& flow_;
  std::weak_ptr<char> alive_;
  std::shared_ptr<Stream> stream_;
  uint64_t cursor_ = 0;  // handed out up to here
  uint64_t consumed_ = 0;
  uint64_t piece_bytes_ = 0;  // of the piece handed out last
  bool in_body_ = false;
  bool body_lost_ = false;
};

}  // namespace callboard::server
