// Whether a backend still knows an MCP session, where an answer of it leaves that open.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "net/http_client.h"

namespace callboard::agent {

// One ping in that session. A server that refuses it as it has refused the other message knows the
// session no more; one that answers in any other way, or not within `timeout`, counts as one that
// does. Destroying it drops the request; the callback may do so. Loop thread only; keeps 513 bytes
// of the answer at most.
class SessionCheck final : public net::HttpResponseSink {
 public:
  // Whether an answer may say that the session is not known: what some servers have in place of
  // 404. A tool's own error may look the same.
  static bool MaySaySo(int status, std::string_view text);

  // `headers` name the session and its revision. `on_end` runs once, posted.
  SessionCheck(core::EventLoop& loop, net::HttpClient& client, std::string target,
               net::HeaderList headers, absl::Duration timeout,
               absl::AnyInvocable<void(bool forgotten)> on_end);

  void OnHead(net::HttpResponseHead head) override;
  void OnBody(std::string_view piece) override;
  void OnEnd(absl::Status status, bool reached) override;

 private:
  void Report(bool forgotten);

  core::EventLoop& loop_;
  absl::AnyInvocable<void(bool)> on_end_;
  int status_ = 0;
  std::string text_;
  bool reported_ = false;
  std::unique_ptr<net::HttpExchange> http_;
  core::Timer timer_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
