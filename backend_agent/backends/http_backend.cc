// Implementation of HttpBackend.
#include "backend_agent/backends/http_backend.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backend_agent/backends/sse_message_reader.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

// Of an error answer that is not for us, as much as a person wants to read.
constexpr size_t kErrorTextMax = 512;

absl::Status TooLarge(uint64_t size, uint64_t limit) {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted,
      fmt::format("result of {} bytes exceeds the limit of {} bytes", size, limit));
}

}  // namespace

// ---- one POST ---------------------------------------------------------------------------------

class HttpBackend::Exchange final : public BackendExchange, public net::HttpResponseSink {
 public:
  Exchange(HttpBackend* backend, uint64_t id, bool had_session)
      : backend_(backend),
        id_(id),
        had_session_(had_session),
        body_(backend->spool_, backend->config_.result_bytes_max) {}

  ~Exchange() override {
    if (!over_) backend_->exchanges_.erase(id_);
  }

  void Begin(std::unique_ptr<net::HttpExchange> http) { http_ = std::move(http); }
  // The backend has gone or is destroyed: nothing more is heard of this exchange.
  void Drop() {
    over_ = true;
    backend_ = nullptr;
    http_.reset();
  }
  bool sending() const { return sending_; }

  void OnSending() override { sending_ = true; }

  void OnHead(net::HttpResponseHead head) override {
    if (over_) return;
    backend_->OnAnswered();
    status_ = head.status;
    const std::string* session = head.Header("mcp-session-id");
    if (session != nullptr && status_ < 300) backend_->session_ = *session;
    const std::string* type = head.Header("content-type");
    const uint64_t limit = backend_->config_.result_bytes_max;
    if (type != nullptr && type->starts_with("text/event-stream") && status_ < 300) {
      sse_.emplace(backend_->spool_, limit);
    } else if (head.content_length && *head.content_length > limit) {
      EndEarly(TooLarge(*head.content_length, limit));
    }
  }

  void OnBody(std::string_view piece) override {
    if (over_) return;
    absl::Status status;
    if (sse_) {
      status =
          sse_->Feed(piece, [this](Payload message) { backend_->PostMessage(std::move(message)); });
    } else {
      status = body_.Append(piece);
    }
    if (!status.ok()) EndEarly(std::move(status));
  }

  void OnEnd(absl::Status status, bool reached) override {
    if (over_) return;
    over_ = true;
    backend_->exchanges_.erase(id_);
    if (!status.ok()) {
      backend_->PostEnd(id_, std::move(status), reached);
      // Refused, or broken off: is anybody there?
      backend_->Ask();
      return;
    }
    backend_->PostEnd(id_, Judge(), true);
  }

 private:
  // A reply that is complete: hands on its message; what the exchange's end is.
  absl::Status Judge() {
    if (sse_) return absl::OkStatus();
    Payload body = body_.Take();
    std::string_view text = body.view();
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    if (status_ == 404 && had_session_) {
      backend_->session_.clear();
      return absl::NotFoundError("the backend does not know the MCP session any more");
    }
    if (status_ < 300) {
      if (core::IsObject(text) || core::IsArray(text)) {
        backend_->PostMessage(std::move(body));
      } else if (!text.empty()) {
        return core::MakeError(
            absl::StatusCode::kInternal,
            fmt::format("the backend answered HTTP {} with a body that is no JSON object: {}",
                        status_, text.substr(0, kErrorTextMax)));
      }
      return absl::OkStatus();
    }
    if (auto message = core::ParseJsonRpc(text, true);
        message.ok() && message->kind == core::JsonRpcMessage::Kind::kError &&
        message->id == fmt::format("{}", id_)) {
      backend_->PostMessage(std::move(body));
      return absl::OkStatus();
    }
    return core::MakeError(absl::StatusCode::kInternal,
                           fmt::format("the backend answered HTTP {} {}: {}", status_,
                                       net::HttpReason(status_), text.substr(0, kErrorTextMax)));
  }

  // Enough is known; the rest of the answer is not read.
  void EndEarly(absl::Status status) {
    over_ = true;
    backend_->exchanges_.erase(id_);
    backend_->PostEnd(id_, std::move(status), true);
    backend_->loop_.Post(lifetime_.Wrap([this] { http_.reset(); }));
  }

  HttpBackend* backend_;
  const uint64_t id_;
  const bool had_session_;
  bool sending_ = false;
  bool over_ = false;
  int status_ = 0;
  PayloadBuilder body_;
  std::optional<SseMessageReader> sse_;
  std::unique_ptr<net::HttpExchange> http_;
  core::Lifetime lifetime_;
};

// ---- one small request beside the messages ----------------------------------------------------

// GET of the health path, or the DELETE of a session. Any answer counts.
class HttpBackend::HealthRequest final : public net::HttpResponseSink {
 public:
  // kConnected comes first, then one of the others, each posted.
  enum class Event { kConnected, kAnswered, kFailed };

  HealthRequest(core::EventLoop& loop, net::HttpClient& client, std::string method,
                std::string target, net::HeaderList headers, absl::Duration timeout,
                absl::AnyInvocable<void(Event)> on_event)
      : loop_(loop), on_event_(std::move(on_event)) {
    http_ = client.Send(std::move(method), std::move(target), std::move(headers), "", this);
    timer_ = loop_.After(timeout, [this] { Report(Event::kFailed); });
  }

  void OnSending() override {
    loop_.Post(lifetime_.Wrap([this] {
      if (!over_) on_event_(Event::kConnected);
    }));
  }
  void OnHead(net::HttpResponseHead) override { Report(Event::kAnswered); }
  void OnBody(std::string_view) override {}
  void OnEnd(absl::Status status, bool) override {
    Report(status.ok() ? Event::kAnswered : Event::kFailed);
  }

 private:
  void Report(Event event) {
    if (reported_) return;
    reported_ = true;
    // Later: the listener may destroy this request.
    loop_.Post(lifetime_.Wrap([this, event] {
      over_ = true;
      auto on_event = std::move(on_event_);
      on_event(event);
    }));
  }

  core::EventLoop& loop_;
  absl::AnyInvocable<void(Event)> on_event_;
  std::unique_ptr<net::HttpExchange> http_;
  core::Timer timer_;
  bool reported_ = false;
  bool over_ = false;
  core::Lifetime lifetime_;
};

// ---- the backend ------------------------------------------------------------------------------

HttpBackend::HttpBackend(core::EventLoop& loop, Spool& spool,
                         std::unique_ptr<net::Connector> connector, ProcessWatcher* watcher,
                         HttpBackendConfig config)
    : loop_(loop),
      spool_(spool),
      watcher_(watcher),
      config_(std::move(config)),
      client_(loop, std::move(connector), HostAndPort(config_.url), {}) {}

HttpBackend::~HttpBackend() {
  for (auto& [id, exchange] : exchanges_) exchange->Drop();
}

void HttpBackend::Start(Events* events) {
  events_ = events;
  if (watcher_ != nullptr && config_.pid > 0) {
    watch_ =
        watcher_->Watch(config_.pid, lifetime_.Wrap([this](ProcessEnd end) { OnProcessEnd(end); }));
  }
  Ask();
}

std::unique_ptr<BackendExchange> HttpBackend::Send(uint64_t id, std::string text, bool) {
  if (!up_) {
    PostEnd(id, absl::UnavailableError("the endpoint is not there"), false);
    return nullptr;
  }
  net::HeaderList headers = {{"Content-Type", "application/json"},
                             {"Accept", "application/json, text/event-stream"}};
  if (!revision_.empty()) headers.emplace_back("MCP-Protocol-Version", revision_);
  if (!session_.empty()) headers.emplace_back("Mcp-Session-Id", session_);
  auto exchange = std::make_unique<Exchange>(this, id, !session_.empty());
  exchanges_[id] = exchange.get();
  exchange->Begin(
      client_.Send("POST", config_.url.path, std::move(headers), std::move(text), exchange.get()));
  return exchange;
}

void HttpBackend::SetRevision(std::string_view revision) {
  revision_ = std::string(revision);
  if (revision.empty()) session_.clear();
}

void HttpBackend::Probe(absl::AnyInvocable<void(bool alive)> callback) {
  if (!up_) {
    loop_.Post([callback = std::move(callback)]() mutable { callback(false); });
    return;
  }
  probe_ = std::make_unique<HealthRequest>(
      loop_, client_, "GET", config_.health_path, net::HeaderList{}, config_.probe_timeout,
      [this, connected = false,
       callback = std::move(callback)](HealthRequest::Event event) mutable {
        if (event == HealthRequest::Event::kConnected) {
          connected = true;
          return;
        }
        const bool answered = event == HealthRequest::Event::kAnswered;
        if (answered) {
          OnAnswered();
        } else if (!connected) {
          Ask();
        }
        callback(answered);
      });
}

void HttpBackend::Stop(absl::AnyInvocable<void()> done) {
  events_ = nullptr;
  ask_.reset();
  ask_timer_.Cancel();
  if (!up_ || session_.empty()) {
    done();
    return;
  }
  farewell_ = std::make_unique<HealthRequest>(
      loop_, client_, "DELETE", config_.url.path,
      net::HeaderList{{"Mcp-Session-Id", session_}, {"MCP-Protocol-Version", revision_}},
      absl::Seconds(1), [done = std::move(done)](HealthRequest::Event event) mutable {
        if (event != HealthRequest::Event::kConnected) done();
      });
}

std::string HttpBackend::description() const {
  return fmt::format("http://{}{}", HostAndPort(config_.url), config_.url.path);
}

// Is anybody there? Asked until somebody is, and again when an exchange has failed.
void HttpBackend::Ask() {
  if (ask_ != nullptr || process_over_ || events_ == nullptr) return;
  ask_timer_.Cancel();
  ask_ = std::make_unique<HealthRequest>(
      loop_, client_, "GET", config_.health_path, net::HeaderList{}, config_.probe_timeout,
      [this, connected = false](HealthRequest::Event event) mutable {
        if (event == HealthRequest::Event::kConnected) {
          // A server whose threads stand still accepts and does not answer; it is there.
          connected = true;
          OnAnswered();
          return;
        }
        // The callback lives in the request; `this` goes on without it.
        HttpBackend* const self = this;
        const bool there = connected || event == HealthRequest::Event::kAnswered;
        auto finished = std::move(self->ask_);
        if (there) {
          self->OnAnswered();
        } else {
          self->OnRefused();
        }
      });
}

void HttpBackend::OnAnswered() {
  refused_ = 0;
  if (up_ || process_over_ || events_ == nullptr) return;
  up_ = true;
  loop_.Post(lifetime_.Wrap([this] {
    if (up_ && events_ != nullptr) events_->OnUp();
  }));
}

void HttpBackend::OnRefused() {
  ++refused_;
  ask_timer_ =
      loop_.After(up_ && refused_ < 2 ? config_.refused_again : config_.up_poll, [this] { Ask(); });
  if (up_ && refused_ >= 2) {
    GoDown({.detail = fmt::format("{} does not accept connections any more", description())});
  }
}

void HttpBackend::OnProcessEnd(ProcessEnd end) {
  process_over_ = true;
  ask_.reset();
  ask_timer_.Cancel();
  GoDown({.process_ended = true,
          .exit_status = end.exit_status,
          .exit_signal = end.exit_signal,
          .detail = DescribeEnd(config_.name, config_.pid, end)});
}

void HttpBackend::GoDown(BackendExit exit) {
  up_ = false;
  auto open = std::exchange(exchanges_, {});
  for (auto& [id, exchange] : open) {
    const bool reached = exchange->sending();
    exchange->Drop();
    PostEnd(id, core::MakeError(absl::StatusCode::kUnavailable, exit.detail), reached);
  }
  loop_.Post(lifetime_.Wrap([this, exit = std::move(exit)]() mutable {
    if (events_ != nullptr) events_->OnDown(std::move(exit));
  }));
}

// Posted, so that the session may destroy the exchange, or all, in answer to it.
void HttpBackend::PostMessage(Payload message) {
  loop_.Post(lifetime_.Wrap([this, message = std::move(message)]() mutable {
    if (events_ != nullptr) events_->OnMessage(std::move(message), 0);
  }));
}

void HttpBackend::PostEnd(uint64_t id, absl::Status status, bool reached) {
  loop_.Post(lifetime_.Wrap([this, id, status = std::move(status), reached]() mutable {
    if (events_ != nullptr) events_->OnExchangeEnd(id, std::move(status), reached);
  }));
}

}  // namespace callboard::agent
