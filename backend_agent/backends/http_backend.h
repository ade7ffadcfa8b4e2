// A backend that speaks Streamable HTTP: one POST per message, replies as JSON or SSE, one GET to
// listen.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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

struct HttpBackendConfig {
  HttpUrl url;
  std::string health_path = "/health";
  int64_t pid = 0;   // 0: not known, then only the endpoint tells of the process' end
  std::string name;  // "blender", for people
  uint64_t result_bytes_max = 256ull << 20;
  absl::Duration probe_timeout = absl::Seconds(3);
  absl::Duration up_poll = absl::Milliseconds(500);  // while nobody answers
  absl::Duration refused_again = absl::Milliseconds(200);
  // A reply stream that ends before the answer is resumed where it has event ids; so many attempts
  // in a row may bring nothing new. Between them the server's `retry:`, else resume_wait, doubled.
  int resumes_max = 5;
  absl::Duration resume_wait = absl::Seconds(1);
  absl::Duration resume_wait_max = absl::Seconds(30);
};

// Loop thread only. Everything passed by reference outlives it. The endpoint is taken as gone when
// its process has ended or two connects in a row were refused, also from the start; then it is
// asked again every up_poll. A backend that gave a session id is listened to by one GET stream; 405
// parks it until the next session, 404 after it has been open means that the session is forgotten.
// 307 and 308 within the origin are followed, at most 3 in a row, other redirects not.
class HttpBackend final : public Backend {
 public:
  // `watcher` may be null. The connector leads to the URL's host and port.
  HttpBackend(core::EventLoop& loop, core::Random& random, Spool& spool,
              std::unique_ptr<net::Connector> connector, ProcessWatcher* watcher,
              HttpBackendConfig config);
  ~HttpBackend() override;

  void Start(Events* events) override;
  std::unique_ptr<BackendExchange> Send(uint64_t id, std::string text, bool expects_reply,
                                        const core::TraceContext& trace) override;
  std::unique_ptr<BackendExchange> SendModern(uint64_t id, std::string text, ModernHeaders headers,
                                              const core::TraceContext& trace) override;
  bool has_headers() const override { return true; }
  bool may_be_modern() const override { return true; }
  void SetRevision(std::string_view revision) override;
  void Probe(absl::AnyInvocable<void(bool alive)> callback) override;
  void Stop(absl::AnyInvocable<void()> done) override;
  bool ends_unanswered_exchanges() const override { return true; }
  std::string description() const override;
  // How another MCP session with the same server is opened; without it there is none.
  void SetAnother(absl::AnyInvocable<std::unique_ptr<Backend>()> another) {
    another_ = std::move(another);
  }
  std::unique_ptr<Backend> OpenAnother() override {
    return session_.empty() || another_ == nullptr ? nullptr : another_();
  }
  bool may_open_another() const override { return another_ != nullptr; }
  int64_t pid() const override { return config_.pid; }

 private:
  class Exchange;

  std::unique_ptr<BackendExchange> Post(std::unique_ptr<Exchange> exchange, uint64_t id);
  net::HeaderList MessageHeaders() const;
  void OnNotificationTaken();
  void OnListenLost(const absl::Status& status);
  void Ask();
  void OnAnswered();
  void OnRefused(const absl::Status& why);
  void OnProcessEnd(ProcessEnd end);
  void GoDown(BackendExit exit);
  void PostMessage(Payload message, uint64_t exchange);
  void PostEnd(uint64_t id, absl::Status status, bool reached);

  core::EventLoop& loop_;
  Spool& spool_;
  ProcessWatcher* watcher_;
  HttpBackendConfig config_;
  net::HttpClient client_;
  Events* events_ = nullptr;
  absl::AnyInvocable<std::unique_ptr<Backend>()> another_;
  std::string revision_;
  std::string session_;           // Mcp-Session-Id
  std::string path_;              // where redirects have led
  EventStream listen_;            // of this session, while it is open
  std::string listened_session_;  // that has had its listen stream
  bool up_ = false;
  bool process_over_ = false;
  int refused_ = 0;
  std::map<uint64_t, Exchange*> exchanges_;  // owned by the session
  std::unique_ptr<SmallRequest> ask_;        // is anybody there?
  std::unique_ptr<SmallRequest> probe_;
  std::unique_ptr<SmallRequest> farewell_;
  core::Timer ask_timer_;
  std::unique_ptr<ProcessWatch> watch_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
