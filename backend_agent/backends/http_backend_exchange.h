// One message to an HttpBackend: its POST, redirects, and the resuming of a reply stream that was
// cut.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backend_agent/backends/http_backend.h"
#include "backend_agent/backends/session_check.h"
#include "backend_agent/backends/sse_message_reader.h"
#include "backend_agent/spool.h"

namespace callboard::agent {

// Owned by who sent the message; the backend keeps a pointer until the exchange is over. Everything
// that is heard goes through the backend's posts, so nobody is called from inside.
class HttpBackend::Exchange final : public BackendExchange, public net::HttpResponseSink {
 public:
  Exchange(HttpBackend* backend, uint64_t id, std::string text, bool expects_reply,
           core::TraceContext trace, net::HeaderList modern_headers = {});
  ~Exchange() override;

  void Post();
  // The backend has gone or is destroyed: nothing more is heard of this exchange.
  void Drop();
  bool sending() const { return sending_; }

  void OnSending() override { sending_ = true; }
  void OnHead(net::HttpResponseHead head) override;
  void OnBody(std::string_view piece) override;
  void OnEnd(absl::Status status, bool reached) override;

 private:
  bool modern() const { return !modern_headers_.empty(); }
  // What a complete reply that is no event stream means; hands on its message.
  absl::Status Judge();
  absl::Status JudgeRedirect();
  absl::Status SessionForgotten();
  // The reply may be the refusal of a session that is not known, or the error of a tool that has
  // run: it is judged when the backend has been asked which.
  void CheckSession();
  void TakeMessage(Payload message);
  bool CanResume() const;
  void ResumeLater(absl::Status status);
  void Resume();
  void End(absl::Status status, bool reached);
  // Enough is known; the rest of the answer is not read.
  void EndEarly(absl::Status status);

  HttpBackend* backend_;
  const uint64_t id_;
  const bool expects_reply_;
  std::string text_;  // until an answer begins
  const core::TraceContext trace_;
  const net::HeaderList modern_headers_;  // of a request that belongs to no session; else empty
  net::HeaderList session_headers_;       // as they were sent
  std::string session_;
  bool had_revision_ = false;
  bool sending_ = false;
  bool over_ = false;
  int status_ = 0;
  std::string location_;
  int redirects_ = 0;
  PayloadBuilder body_;
  Payload reply_;  // that is no event stream, when it is complete
  std::unique_ptr<SessionCheck> check_;
  std::optional<SseMessageReader> sse_;
  bool answered_ = false;  // known for streams with event ids only
  bool resuming_ = false;
  int resumes_ = 0;  // in a row without a new event
  std::string last_id_;
  std::optional<absl::Duration> server_retry_;
  absl::Status lost_;  // how the stream was lost; OK: it ended in order
  core::Timer resume_timer_;
  std::unique_ptr<net::HttpExchange> http_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
