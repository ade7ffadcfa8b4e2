// The stream of what a server says outside of answers: kept open, resumed after the last event.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/stdio/face_link.h"
#include "core/runtime/event_loop.h"

namespace callboard::apps {

// One GET of the session. A server that says it has none (405 and the like) is not asked again
// until Renew(). Loop thread only; owned by the face.
class ServerStream final : private AnswerSink {
 public:
  explicit ServerStream(FaceLink& link) : link_(link) {}

  // Wanted from now on.
  void Open();
  // The same session has answered after a loss.
  void Resume();
  // There is another session.
  void Renew();
  void Close();

 private:
  void Send();
  void OnHead(const AnswerHead& head) override;
  void OnEvent(AnswerEvent event) override;
  void OnEnd(AnswerEnd end) override;

  FaceLink& link_;
  bool wanted_ = false;
  bool parked_ = false;
  bool open_ = false;
  int again_ = 0;  // streams in a row that brought nothing
  std::string position_;
  std::optional<absl::Duration> retry_;
  core::Timer timer_;
  std::unique_ptr<TransportExchange> exchange_;
};

}  // namespace callboard::apps
