// Implementation of NoteQueue.
#include "apps/stdio/note_queue.h"

#include <utility>

#include "core/telemetry/log.h"

namespace callboard::apps {

void NoteQueue::Add(std::string text, std::string method, bool of_session) {
  bytes_ += text.size();
  notes_.push_back({std::move(text), std::move(method), of_session});
  const FaceConfig& config = link_.config();
  while (notes_.size() > 1 &&
         (notes_.size() > config.notes_max || bytes_ > config.note_bytes_max)) {
    core::LogWarn("note_dropped",
                  {{"method", notes_.front().method}, {"reason", "too many wait for the server"}});
    exchange_.reset();
    Drop();
  }
  Send();
}

void NoteQueue::Send() {
  if (exchange_ != nullptr || notes_.empty() || !link_.connected()) return;
  exchange_ = link_.transport().Post(link_.session(), McpTransport::Kind::kOwn, {},
                                     notes_.front().text, this);
  timer_ = link_.loop().After(link_.config().note_timeout, [this] {
    exchange_.reset();
    link_.OnTrouble(Trouble::kLost, "a notification was not taken in time");
  });
}

void NoteQueue::Resume() {
  exchange_.reset();
  Send();
}

void NoteQueue::Renew() {
  exchange_.reset();
  std::deque<Note> kept;
  for (Note& note : std::exchange(notes_, {})) {
    if (!note.of_session) kept.push_back(std::move(note));
  }
  bytes_ = 0;
  for (const Note& note : kept) bytes_ += note.text.size();
  notes_ = std::move(kept);
  Send();
}

void NoteQueue::Clear() {
  exchange_.reset();
  timer_.Cancel();
  notes_.clear();
  bytes_ = 0;
}

void NoteQueue::Drop() {
  bytes_ -= notes_.front().text.size();
  notes_.pop_front();
}

void NoteQueue::OnEnd(AnswerEnd end) {
  const auto ended = std::move(exchange_);
  timer_.Cancel();
  if (const auto trouble = TroubleOf(end, link_.session())) {
    return link_.OnTrouble(*trouble, DescribeEnd(end));
  }
  const std::string method = std::exchange(notes_.front().method, {});
  Drop();
  if (end.http_status / 100 == 2) {
    on_taken_(method);
  } else {
    core::LogWarn("note_refused", {{"method", method}, {"reason", DescribeEnd(end)}});
  }
  Send();
}

}  // namespace callboard::apps
