// Implementation of SseBackend.
#include "backend_agent/backends/sse_backend.h"

#include <charconv>
#include <utility>

#include "backend_agent/backends/trace_headers.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

constexpr size_t kErrorTextMax = 512;
// A stream that is not offered now may be later, when the server has been replaced.
constexpr absl::Duration kParkedWait = absl::Seconds(10);

}  // namespace

// One POST. Its answer says only whether the message was taken.
class SseBackend::Exchange final : public BackendExchange, public net::HttpResponseSink {
 public:
  Exchange(SseBackend* backend, uint64_t id, bool expects_reply)
      : backend_(backend), id_(id), expects_reply_(expects_reply) {}
  ~Exchange() override {
    if (backend_ != nullptr) backend_->exchanges_.erase(id_);
  }

  void Begin(std::unique_ptr<net::HttpExchange> http) { http_ = std::move(http); }
  // Nothing more is heard of this exchange.
  void Drop() {
    backend_ = nullptr;
    http_.reset();
  }
  bool sending() const { return sending_; }

  void OnSending() override { sending_ = true; }
  void OnHead(net::HttpResponseHead head) override { status_ = head.status; }
  void OnBody(std::string_view piece) override {
    text_.append(piece.substr(0, kErrorTextMax - text_.size()));
  }
  void OnEnd(absl::Status status, bool reached) override {
    if (backend_ == nullptr) return;
    if (status.ok() && status_ / 100 != 2) {
      // Refused: it was not acted upon. Without the session there is no use in the stream either.
      status = core::MakeError(absl::StatusCode::kUnavailable,
                               fmt::format("the backend answered HTTP {} {}: {}", status_,
                                           net::HttpReason(status_), text_));
      reached = false;
      if (status_ == 404) {
        backend_->loop_.Post(backend_->lifetime_.Wrap([backend = backend_] {
          backend->Renew(absl::UnavailableError("the backend does not know the session any more"));
        }));
      }
    }
    if (status.ok() && expects_reply_) return;  // the answer comes on the stream
    SseBackend* const backend = std::exchange(backend_, nullptr);
    backend->exchanges_.erase(id_);
    backend->awaiting_.erase(id_);
    backend->PostEnd(id_, std::move(status), reached);
  }

 private:
  SseBackend* backend_;
  const uint64_t id_;
  const bool expects_reply_;
  bool sending_ = false;
  int status_ = 0;
  std::string text_;
  std::unique_ptr<net::HttpExchange> http_;
};

SseBackend::SseBackend(core::EventLoop& loop, core::Random& random, Spool& spool,
                       std::unique_ptr<net::Connector> connector, ProcessWatcher* watcher,
                       SseBackendConfig config)
    : loop_(loop),
      config_(std::move(config)),
      client_(loop, std::move(connector), HostAndPort(config_.url), {}),
      stream_(
          loop, random, spool, client_,
          {.message_bytes_max = config_.result_bytes_max,
           .resumes = false,
           .server_retry_max = config_.endpoint_timeout / 2},
          {.headers = [] { return net::HeaderList{}; },
           .on_event = [this](std::string_view event,
                              Payload data) { OnEvent(event, std::move(data)); },
           .on_lost = [this](const absl::Status& status, bool parked) { OnLost(status, parked); }}),
      watcher_(watcher) {}

SseBackend::~SseBackend() {
  for (auto& [id, exchange] : exchanges_) exchange->Drop();
}

void SseBackend::Start(Events* events) {
  events_ = events;
  if (watcher_ != nullptr && config_.pid > 0) {
    watch_ =
        watcher_->Watch(config_.pid, lifetime_.Wrap([this](ProcessEnd end) { OnProcessEnd(end); }));
  }
  Listen();
}

void SseBackend::Listen() {
  if (events_ == nullptr) return;
  stream_.Open(config_.url.path);
  ExpectEndpoint();
}

void SseBackend::ExpectEndpoint() {
  timer_ = loop_.After(config_.endpoint_timeout, [this] {
    Renew(core::MakeError(absl::StatusCode::kUnavailable,
                          fmt::format("{} named no endpoint within {} s", description(),
                                      absl::ToInt64Seconds(config_.endpoint_timeout))));
  });
}

void SseBackend::Renew(const absl::Status& why) {
  stream_.Reopen();
  OnLost(why, false);
}

std::unique_ptr<BackendExchange> SseBackend::Send(uint64_t id, std::string text, bool expects_reply,
                                                  const core::TraceContext& trace) {
  if (endpoint_.empty()) {
    PostEnd(id, absl::UnavailableError("the event stream is not there"), false);
    return nullptr;
  }
  net::HeaderList headers = {{"Content-Type", "application/json"}};
  if (!revision_.empty()) headers.emplace_back("MCP-Protocol-Version", revision_);
  AddTraceHeaders(trace, &headers);
  auto exchange = std::make_unique<Exchange>(this, id, expects_reply);
  exchanges_[id] = exchange.get();
  if (expects_reply) awaiting_.insert(id);
  exchange->Begin(
      client_.Send("POST", endpoint_, std::move(headers), std::move(text), exchange.get()));
  return exchange;
}

void SseBackend::SetRevision(std::string_view revision) { revision_ = std::string(revision); }

void SseBackend::Probe(absl::AnyInvocable<void(bool alive)> callback) {
  if (endpoint_.empty()) {
    loop_.Post([callback = std::move(callback)]() mutable { callback(false); });
    return;
  }
  probe_ = std::make_unique<SmallRequest>(
      loop_, client_, "GET", config_.health_path, net::HeaderList{}, config_.probe_timeout,
      [callback = std::move(callback)](SmallRequest::Event event) mutable {
        if (event != SmallRequest::Event::kConnected) {
          callback(event == SmallRequest::Event::kAnswered);
        }
      });
}

void SseBackend::Stop(absl::AnyInvocable<void()> done) {
  // The end of its stream is the end of the session.
  events_ = nullptr;
  timer_.Cancel();
  stream_.Close();
  done();
}

std::string SseBackend::description() const {
  return fmt::format("http://{}{} (HTTP+SSE)", HostAndPort(config_.url), config_.url.path);
}

// ---- the stream -------------------------------------------------------------------------------

void SseBackend::OnEvent(std::string_view event, Payload data) {
  if (events_ == nullptr) return;
  if (event == "endpoint") return OnEndpoint(data.view());
  if (!event.empty() && event != "message") return;
  OnResponse(data);
  loop_.Post(lifetime_.Wrap([this, data = std::move(data)]() mutable {
    if (events_ != nullptr) events_->OnMessage(std::move(data), 0);
  }));
}

void SseBackend::OnEndpoint(std::string_view place) {
  if (!endpoint_.empty()) return;
  const auto path = PathWithin(config_.url, place);
  if (!path) {
    OnLost(core::MakeError(
               absl::StatusCode::kUnavailable,
               fmt::format("{} wants its messages at '{}', which is not on the same origin",
                           description(), place.substr(0, kErrorTextMax))),
           true);
    return;
  }
  timer_.Cancel();
  endpoint_ = *path;
  told_down_ = false;
  loop_.Post(lifetime_.Wrap([this] {
    if (events_ != nullptr && !endpoint_.empty()) events_->OnUp();
  }));
}

// A response that has come needs no end any more. Of large ones the session learns the id anyway.
void SseBackend::OnResponse(const Payload& message) {
  if (message.size() > kInlineBodyMax) return;
  const auto parsed = core::ParseJsonRpc(message.view(), false);
  if (!parsed.ok() || (parsed->result.empty() && parsed->error.empty())) return;
  uint64_t id = 0;
  const std::string_view raw = parsed->id;
  if (std::from_chars(raw.data(), raw.data() + raw.size(), id).ec == std::errc()) {
    awaiting_.erase(id);
  }
}

void SseBackend::OnLost(const absl::Status& status, bool parked) {
  if (parked) {
    // Later: the stream may be the caller.
    timer_ = loop_.After(kParkedWait, [this] { Listen(); });
  } else {
    ExpectEndpoint();
  }
  GoDown({.detail = std::string(core::Message(status))});
}

void SseBackend::OnProcessEnd(ProcessEnd end) {
  timer_.Cancel();
  stream_.Close();
  told_down_ = false;
  GoDown({.process_ended = true,
          .exit_status = end.exit_status,
          .exit_signal = end.exit_signal,
          .detail = DescribeEnd(config_.name, config_.pid, end)});
}

void SseBackend::GoDown(BackendExit exit) {
  endpoint_.clear();
  auto open = std::exchange(exchanges_, {});
  auto awaiting = std::exchange(awaiting_, {});
  const std::string& detail = exit.detail;
  for (auto& [id, exchange] : open) {
    const bool reached = exchange->sending();
    exchange->Drop();
    PostEnd(id, core::MakeError(absl::StatusCode::kUnavailable, detail), reached);
    awaiting.erase(id);
  }
  for (uint64_t id : awaiting) {
    PostEnd(id, core::MakeError(absl::StatusCode::kUnavailable, detail), true);
  }
  if (std::exchange(told_down_, true)) return;
  loop_.Post(lifetime_.Wrap([this, exit = std::move(exit)]() mutable {
    if (events_ != nullptr) events_->OnDown(std::move(exit));
  }));
}

void SseBackend::PostEnd(uint64_t id, absl::Status status, bool reached) {
  loop_.Post(lifetime_.Wrap([this, id, status = std::move(status), reached]() mutable {
    if (events_ != nullptr) events_->OnExchangeEnd(id, std::move(status), reached);
  }));
}

}  // namespace callboard::agent
