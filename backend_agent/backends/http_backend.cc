// Implementation of HttpBackend: the endpoint's life; its messages are in http_backend_exchange.cc.
#include "backend_agent/backends/http_backend.h"

#include <utility>

#include "backend_agent/backends/http_backend_exchange.h"
#include "core/mcp/mirror_header.h"
#include "core/mcp/versions.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

HttpBackend::HttpBackend(core::EventLoop& loop, core::Random& random, Spool& spool,
                         std::unique_ptr<net::Connector> connector, ProcessWatcher* watcher,
                         HttpBackendConfig config)
    : loop_(loop),
      spool_(spool),
      watcher_(watcher),
      config_(std::move(config)),
      client_(loop, std::move(connector), HostAndPort(config_.url), {}),
      path_(config_.url.path),
      listen_(loop, random, spool, client_, {.message_bytes_max = config_.result_bytes_max},
              {.headers = [this] { return MessageHeaders(); },
               .on_event = [this](std::string_view,
                                  Payload message) { PostMessage(std::move(message), 0); },
               .on_lost = [this](const absl::Status& status, bool) { OnListenLost(status); },
               .on_rejoined =
                   [this] {
                     loop_.Post(lifetime_.Wrap([this] {
                       if (up_ && events_ != nullptr) events_->OnRejoined();
                     }));
                   }}) {}

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

std::unique_ptr<BackendExchange> HttpBackend::Send(uint64_t id, std::string text,
                                                   bool expects_reply,
                                                   const core::TraceContext& trace) {
  return Post(std::make_unique<Exchange>(this, id, std::move(text), expects_reply, trace), id);
}

std::unique_ptr<BackendExchange> HttpBackend::SendModern(uint64_t id, std::string text,
                                                         ModernHeaders headers,
                                                         const core::TraceContext& trace) {
  net::HeaderList list = {
      {"MCP-Protocol-Version", std::string(core::RevisionName(core::McpRevision::k2026_07_28))},
      {"Mcp-Method", core::EncodeMirrorHeader(headers.method)}};
  if (!headers.named.empty()) {
    list.emplace_back("Mcp-Name", core::EncodeMirrorHeader(headers.named));
  }
  for (auto& [name, value] : headers.params) {
    list.emplace_back(fmt::format("Mcp-Param-{}", name), std::move(value));
  }
  return Post(std::make_unique<Exchange>(this, id, std::move(text), true, trace, std::move(list)),
              id);
}

std::unique_ptr<BackendExchange> HttpBackend::Post(std::unique_ptr<Exchange> exchange,
                                                   uint64_t id) {
  if (!up_) {
    exchange->Drop();
    PostEnd(id, absl::UnavailableError("the endpoint is not there"), false);
    return nullptr;
  }
  exchanges_[id] = exchange.get();
  exchange->Post();
  return exchange;
}

net::HeaderList HttpBackend::MessageHeaders() const {
  net::HeaderList headers;
  if (!revision_.empty()) headers.emplace_back("MCP-Protocol-Version", revision_);
  if (!session_.empty()) headers.emplace_back("Mcp-Session-Id", session_);
  return headers;
}

void HttpBackend::SetRevision(std::string_view revision) {
  revision_ = std::string(revision);
  if (!revision.empty()) return;
  session_.clear();
  path_ = config_.url.path;
  listen_.Close();
}

// The backend has taken notifications/initialized: one with a session may have something to say.
void HttpBackend::OnNotificationTaken() {
  if (!up_ || revision_.empty() || session_.empty() || listened_session_ == session_) return;
  listened_session_ = session_;
  listen_.Open(path_);
}

void HttpBackend::OnListenLost(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kNotFound || !up_ || events_ == nullptr) return;
  loop_.Post(lifetime_.Wrap([this, session = session_] {
    // Unless an exchange has said so before.
    if (up_ && events_ != nullptr && session_ == session) events_->OnSessionForgotten();
  }));
}

void HttpBackend::Probe(absl::AnyInvocable<void(bool alive)> callback) {
  if (!up_) {
    loop_.Post([callback = std::move(callback)]() mutable { callback(false); });
    return;
  }
  probe_ = std::make_unique<SmallRequest>(
      loop_, client_, "GET", config_.health_path, net::HeaderList{}, config_.probe_timeout,
      [this, connected = false, callback = std::move(callback)](SmallRequest::Event event) mutable {
        if (event == SmallRequest::Event::kConnected) {
          connected = true;
          return;
        }
        const bool answered = event == SmallRequest::Event::kAnswered;
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
  listen_.Close();
  ask_.reset();
  ask_timer_.Cancel();
  if (!up_ || session_.empty()) {
    done();
    return;
  }
  farewell_ = std::make_unique<SmallRequest>(
      loop_, client_, "DELETE", path_, MessageHeaders(), absl::Seconds(1),
      [done = std::move(done)](SmallRequest::Event event) mutable {
        if (event != SmallRequest::Event::kConnected) done();
      });
}

std::string HttpBackend::description() const {
  return fmt::format("http://{}{}", HostAndPort(config_.url), config_.url.path);
}

// Is anybody there? Asked until somebody is, and again when an exchange has failed.
void HttpBackend::Ask() {
  if (ask_ != nullptr || process_over_ || events_ == nullptr) return;
  ask_timer_.Cancel();
  ask_ = std::make_unique<SmallRequest>(
      loop_, client_, "GET", config_.health_path, net::HeaderList{}, config_.probe_timeout,
      [this, connected = false](SmallRequest::Event event) mutable {
        if (event == SmallRequest::Event::kConnected) {
          // A server whose threads stand still accepts and does not answer; it is there.
          connected = true;
          OnAnswered();
          return;
        }
        // The callback lives in the request; `this` goes on without it.
        HttpBackend* const self = this;
        const bool there = connected || event == SmallRequest::Event::kAnswered;
        auto finished = std::move(self->ask_);
        if (there) {
          self->OnAnswered();
        } else {
          self->OnRefused(finished->failure());
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

void HttpBackend::OnRefused(const absl::Status& why) {
  ++refused_;
  ask_timer_ =
      loop_.After(up_ && refused_ < 2 ? config_.refused_again : config_.up_poll, [this] { Ask(); });
  if (refused_ != 2) return;
  // Also of one that has never been there.
  const std::string cause(why.ok() ? "no answer" : core::Message(why));
  GoDown({.detail = fmt::format("{} does not accept connections{}: {}", description(),
                                up_ ? " any more" : "", cause)});
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
  listen_.Close();
  listened_session_.clear();
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
void HttpBackend::PostMessage(Payload message, uint64_t exchange) {
  loop_.Post(lifetime_.Wrap([this, exchange, message = std::move(message)]() mutable {
    if (events_ != nullptr) events_->OnMessage(std::move(message), exchange);
  }));
}

void HttpBackend::PostEnd(uint64_t id, absl::Status status, bool reached) {
  loop_.Post(lifetime_.Wrap([this, id, status = std::move(status), reached]() mutable {
    if (events_ != nullptr) events_->OnExchangeEnd(id, std::move(status), reached);
  }));
}

}  // namespace callboard::agent
