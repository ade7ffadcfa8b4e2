// One request of a stdio client on its way through HTTP: posted, resumed, asked for again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "apps/stdio/face_link.h"
#include "core/runtime/event_loop.h"

namespace callboard::apps {

// Loop thread only; owned by the face. What may have reached the server is sent again only with the
// idempotency key it was sent with, under the same session, or if it may run twice. The text is
// kept until the request is answered, for that.
class ClientRequest final : private AnswerSink {
 public:
  struct Asked {
    std::string id;  // raw JSON
    std::string method;
    std::string text;  // the message
    std::string key;   // Idempotency-Key; empty: the method may run twice
    bool repeatable = false;
    bool own = false;                            // of the face itself: nobody is told the answer
    absl::Duration wish = absl::ZeroDuration();  // the caller's own time-out; zero: none
  };

  // Each may destroy the request.
  class Owner : public FaceLink {
   public:
    // `response` has the request's id.
    virtual void OnAnswer(ClientRequest& request, std::string response) = 0;
    // It will not be answered. `reason`: "hard_timer", "outcome_unknown", ...
    virtual void OnNoAnswer(ClientRequest& request, std::string_view reason,
                            std::string_view sentence) = 0;
  };

  ClientRequest(Owner& owner, Asked asked);

  // Posts it, or goes on where its stream was; nothing if it is under way or nobody is connected.
  void Send();
  // The same session has answered after a loss: what has no open stream is asked for again.
  void Resume();
  // There is another session. False: it may have run in the former one, and may not run twice.
  bool Renew();
  // The session is away: from now on its own time-out counts, if the caller gave one.
  void Await();

  const Asked& asked() const { return asked_; }
  bool may_have_run() const { return posted_ || lost_; }
  absl::Time begun() const { return begun_; }
  absl::Time heard() const { return heard_; }

 private:
  void OnHead(const AnswerHead& head) override;
  void OnEvent(AnswerEvent event) override;
  void OnEnd(AnswerEnd end) override;

  // Whether an error says that asking once more would get the real answer.
  bool ShouldAskAgain(std::string_view error);
  void AskAgain();
  void SendLater();
  void OnRefused(const AnswerEnd& end);
  void OnWhole(int http_status);
  void OnHardTimer();

  Owner& owner_;
  Asked asked_;
  const absl::Time begun_;
  absl::Time heard_;
  bool posted_ = false;     // the present POST may have been acted upon
  bool lost_ = false;       // an earlier one may have been
  bool listening_ = false;  // the exchange is a GET
  bool head_ = false;       // it is being answered
  int again_ = 0;           // since anything new was heard
  std::string position_;    // in its stream; empty: there is none
  std::optional<absl::Duration> retry_;
  core::Timer hard_timer_;
  core::Timer away_timer_;
  core::Timer again_timer_;
  std::unique_ptr<TransportExchange> exchange_;  // last: it calls into all of the above
};

}  // namespace callboard::apps
