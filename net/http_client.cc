// Implementation of HttpClient: the pool of idle connections and the exchange state machine.
#include "net/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/runtime/lifetime.h"
#include "core/runtime/strings.h"
#include "net/http_parser.h"

namespace callboard::net {

namespace {

constexpr size_t kReadBytes = 64 * 1024;

class Exchange;

// One stream with its read buffer; in use by one exchange or idle in the pool.
struct PooledConnection {
  explicit PooledConnection(std::unique_ptr<ByteStream> byte_stream, size_t buffer_bytes)
      : capacity(buffer_bytes),
        buffer(std::make_unique_for_overwrite<char[]>(buffer_bytes)),
        stream(std::move(byte_stream)) {}

  std::string_view pending() const { return {buffer.get() + begin, end - begin}; }

  Exchange* user = nullptr;
  bool reading = false;
  bool reused = false;
  absl::Time idle_since;
  size_t capacity;
  size_t begin = 0;
  size_t end = 0;
  std::unique_ptr<char[]> buffer;
  std::unique_ptr<ByteStream> stream;  // last: goes first, as it reads into the buffer
};

}  // namespace

// Loop thread only. Owned by the client; exchanges point to it until they end or it goes.
struct HttpClientState {
  HttpClientState(core::EventLoop& event_loop, std::unique_ptr<Connector> stream_connector,
                  std::string host_header, HttpClientLimits client_limits)
      : loop(event_loop),
        connector(std::move(stream_connector)),
        host(std::move(host_header)),
        limits(client_limits) {}

  // The idle connection used last, or null.
  std::unique_ptr<PooledConnection> TakeIdle();
  void KeepIdle(std::unique_ptr<PooledConnection> connection);
  void DropExpired();
  void StartRead(PooledConnection* connection);
  void OnRead(PooledConnection* connection, absl::StatusOr<size_t> count);

  core::EventLoop& loop;
  std::unique_ptr<Connector> connector;
  const std::string host;
  const HttpClientLimits limits;
  std::deque<std::unique_ptr<PooledConnection>> idle;  // oldest first
  core::Timer expiry;
  std::map<uint64_t, Exchange*> exchanges;
  uint64_t last_exchange = 0;
};

namespace {

class Exchange final : public HttpExchange {
 public:
  Exchange(HttpClientState* state, std::string method, std::string target, HeaderList headers,
           std::string body, HttpResponseSink* sink)
      : state_(state),
        id_(++state->last_exchange),
        sink_(sink),
        method_(std::move(method)),
        target_(std::move(target)),
        headers_(std::move(headers)),
        body_(std::move(body)) {
    state_->exchanges.emplace(id_, this);
    state_->loop.Post(life_.Wrap([this] { Begin(); }));
  }
  ~Exchange() override { Detach(); }

  void PauseBody(bool paused) override;

  // Ends everything without a callback.
  void Detach();
  // The connection's Read is complete.
  void OnRead(absl::StatusOr<size_t> count);

 private:
  void Begin();
  void Connect();
  void Start(std::unique_ptr<PooledConnection> connection);
  void FormatHead();
  void OnWritten(const absl::Status& status);
  void Deliver();
  void OnStreamEnd(const absl::Status& status);
  void Complete();
  void Fail(std::string_view message, bool reached);
  void Finish(absl::Status status, bool reached);

  HttpClientState* state_;  // null once over
  const uint64_t id_;
  HttpResponseSink* const sink_;
  const std::string method_;
  const std::string target_;
  HeaderList headers_;
  std::string head_;
  std::string body_;
  bool told_sending_ = false;
  bool writing_ = false;
  bool paused_ = false;
  bool head_delivered_ = false;
  uint64_t body_bytes_ = 0;
  // The stream's end, kept until what was read before it is delivered.
  absl::Status stream_end_;
  std::optional<ResponseParser> parser_;
  core::Timer connect_timer_;
  core::Lifetime connecting_;
  core::Lifetime life_;
  std::unique_ptr<PooledConnection> connection_;  // last: goes first, as it writes head_ and body_
};

void Exchange::Detach() {
  if (state_ == nullptr) return;
  state_->exchanges.erase(id_);
  state_ = nullptr;
  connect_timer_.Cancel();
  connecting_.Renew();
  life_.Renew();
  connection_.reset();
}

void Exchange::Begin() {
  if (auto idle = state_->TakeIdle()) {
    Start(std::move(idle));
  } else {
    Connect();
  }
}

void Exchange::Connect() {
  connect_timer_ = state_->loop.After(state_->limits.connect_timeout, [this] {
    connecting_.Renew();
    Fail(fmt::format("no connection to {} within {} s; is it running and reachable?", state_->host,
                     absl::ToDoubleSeconds(state_->limits.connect_timeout)),
         /*reached=*/false);
  });
  state_->connector->Connect(
      connecting_.Wrap([this](absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
        connect_timer_.Cancel();
        if (!stream.ok()) {
          return Fail(
              fmt::format("no connection to {}: {}", state_->host, core::Message(stream.status())),
              /*reached=*/false);
        }
        Start(std::make_unique<PooledConnection>(
            *std::move(stream), std::max(kReadBytes, state_->limits.header_bytes_max)));
      }));
}

void Exchange::Start(std::unique_ptr<PooledConnection> connection) {
  connection_ = std::move(connection);
  connection_->user = this;
  stream_end_ = absl::OkStatus();
  if (!told_sending_) {
    told_sending_ = true;
    auto alive = life_.Watch();
    sink_->OnSending();
    if (alive.expired()) return;
    FormatHead();
  }
  parser_.emplace(state_->limits.header_bytes_max, method_ == "HEAD");
  writing_ = true;
  std::vector<std::string_view> pieces{head_};
  if (!body_.empty()) pieces.push_back(body_);
  connection_->stream->Write(std::move(pieces),
                             [this](const absl::Status& status) { OnWritten(status); });
  state_->StartRead(connection_.get());
}

void Exchange::FormatHead() {
  fmt::format_to(std::back_inserter(head_), "{} {} HTTP/1.1\r\n", method_, target_);
  AppendHeader(head_, "Host", state_->host);
  for (const auto& [name, value] : headers_) AppendHeader(head_, name, value);
  const bool always = method_ != "GET" && method_ != "HEAD" && method_ != "DELETE";
  if (always || !body_.empty()) {
    fmt::format_to(std::back_inserter(head_), "Content-Length: {}\r\n", body_.size());
  }
  head_.append("\r\n");
  headers_.clear();
}

void Exchange::OnWritten(const absl::Status& status) {
  writing_ = false;
  if (status.ok()) {
    body_ = std::string();
  } else if (status.code() == absl::StatusCode::kFailedPrecondition) {
    // Closed before it took a byte. A kept-alive connection may be; a fresh one is tried instead.
    const bool reused = connection_->reused;
    connection_.reset();
    if (reused) return Connect();
    return Fail(fmt::format("the connection to {} broke before the request was sent: {}",
                            state_->host, core::Message(status)),
                /*reached=*/false);
  }
  // A server may answer and close without reading all: the Read that is outstanding tells.
  if (!stream_end_.ok() && !paused_) OnStreamEnd(stream_end_);
}

void Exchange::OnRead(absl::StatusOr<size_t> count) {
  if (!count.ok()) {
    stream_end_ = count.status();
    // The Write under way still has to say whether any byte was taken.
    if (writing_ && connection_->reused && !parser_->got_some()) return;
    if (!paused_) OnStreamEnd(count.status());
    return;
  }
  Deliver();
}

void Exchange::PauseBody(bool paused) {
  if (paused_ == paused) return;
  paused_ = paused;
  if (paused || state_ == nullptr || connection_ == nullptr) return;
  state_->loop.Post(life_.Wrap([this] {
    if (!paused_ && connection_ != nullptr && !connection_->reading) Deliver();
  }));
}

// Hands on what is in the buffer, element by element, then reads on.
void Exchange::Deliver() {
  auto alive = life_.Watch();
  while (!paused_ && !parser_->is_done()) {
    const std::string_view pending = connection_->pending();
    if (pending.empty()) break;
    BeastError ec;
    const size_t consumed = parser_->Feed(pending, ec);
    connection_->begin += consumed;
    if (ec && ec != beast_http::error::need_more) {
      return Fail(fmt::format("{} sent a malformed answer: {}", state_->host, ec.message()),
                  /*reached=*/true);
    }
    if (!head_delivered_ && parser_->is_header_done()) {
      if (parser_->status() / 100 == 1) {  // an interim answer: the final one follows
        parser_.emplace(state_->limits.header_bytes_max, method_ == "HEAD");
        continue;
      }
      head_delivered_ = true;
      sink_->OnHead(parser_->TakeHead());
      if (alive.expired()) return;
    }
    const std::string_view piece = parser_->TakePiece();
    if (!piece.empty()) {
      body_bytes_ += piece.size();
      sink_->OnBody(piece);
      if (alive.expired()) return;
    }
    if (ec || (consumed == 0 && piece.empty())) break;  // more bytes are needed
  }
  if (parser_->is_done()) return Complete();
  if (paused_) return;
  if (!stream_end_.ok()) return OnStreamEnd(stream_end_);
  if (connection_->pending().size() == connection_->capacity) {
    return Fail(fmt::format("{} sent an answer whose head is longer than {} bytes", state_->host,
                            connection_->capacity),
                /*reached=*/true);
  }
  state_->StartRead(connection_.get());
}

void Exchange::OnStreamEnd(const absl::Status& status) {
  const bool in_order = status.code() == absl::StatusCode::kOutOfRange;
  if (in_order && head_delivered_ && parser_->need_eof()) {
    BeastError ec;
    parser_->put_eof(ec);
    if (!ec) return Complete();
  }
  const std::string_view why =
      in_order ? std::string_view("it closed the connection") : core::Message(status);
  if (!head_delivered_) {
    return Fail(fmt::format("{} gave no answer to {} {}: {}; it may have acted on it", state_->host,
                            method_, target_, why),
                /*reached=*/true);
  }
  Fail(fmt::format("the answer of {} to {} {} broke off after {} bytes of its body: {}",
                   state_->host, method_, target_, body_bytes_, why),
       /*reached=*/true);
}

void Exchange::Complete() {
  const bool reusable =
      parser_->keep_alive() && !writing_ && stream_end_.ok() && connection_->pending().empty();
  if (reusable) state_->KeepIdle(std::move(connection_));
  Finish(absl::OkStatus(), /*reached=*/true);
}

void Exchange::Fail(std::string_view message, bool reached) {
  Finish(core::MakeError(absl::StatusCode::kUnavailable, message), reached);
}

void Exchange::Finish(absl::Status status, bool reached) {
  Detach();
  sink_->OnEnd(std::move(status), reached);
}

}  // namespace

std::unique_ptr<PooledConnection> HttpClientState::TakeIdle() {
  DropExpired();
  if (idle.empty()) return nullptr;
  auto connection = std::move(idle.back());
  idle.pop_back();
  connection->reused = true;
  return connection;
}

void HttpClientState::KeepIdle(std::unique_ptr<PooledConnection> connection) {
  connection->user = nullptr;
  connection->idle_since = loop.Now();
  StartRead(connection.get());
  idle.push_back(std::move(connection));
  if (idle.size() > limits.idle_connections_max) idle.pop_front();
  if (!expiry.pending()) expiry = loop.After(limits.idle_max, [this] { DropExpired(); });
}

void HttpClientState::DropExpired() {
  const absl::Time oldest_kept = loop.Now() - limits.idle_max;
  while (!idle.empty() && idle.front()->idle_since <= oldest_kept) idle.pop_front();
  if (!idle.empty() && !expiry.pending()) {
    expiry = loop.After(idle.front()->idle_since - oldest_kept, [this] { DropExpired(); });
  }
}

void HttpClientState::StartRead(PooledConnection* connection) {
  if (connection->reading) return;
  if (connection->begin > 0) {
    const size_t kept = connection->pending().size();
    if (kept > 0) {
      std::memmove(connection->buffer.get(), connection->buffer.get() + connection->begin, kept);
    }
    connection->begin = 0;
    connection->end = kept;
  }
  connection->reading = true;
  connection->stream->Read(
      {connection->buffer.get() + connection->end, connection->capacity - connection->end},
      [this, connection](absl::StatusOr<size_t> count) { OnRead(connection, std::move(count)); });
}

void HttpClientState::OnRead(PooledConnection* connection, absl::StatusOr<size_t> count) {
  connection->reading = false;
  if (count.ok()) connection->end += *count;
  if (connection->user != nullptr) return connection->user->OnRead(std::move(count));
  // Closed by the server, or it talks out of turn: either way of no use.
  std::erase_if(idle, [connection](const auto& item) { return item.get() == connection; });
}

HttpClient::HttpClient(core::EventLoop& loop, std::unique_ptr<Connector> connector,
                       std::string host, HttpClientLimits limits)
    : state_(
          std::make_shared<HttpClientState>(loop, std::move(connector), std::move(host), limits)) {}

HttpClient::~HttpClient() {
  while (!state_->exchanges.empty()) state_->exchanges.begin()->second->Detach();
}

std::unique_ptr<HttpExchange> HttpClient::Send(std::string method, std::string target,
                                               HeaderList headers, std::string body,
                                               HttpResponseSink* sink) {
  return std::make_unique<Exchange>(state_.get(), std::move(method), std::move(target),
                                    std::move(headers), std::move(body), sink);
}

const std::string* HttpResponseHead::Header(std::string_view name) const {
  return FindHeader(headers, name);
}

}  // namespace callboard::net
