// Keeps one stream of server-sent events open: a GET that is begun again whenever it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backend_agent/backends/sse_message_reader.h"
#include "backend_agent/payload.h"
#include "backend_agent/spool.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"
#include "net/http_client.h"

namespace callboard::agent {

struct EventStreamConfig {
  uint64_t message_bytes_max = 256ull << 20;
  // Sends Last-Event-ID. Otherwise each stream is a new one, and its first event proves nothing:
  // the waits begin anew only after a stream has lived for retry_max.
  bool resumes = true;
  // Between two streams: doubled while nothing comes, +-25 %. The server's `retry:` is the least.
  absl::Duration retry_first = absl::Milliseconds(100);
  absl::Duration retry_max = absl::Seconds(10);
  // A longer `retry:` counts as this.
  absl::Duration server_retry_max = absl::Seconds(60);
};

// Exactly one stream at a time. Loop thread only; owned by a backend, outlived by `client`. An
// answer that says there is no such stream (405, or another 4xx but 408, 409 and 429, or no event
// stream at all) parks it: it is not asked for again until Open().
class EventStream final : private net::HttpResponseSink {
 public:
  // None may destroy the stream; all come from the loop.
  struct Callbacks {
    absl::AnyInvocable<net::HeaderList()> headers;  // of each attempt, beside Accept
    absl::AnyInvocable<void(std::string_view event, Payload data)> on_event;
    // No stream any more, or none at all; another attempt follows unless `parked`. NotFound: there
    // had been one since Open(), and now the server knows nothing of it.
    absl::AnyInvocable<void(absl::Status status, bool parked)> on_lost;
    // There is a stream again, after one since Open() was lost. May be null.
    absl::AnyInvocable<void()> on_rejoined = nullptr;
  };

  EventStream(core::EventLoop& loop, core::Random& random, Spool& spool, net::HttpClient& client,
              EventStreamConfig config, Callbacks callbacks);

  // Begins anew, with no memory of earlier streams.
  void Open(std::string target);
  void Close();
  // Drops the stream that is open and asks for another with the usual wait.
  void Reopen();
  // Wanted, and not parked.
  bool active() const { return active_; }

 private:
  void Connect();
  void Lose(absl::Status status);
  absl::Duration NextWait();

  void OnHead(net::HttpResponseHead head) override;
  void OnBody(std::string_view piece) override;
  void OnEnd(absl::Status status, bool reached) override;

  core::EventLoop& loop_;
  core::Random& random_;
  Spool& spool_;
  net::HttpClient& client_;
  EventStreamConfig config_;
  Callbacks callbacks_;
  std::string target_;
  bool active_ = false;
  bool joined_ = false;  // there has been a stream since Open()
  bool lost_ = false;    // this connection, for a reason that is known already
  absl::Duration wait_;
  absl::Time opened_;
  std::optional<absl::Duration> server_retry_;
  std::string last_id_;
  std::optional<SseMessageReader> reader_;
  std::unique_ptr<net::HttpExchange> http_;
  core::Timer timer_;
  core::Lifetime lifetime_;  // of the attempt
};

}  // namespace callboard::agent
