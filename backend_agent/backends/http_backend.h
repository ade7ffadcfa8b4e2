// A backend that speaks plain Streamable HTTP: one POST per message, replies as JSON or as SSE.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "backend_agent/backend.h"
#include "backend_agent/backends/http_url.h"
#include "backend_agent/process_watch.h"
#include "backend_agent/spool.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "net/byte_stream.h"
#include "net/http_client.h"

namespace callboard::agent {

struct HttpBackendConfig {
  HttpUrl url;
  std::string health_path = "/health";
  int64_t pid = 0;   // 0: not known, then only the endpoint tells of the process' end
  std::string name;  // "blender", for people
  uint64_t result_bytes_max = 256ull << 20;
  absl::Duration probe_timeout = absl::Seconds(3);
  absl::Duration up_poll = absl::Milliseconds(500);  // while nobody answers
  absl::Duration refused_again = absl::Milliseconds(200);
};

// Loop thread only. Everything passed by reference outlives it. The endpoint is taken as gone when
// its process has ended or two connects in a row were refused; then it is asked again every
// up_poll.
class HttpBackend final : public Backend {
 public:
  // `watcher` may be null. The connector leads to the URL's host and port.
  HttpBackend(core::EventLoop& loop, Spool& spool, std::unique_ptr<net::Connector> connector,
              ProcessWatcher* watcher, HttpBackendConfig config);
  ~HttpBackend() override;

  void Start(Events* events) override;
  std::unique_ptr<BackendExchange> Send(uint64_t id, std::string text, bool expects_reply) override;
  void SetRevision(std::string_view revision) override;
  void Probe(absl::AnyInvocable<void(bool alive)> callback) override;
  void Stop(absl::AnyInvocable<void()> done) override;
  bool ends_unanswered_exchanges() const override { return true; }
  std::string description() const override;
  int64_t pid() const override { return config_.pid; }

 private:
  class Exchange;
  class HealthRequest;

  void Ask();
  void OnAnswered();
  void OnRefused();
  void OnProcessEnd(ProcessEnd end);
  void GoDown(BackendExit exit);
  void PostMessage(Payload message);
  void PostEnd(uint64_t id, absl::Status status, bool reached);

  core::EventLoop& loop_;
  Spool& spool_;
  ProcessWatcher* watcher_;
  HttpBackendConfig config_;
  net::HttpClient client_;
  Events* events_ = nullptr;
  std::string revision_;
  std::string session_;  // Mcp-Session-Id
  bool up_ = false;
  bool process_over_ = false;
  int refused_ = 0;
  std::map<uint64_t, Exchange*> exchanges_;  // owned by the session
  std::unique_ptr<HealthRequest> ask_;       // is anybody there?
  std::unique_ptr<HealthRequest> probe_;
  std::unique_ptr<HealthRequest> farewell_;
  core::Timer ask_timer_;
  std::unique_ptr<ProcessWatch> watch_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
