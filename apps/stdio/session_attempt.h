// One attempt at a session: asks whether the server knows it, or opens another.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "apps/stdio/face_link.h"

namespace callboard::apps {

// Loop thread only; owned by the face. Destroying it drops the attempt.
class SessionAttempt final : private AnswerSink {
 public:
  struct Result {
    Attempt attempt = Attempt::kFailed;
    std::string detail;      // of what failed
    SessionHeaders session;  // of an initialize that succeeded
    std::string response;    // the server's response to it, error or result, if there was one
    bool refused = false;    // the server was there and refused it for good
  };
  // May destroy the attempt.
  using Done = absl::AnyInvocable<void(Result)>;

  SessionAttempt(FaceLink& link, Done done) : link_(link), done_(std::move(done)) {}

  void Probe();
  // `text`: the request initialize with `raw_id`. `confirm`: says notifications/initialized, too.
  void Initialize(std::string text, std::string raw_id, bool confirm);

 private:
  enum class Step { kProbe, kInitialize, kConfirm };

  void Post(Step step, const SessionHeaders& session, std::string text);
  void OnHead(const AnswerHead& head) override;
  void OnEvent(AnswerEvent event) override;
  void OnEnd(AnswerEnd end) override;
  void Judge(const AnswerEnd& end);

  FaceLink& link_;
  Done done_;
  Step step_ = Step::kProbe;
  std::string raw_id_;
  bool confirm_ = false;
  std::string answer_;  // the response to the present step
  Result result_;
  std::unique_ptr<TransportExchange> exchange_;
};

}  // namespace callboard::apps
