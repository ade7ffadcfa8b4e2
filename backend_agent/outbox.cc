// Implementation of Outbox.
#include "backend_agent/outbox.h"

#include <algorithm>
#include <utility>

#include "backend_agent/call_end.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

constexpr size_t kChunkBytes = 64 * 1024;
// A piece smaller than this is not cut off just to fill a frame.
constexpr size_t kPieceMin = 4 * 1024;

void SetBody(const Payload& body, v1::Body* out) {
  if (body.size() <= kInlineBodyMax) {
    out->set_inline_(body.view().data(), body.size());
  } else {
    out->set_size(body.size());
  }
}

}  // namespace

void Outbox::Append(Event event) {
  waiting_bytes_ += event.body.size();
  events_.push_back(std::move(event));
}

void Outbox::EraseUnwritten(size_t index) {
  waiting_bytes_ -= events_[index].body.size();
  events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Outbox::AddQueued(uint32_t ahead) {
  if (ended_) return;
  for (size_t i = events_.size(); i > cursor_ && events_[i - 1].n == 0; --i) {
    if (events_[i - 1].kind == Kind::kQueued) {
      events_[i - 1].value = ahead;
      return;
    }
  }
  Append({.kind = Kind::kQueued, .value = ahead});
}

void Outbox::AddStarted(uint64_t incarnation) {
  // A place in the queue that nobody has been told is of no interest any more.
  for (size_t i = events_.size(); i > cursor_ && events_[i - 1].n == 0; --i) {
    if (events_[i - 1].kind == Kind::kQueued) {
      EraseUnwritten(i - 1);
      break;
    }
  }
  Append({.kind = Kind::kStarted, .value = incarnation});
}

void Outbox::AddProgress(Payload params) {
  if (ended_) return;
  if (OverWindow()) {
    for (size_t i = events_.size(); i > cursor_ && events_[i - 1].n == 0; --i) {
      if (events_[i - 1].kind != Kind::kProgress) continue;
      EraseUnwritten(i - 1);
      ++coalesced_;
      break;
    }
  }
  Append({.kind = Kind::kProgress, .body = std::move(params)});
}

void Outbox::AddLog(Payload params) { AddBounded({.kind = Kind::kLog, .body = std::move(params)}); }

void Outbox::AddNotification(std::string method, Payload params) {
  AddBounded({.kind = Kind::kNotification, .body = std::move(params), .method = std::move(method)});
}

void Outbox::AddAsk(uint64_t ask, std::string method, Payload params) {
  if (ended_) return;
  Append(
      {.kind = Kind::kAsk, .value = ask, .body = std::move(params), .method = std::move(method)});
}

void Outbox::CancelAsk(uint64_t ask, Payload params) {
  if (ended_) return;
  for (size_t i = cursor_; i < events_.size(); ++i) {
    const Event& event = events_[i];
    if (event.kind == Kind::kAsk && event.n == 0 && event.value == ask) return EraseUnwritten(i);
  }
  const auto written = std::find_if(asks_.begin(), asks_.end(),
                                    [ask](const auto& entry) { return entry.second == ask; });
  if (written == asks_.end()) return;
  Append({.kind = Kind::kAskCancelled, .value = written->first, .body = std::move(params)});
  asks_.erase(written);
}

std::optional<uint64_t> Outbox::TakeAsk(uint64_t n) {
  auto node = asks_.extract(n);
  if (node.empty()) return std::nullopt;
  return node.mapped();
}

void Outbox::AddBounded(Event event) {
  if (ended_) return;
  if (OverWindow() && logs_waiting_ >= logs_max_) {
    size_t marker = events_.size();
    for (size_t i = cursor_; i < events_.size(); ++i) {
      Event& oldest = events_[i];
      if (oldest.n != 0) continue;
      if (oldest.kind == Kind::kLogsLost) marker = i;
      if (oldest.kind != Kind::kLog && oldest.kind != Kind::kNotification) continue;
      --logs_waiting_;
      if (marker < events_.size()) {
        ++events_[marker].value;
        EraseUnwritten(i);
      } else {
        waiting_bytes_ -= oldest.body.size();
        oldest = {.kind = Kind::kLogsLost, .value = 1};
      }
      break;
    }
  }
  ++logs_waiting_;
  Append(std::move(event));
}

void Outbox::AddOutcome(v1::Outcome outcome, Payload body) {
  ended_ = true;
  outcome.clear_body();
  Append({.kind = Kind::kOutcome,
          .body = std::move(body),
          .outcome = std::make_unique<v1::Outcome>(std::move(outcome))});
}

const Payload& Outbox::body() const {
  static const Payload kNone;
  return ended_ && !events_.empty() ? events_.back().body : kNone;
}

bool Outbox::LoseBody() {
  if ((attached_ && !drained()) || events_.empty()) return false;
  Event& last = events_.back();
  if (last.kind != Kind::kOutcome || last.body.empty()) return false;
  if (last.n == 0) waiting_bytes_ -= last.body.size();
  last.body = Payload();
  MarkBodyLost(*last.outcome);
  last.outcome->mutable_facts()->clear_size();
  return true;
}

void Outbox::Attach(uint64_t have_n, uint64_t have_offset, uint32_t window) {
  if (!std::exchange(attached_, true)) window_ = window;
  for (Event& event : events_) {
    event.sent_to = 0;
    event.in_flight = 0;
  }
  in_flight_ = 0;
  // Higher than anything written: a former run of the agent wrote it.
  last_n_ = std::max(last_n_, have_n);
  cursor_ = 0;
  while (cursor_ < events_.size() && events_[cursor_].n != 0 && events_[cursor_].n <= have_n) {
    ++cursor_;
  }
  header_written_ = false;
  offset_ = 0;
  if (cursor_ == events_.size()) return;
  const Event& next = events_[cursor_];
  const uint64_t next_n = next.n != 0 ? next.n : last_n_ + 1;
  if (next_n == have_n + 1) offset_ = std::min<uint64_t>(have_offset, next.body.size());
}

void Outbox::Acknowledge(uint64_t n, uint64_t offset, uint32_t window) {
  if (window != 0) window_ = window;
  const bool cursor_was_acknowledged =
      cursor_ < events_.size() && events_[cursor_].n != 0 && events_[cursor_].n <= n;
  size_t acknowledged = 0;
  while (acknowledged < events_.size() && events_[acknowledged].n != 0 &&
         events_[acknowledged].n <= n) {
    Event& event = events_[acknowledged++];
    in_flight_ -= std::exchange(event.in_flight, 0);
  }
  if (acknowledged < events_.size() && events_[acknowledged].n == n + 1) {
    Event& event = events_[acknowledged];
    const uint64_t left = event.sent_to > offset ? event.sent_to - offset : 0;
    if (left < event.in_flight) in_flight_ -= std::exchange(event.in_flight, left) - left;
  }
  if (cursor_was_acknowledged) {
    cursor_ = acknowledged;
    offset_ = 0;
    header_written_ = false;
  }
  while (acknowledged > 0 && events_.front().kind != Kind::kOutcome) {
    events_.pop_front();
    --acknowledged;
    --cursor_;
  }
}

void Outbox::Advance() {
  ++cursor_;
  offset_ = 0;
  header_written_ = false;
}

void Outbox::CountSent(Event& event, uint64_t bytes) {
  event.sent_to = offset_ + bytes;
  event.in_flight += bytes;
  in_flight_ += bytes;
}

bool Outbox::Fill(FrameBuilder& frame, const std::string& call_id, uint32_t attempt, size_t turn) {
  size_t used = 0;
  while (CanSend() && used < turn) {
    Event& event = events_[cursor_];
    const size_t size = event.body.size();
    const bool whole = size <= kInlineBodyMax;
    if (!header_written_) {
      size_t need = kItemOverhead + (whole ? size : 0) + event.method.size();
      if (event.outcome != nullptr) need += event.outcome->ByteSizeLong();
      if (frame.room() < need) return false;
      v1::CallEvent* item = frame.Add()->mutable_call_event();
      item->set_call_id(call_id);
      item->set_attempt(attempt);
      FillHeader(event, *item);
      used += need;
      if (whole) {
        offset_ = 0;
        CountSent(event, size);
        Advance();
      } else if (offset_ == size) {
        Advance();
      } else {
        header_written_ = true;
      }
      continue;
    }
    const size_t left = size - static_cast<size_t>(offset_);
    const size_t room = frame.room();
    const size_t piece =
        std::min({left, kChunkBytes, room > kItemOverhead ? room - kItemOverhead : 0});
    if (piece < std::min(left, kPieceMin)) return false;
    v1::Chunk* chunk = frame.Add()->mutable_chunk();
    chunk->set_call_id(call_id);
    chunk->set_attempt(attempt);
    chunk->set_n(event.n);
    chunk->set_offset(offset_);
    chunk->set_bytes(event.body.view().data() + offset_, piece);
    CountSent(event, piece);
    used += piece;
    offset_ += piece;
    if (offset_ == size) Advance();
  }
  return true;
}

void Outbox::FillHeader(Event& event, v1::CallEvent& item) {
  if (event.n == 0) {
    event.n = ++last_n_;
    waiting_bytes_ -= event.body.size();
    if (event.kind == Kind::kLog || event.kind == Kind::kNotification) --logs_waiting_;
    if (event.kind == Kind::kAsk) asks_[event.n] = event.value;
    if (event.kind == Kind::kLogsLost) {
      event.body = Payload(fmt::format(
          R"({{"level":"warning","logger":"callboard","data":"{} log messages were left out because the client reads too slowly"}})",
          event.value));
      event.kind = Kind::kLog;
    }
  }
  item.set_n(event.n);
  switch (event.kind) {
    case Kind::kQueued:
      item.mutable_queued()->set_ahead(static_cast<uint32_t>(event.value));
      return;
    case Kind::kStarted:
      item.mutable_started()->set_incarnation(event.value);
      return;
    case Kind::kProgress:
      SetBody(event.body, item.mutable_progress());
      return;
    case Kind::kLog:
    case Kind::kLogsLost:
      SetBody(event.body, item.mutable_log());
      return;
    case Kind::kNotification:
      item.mutable_notification()->set_method(event.method);
      SetBody(event.body, item.mutable_notification()->mutable_params());
      return;
    case Kind::kAsk:
      item.mutable_ask()->set_method(event.method);
      SetBody(event.body, item.mutable_ask()->mutable_params());
      return;
    case Kind::kAskCancelled:
      item.mutable_notification()->set_method("notifications/cancelled");
      item.mutable_notification()->set_ask_n(event.value);
      SetBody(event.body, item.mutable_notification()->mutable_params());
      return;
    case Kind::kOutcome:
      *item.mutable_outcome() = *event.outcome;
      SetBody(event.body, item.mutable_outcome()->mutable_body());
      return;
  }
}

}  // namespace callboard::agent
