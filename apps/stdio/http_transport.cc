// Implementation of HttpTransport.
#include "apps/stdio/http_transport.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/sse_codec.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

constexpr size_t kRefusalBytesMax = 64 * 1024;

}  // namespace

// Unregisters itself; the sink may destroy it in every call.
class HttpTransport::Exchange final : public TransportExchange, private net::HttpResponseSink {
 public:
  Exchange(HttpTransport& transport, bool relayed, AnswerSink* sink)
      : transport_(transport), relayed_(relayed), sink_(sink) {
    if (relayed_) transport_.relayed_.insert(this);
  }
  ~Exchange() override { transport_.relayed_.erase(this); }

  void Send(std::string method, net::HeaderList headers, std::string body) {
    http_ = transport_.client_.Send(std::move(method), transport_.config_.path, std::move(headers),
                                    std::move(body), this);
    if (relayed_ && transport_.paused_) http_->PauseBody(true);
  }

  void Pause(bool paused) {
    if (http_ == nullptr) return;
    last_byte_ = transport_.loop_.Now();
    http_->PauseBody(paused);
  }

 private:
  bool success() const { return status_ / 100 == 2; }

  void OnHead(net::HttpResponseHead head) override {
    status_ = head.status;
    last_byte_ = transport_.loop_.Now();
    WatchIdle();
    const std::string* const type = head.Header("content-type");
    const bool is_stream = success() && type != nullptr && type->starts_with("text/event-stream");
    if (is_stream) decoder_.emplace(transport_.config_.message_bytes_max);
    const std::string* const session = head.Header("mcp-session-id");
    sink_->OnHead({status_, session == nullptr ? std::string() : *session, is_stream});
  }

  void OnBody(std::string_view piece) override {
    last_byte_ = transport_.loop_.Now();
    if (decoder_) return Decode(piece);
    if (!success()) {
      body_.append(piece.substr(0, kRefusalBytesMax - std::min(body_.size(), kRefusalBytesMax)));
      return;
    }
    if (body_.size() + piece.size() > transport_.config_.message_bytes_max) {
      return End(TooLarge(), true);
    }
    body_.append(piece);
  }

  void Decode(std::string_view piece) {
    const auto alive = lifetime_.Watch();
    const absl::Status status = decoder_->Feed(piece, [this](core::SseEvent event) {
      AnswerEvent answer;
      answer.id = event.id.value_or("");
      // A server's default is no reason for a very long wait.
      constexpr int64_t kRetryMsMax = 60'000;
      if (event.retry_ms) answer.retry = absl::Milliseconds(std::min(*event.retry_ms, kRetryMsMax));
      if (event.event.empty() || event.event == "message") answer.text = std::move(event.data);
      core::FlattenLines(answer.text.data(), answer.text.size());
      sink_->OnEvent(std::move(answer));
    });
    if (alive.expired()) return;
    if (!status.ok()) End(status, true);
  }

  void OnEnd(absl::Status status, bool reached) override {
    if (status.ok() && success() && !decoder_ && !body_.empty()) {
      const auto alive = lifetime_.Watch();
      core::FlattenLines(body_.data(), body_.size());
      sink_->OnEvent({{}, std::move(body_), std::nullopt});
      if (alive.expired()) return;
    }
    End(std::move(status), reached);
  }

  // Last: the sink may destroy the exchange.
  void End(absl::Status status, bool reached) {
    idle_.Cancel();
    http_.reset();
    sink_->OnEnd({std::move(status), reached, status_, success() ? std::string() : body_});
  }

  absl::Status TooLarge() const {
    return core::MakeError(
        absl::StatusCode::kResourceExhausted,
        fmt::format("the answer is larger than {} bytes", transport_.config_.message_bytes_max));
  }

  void WatchIdle() {
    const absl::Duration limit = transport_.config_.read_idle;
    idle_ = transport_.loop_.At(last_byte_ + limit, [this, limit] {
      const bool waits = relayed_ && transport_.paused_;
      if (waits) last_byte_ = transport_.loop_.Now();
      if (transport_.loop_.Now() - last_byte_ < limit) return WatchIdle();
      End(core::MakeError(absl::StatusCode::kUnavailable,
                          fmt::format("nothing came for {}, not even a heartbeat",
                                      absl::FormatDuration(limit))),
          true);
    });
  }

  HttpTransport& transport_;
  const bool relayed_;
  AnswerSink* const sink_;
  int status_ = 0;
  absl::Time last_byte_;
  std::optional<core::SseDecoder> decoder_;
  std::string body_;
  core::Timer idle_;
  core::Lifetime lifetime_;
  std::unique_ptr<net::HttpExchange> http_;
};

HttpTransport::HttpTransport(core::EventLoop& loop, std::unique_ptr<net::Connector> connector,
                             HttpTransportConfig config)
    : loop_(loop),
      config_(std::move(config)),
      client_(loop, std::move(connector), config_.host, {}) {}

HttpTransport::~HttpTransport() = default;

std::unique_ptr<TransportExchange> HttpTransport::Post(const SessionHeaders& session, Kind kind,
                                                       const std::string& key, std::string text,
                                                       AnswerSink* sink) {
  net::HeaderList headers = {{"Content-Type", "application/json"},
                             {"Accept", "application/json, text/event-stream"}};
  if (!key.empty()) headers.emplace_back("Idempotency-Key", key);
  return Send("POST", session, std::move(headers), std::move(text), kind == Kind::kRelayed, sink);
}

std::unique_ptr<TransportExchange> HttpTransport::Listen(const SessionHeaders& session,
                                                         const std::string& after,
                                                         AnswerSink* sink) {
  net::HeaderList headers = {{"Accept", "text/event-stream"}};
  if (!after.empty()) headers.emplace_back("Last-Event-ID", after);
  return Send("GET", session, std::move(headers), {}, /*relayed=*/true, sink);
}

std::unique_ptr<TransportExchange> HttpTransport::Delete(const SessionHeaders& session,
                                                         AnswerSink* sink) {
  return Send("DELETE", session, {}, {}, /*relayed=*/false, sink);
}

void HttpTransport::PauseRelayed(bool paused) {
  if (std::exchange(paused_, paused) == paused) return;
  for (Exchange* exchange : relayed_) exchange->Pause(paused);
}

std::unique_ptr<TransportExchange> HttpTransport::Send(std::string method,
                                                       const SessionHeaders& session,
                                                       net::HeaderList headers, std::string body,
                                                       bool relayed, AnswerSink* sink) {
  if (!session.session.empty()) headers.emplace_back("Mcp-Session-Id", session.session);
  if (!session.revision.empty()) headers.emplace_back("MCP-Protocol-Version", session.revision);
  headers.insert(headers.end(), config_.headers.begin(), config_.headers.end());
  auto exchange = std::make_unique<Exchange>(*this, relayed, sink);
  exchange->Send(std::move(method), std::move(headers), std::move(body));
  return exchange;
}

}  // namespace callboard::apps
