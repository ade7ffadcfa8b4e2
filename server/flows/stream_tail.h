// Reads one stream from a number on, then live, and the body of the outcome that ends it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "callboard/v1/control.pb.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/planted_bug.h"
#include "server/flows/call_flow.h"
#include "server/flows/durable_log.h"

namespace callboard::server {

// The common part of the sources of Invoke and Listen; a member of one. Registers its owner as the
// stream's reader, so that back-pressure counts what this reader has consumed. What has left memory
// is read from the store, a few events at a time. Loop thread.
class StreamTail {
 public:
  explicit StreamTail(CallFlow& flow)
      : flow_(flow), term_(flow.plane().term), alive_(flow.lifetime().Watch()) {}
  ~StreamTail() { Detach(); }

  // The former reader has been ended already.
  void Attach(std::shared_ptr<Stream> stream, StreamPosition after, StreamReader* owner) {
    stream_ = std::move(stream);
    if (!stream_->session_id.empty()) stored_ = DurableLog::PlaceOf(*stream_);
    stream_->reader = owner;
    cursor_ = consumed_ = after;
    if (core::Planted(core::PlantedBug::kSkippedEvent) && after < stream_->last(term_)) {
      ++cursor_.n;
    }
  }
  // The stream goes on without us.
  void Detach() {
    if (stream_ == nullptr) return;
    const auto stream = LetGo();
    stream->reader = nullptr;
    if (alive()) flow_.OnReaderGone(*stream);
  }
  // Somebody else has taken our place already.
  void Release() {
    if (stream_ != nullptr) LetGo();
  }

  bool attached() const { return stream_ != nullptr; }
  bool alive() const { return !alive_.expired(); }
  StreamPosition consumed() const { return consumed_; }
  // The store has the stream's beginning: readers may be told of it.
  bool announced() const { return stream_->readable != Stream::kUnannounced; }
  // Outcome and body have been handed out, or the reader had them before.
  bool done() const {
    return stream_ != nullptr && stream_->finished && !in_body_ && cursor_ >= stream_->last(term_);
  }
  bool body_lost() const { return body_lost_; }
  Stream* stream() { return stream_.get(); }

  // What was handed out last is consumed.
  void OnDemand() {
    if (stream_ == nullptr || !alive()) return;
    const bool progressed = consumed_ != cursor_ || piece_bytes_ != 0;
    consumed_ = cursor_;
    if (stream_->session_id.empty()) stream_->log.Acknowledge(consumed_.n);
    if (!progressed || stream_->call_id.empty()) return;
    if (const auto call = CallId::From(stream_->call_id)) {
      flow_.OnConsumed(*call, std::exchange(piece_bytes_, 0));
    }
  }

  // How many events are gone that should come next; they are then passed over. To be asked before
  // each Take: it also sends for what has left memory.
  uint64_t TakeGap() {
    if (stream_ == nullptr || !alive()) return 0;
    if (cursor_ < stream_->dropped_through) {
      const StreamPosition from = std::exchange(cursor_, stream_->dropped_through);
      fetched_.clear();
      return from.term == cursor_.term ? cursor_.n - from.n : stream_->dropped;
    }
    FetchMissing();  // may be there at once
    if (!fetched_.empty()) {
      const StreamPosition next = PositionOf(fetched_.front());
      const StreamPosition from = std::exchange(cursor_, {next.term, next.n - 1});
      return next.term == from.term ? cursor_.n - from.n : LostOfFormer(from) + cursor_.n;
    }
    // Memory has them no more, and the store has them not.
    if (!std::exchange(hole_, false) && stored_) return 0;
    if (cursor_.term < term_) {
      const StreamPosition from = std::exchange(cursor_, {term_, 0});
      return std::max<uint64_t>(LostOfFormer(from), 1);
    }
    const uint64_t floor = stream_->log.floor();
    return floor > cursor_.n ? floor - std::exchange(cursor_.n, floor) : 0;
  }
  // What comes next is being fetched, or found to be gone.
  bool behind() const { return fetching_ || hole_ || !fetched_.empty(); }

  template <class Event>
  std::optional<Event> Take() {
    if (stream_ == nullptr || !alive()) return std::nullopt;
    if (in_body_) return TakePiece<Event>();
    const StreamItem* item = Next();
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
    if (fetched_.empty()) {
      cursor_ = {term_, cursor_.n + 1};
    } else {
      cursor_ = PositionOf(fetched_.front());
      fetched_.pop_front();
    }
    return event;
  }

 private:
  static constexpr size_t kFetch = 32;

  // The next reader that names no event begins behind what this one was given.
  std::shared_ptr<Stream> LetGo() {
    stream_->read_to = std::max(stream_->read_to, cursor_);
    return std::move(stream_);
  }

  // Of the events after `from`, whose term is over, as far as is known.
  uint64_t LostOfFormer(StreamPosition from) const {
    const StreamPosition former = stream_->former_last;
    return former.term == from.term && former.n > from.n ? former.n - from.n : 0;
  }

  uint64_t readable() const {
    return static_cast<uint64_t>(std::max<int64_t>(0, stream_->readable));
  }
  bool in_memory() const { return cursor_.term == term_ && cursor_.n >= stream_->log.floor(); }

  // The item after the cursor if it is here and may be shown.
  const StreamItem* Next() const {
    if (!fetched_.empty()) return &fetched_.front();
    if (fetching_ || !in_memory() || cursor_.n >= readable()) return nullptr;
    return stream_->log.Find(cursor_.n + 1);
  }

  void FetchMissing() {
    if (behind() || !stored_) return;
    if (cursor_.term < term_ && cursor_ >= stream_->former_last) cursor_ = {term_, 0};
    const StreamPosition to{term_, std::min(readable(), stream_->log.floor())};
    if (!in_memory() && cursor_ < to) Fetch(to);
  }

  void Fetch(StreamPosition to) {
    fetching_ = true;
    flow_.durable().Read(*stored_, cursor_, to, kFetch,
                         lifetime_.Wrap([this](std::vector<StreamItem> items) {
                           fetching_ = false;
                           if (stream_ == nullptr) return;
                           hole_ = items.empty();
                           for (StreamItem& item : items) {
                             // What has been dropped meanwhile was told as a gap.
                             if (PositionOf(item) > cursor_) fetched_.push_back(std::move(item));
                           }
                           if (stream_->reader != nullptr) stream_->reader->Wake();
                         }));
  }

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
  const uint64_t term_;
  std::weak_ptr<char> alive_;
  std::shared_ptr<Stream> stream_;
  std::optional<DurableLog::Place> stored_;  // if it is: a dropped stream no longer knows
  StreamPosition cursor_;                    // handed out up to here
  StreamPosition consumed_;
  std::deque<StreamItem> fetched_;  // from the store, to be handed out next
  bool fetching_ = false;
  bool hole_ = false;         // what comes next is nowhere
  uint64_t piece_bytes_ = 0;  // of the piece handed out last
  bool in_body_ = false;
  bool body_lost_ = false;
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
