// A backend of the 2024-11-05 revision: messages are POSTed, everything else comes on one GET
// stream.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "backend_agent/backend.h"
#include "backend_agent/backends/event_stream.h"
#include "backend_agent/backends/http_url.h"
#include "backend_agent/backends/small_request.h"
#include "backend_agent/process_watch.h"
#include "backend_agent/spool.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"
#include "net/byte_stream.h"
#include "net/http_client.h"

namespace callboard::agent {

struct SseBackendConfig {
  HttpUrl url;  // of the stream: "http://127.0.0.1:9401/sse"
  std::string health_path = "/health";
  int64_t pid = 0;   // 0: not known, then only the stream tells of the process' end
  std::string name;  // for people
  uint64_t result_bytes_max = 256ull << 20;
  absl::Duration probe_timeout = absl::Seconds(3);
  // For a stream to name where to POST; then another is asked for. Longer than the waits between.
  absl::Duration endpoint_timeout = absl::Seconds(30);
};

// The stream is the session: when it ends, every request under way is lost, and the next stream
// begins a new session. Up from the `endpoint` event on. It may name a place on the same origin
// only. Loop thread only. Everything passed by reference outlives it.
class SseBackend final : public Backend {
 public:
  // `watcher` may be null. The connector leads to the URL's host and port.
  SseBackend(core::EventLoop& loop, core::Random& random, Spool& spool,
             std::unique_ptr<net::Connector> connector, ProcessWatcher* watcher,
             SseBackendConfig config);
  ~SseBackend() override;

  void Start(Events* events) override;
  std::unique_ptr<BackendExchange> Send(uint64_t id, std::string text, bool expects_reply,
                                        const core::TraceContext& trace) override;
  void SetRevision(std::string_view revision) override;
  void Probe(absl::AnyInvocable<void(bool alive)> callback) override;
  void Stop(absl::AnyInvocable<void()> done) override;
  bool ends_unanswered_exchanges() const override { return false; }
  std::string description() const override;
  int64_t pid() const override { return config_.pid; }

 private:
  class Exchange;

  void Listen();
  void ExpectEndpoint();
  // Gives the stream up for a new one.
  void Renew(const absl::Status& why);
  void OnEvent(std::string_view event, Payload data);
  void OnEndpoint(std::string_view place);
  void OnLost(const absl::Status& status, bool parked);
  void OnProcessEnd(ProcessEnd end);
  // Every exchange under way ends, and so does the session.
  void GoDown(BackendExit exit);
  void OnResponse(const Payload& message);
  void PostEnd(uint64_t id, absl::Status status, bool reached);

  core::EventLoop& loop_;
  SseBackendConfig config_;
  net::HttpClient client_;
  Events* events_ = nullptr;
  std::string revision_;
  std::string endpoint_;  // where to POST; empty: down
  bool told_down_ = false;
  EventStream stream_;
  core::Timer timer_;  // for the endpoint event, or until a parked stream is asked for again
  std::map<uint64_t, Exchange*> exchanges_;  // owned by the session
  std::set<uint64_t> awaiting_;              // requests without a response yet
  std::unique_ptr<SmallRequest> probe_;
  ProcessWatcher* watcher_;
  std::unique_ptr<ProcessWatch> watch_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
