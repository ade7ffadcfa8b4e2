// What a stdio client says without waiting for an answer: posted one after the other, in order.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "apps/stdio/face_link.h"
#include "core/runtime/event_loop.h"

namespace callboard::apps {

// Notifications, and answers to what the server has asked. One that was not taken is posted again;
// both sides know them by their ids, or they say the same again. Beyond the bounds the oldest go.
// Loop thread only; owned by the face.
class NoteQueue final : private AnswerSink {
 public:
  // `on_taken` hears the method of each notification the server has taken; empty for an answer.
  NoteQueue(FaceLink& link, absl::AnyInvocable<void(std::string_view method)> on_taken)
      : link_(link), on_taken_(std::move(on_taken)) {}

  // `of_session`: means nothing to another session.
  void Add(std::string text, std::string method, bool of_session);
  // Posts the next, if somebody is connected and none is under way.
  void Send();
  // The connection may be one that died.
  void Resume();
  // There is another session.
  void Renew();
  void Clear();
  bool empty() const { return notes_.empty(); }

 private:
  struct Note {
    std::string text;
    std::string method;
    bool of_session;
  };

  void OnHead(const AnswerHead&) override {}
  void OnEvent(AnswerEvent) override {}
  void OnEnd(AnswerEnd end) override;
  void Drop();

  FaceLink& link_;
  absl::AnyInvocable<void(std::string_view method)> on_taken_;
  std::deque<Note> notes_;
  size_t bytes_ = 0;
  core::Timer timer_;
  std::unique_ptr<TransportExchange> exchange_;  // of the first
};

}  // namespace callboard::apps
