// HttpConnection, first half: reading requests, deadlines, ends, and the responder.
#include "net/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace callboard::net {

namespace {

constexpr size_t kIdleBufferBytes = 4 * 1024;
constexpr size_t kBodyBufferBytes = 64 * 1024;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

HttpConnection::HttpConnection(core::EventLoop& loop, const HttpServerLimits& limits, uint64_t id,
                               std::weak_ptr<HttpConnectionHost> host,
                               std::unique_ptr<ByteStream> stream)
    : loop_(loop),
      limits_(limits),
      id_(id),
      tick_(std::min(
          {limits.header_timeout, limits.body_timeout, limits.idle_timeout, limits.write_timeout})),
      host_(std::move(host)),
      peer_name_(stream->PeerName()),
      stream_(std::move(stream)) {}

HttpConnection::~HttpConnection() = default;

void HttpConnection::Start() {
  SetReadDeadline(limits_.idle_timeout);
  StartRead();
}

void HttpConnection::Drain() {
  draining_ = true;
  const bool idle = phase_ == Phase::kReading && !parser_ && pending().empty();
  if (idle) Close();
}

void HttpConnection::Close() {
  if (phase_ == Phase::kClosed) return;
  auto self = shared_from_this();
  phase_ = Phase::kClosed;
  if (responder_ != nullptr) std::exchange(responder_, nullptr)->Detach(PeerLoss::kNone);
  timer_.Cancel();
  stream_.reset();
  // What the handler lent is destroyed last, from here: its destructors may call anything.
  const auto queue = std::move(queue_);
  const auto on_peer_gone = std::move(on_peer_gone_);
  queue_.clear();
  on_peer_gone_ = nullptr;
  unsent_bytes_ = 0;
  if (auto host = host_.lock()) host->OnClosed(id_);
}

void HttpConnection::PeerGone(PeerLoss loss) {
  if (responder_ != nullptr) std::exchange(responder_, nullptr)->Detach(loss);
  auto on_peer_gone = std::move(on_peer_gone_);
  on_peer_gone_ = nullptr;
  Close();
  if (on_peer_gone) on_peer_gone();
}

// --- Reading ---

bool HttpConnection::MakeRoom() {
  if (begin_ == end_) begin_ = end_ = 0;
  // While an answer is under way, what is pipelined behind the request is bounded.
  if (phase_ != Phase::kReading && pending().size() >= limits_.header_bytes_max) return false;
  size_t wanted = std::max(capacity_, kIdleBufferBytes);
  if (begin_ == 0 && end_ == capacity_ && capacity_ > 0) {
    wanted = capacity_ * 2;  // ends at the header limit, where the request is refused
  } else if (linger_ || (parser_ && parser_->is_header_done())) {
    wanted = std::max(wanted, kBodyBufferBytes);
  } else if (begin_ == end_ && capacity_ > kIdleBufferBytes && !parser_) {
    wanted = kIdleBufferBytes;
  }
  if (wanted != capacity_) {
    auto larger = std::make_unique_for_overwrite<char[]>(wanted);
    const size_t kept = pending().size();
    if (kept > 0) std::memcpy(larger.get(), buffer_.get() + begin_, kept);
    buffer_ = std::move(larger);
    capacity_ = wanted;
    begin_ = 0;
    end_ = kept;
  } else if (begin_ > 0 && end_ == capacity_) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return true;
}

void HttpConnection::StartRead() {
  if (reading_ || peer_ended_ || phase_ == Phase::kClosed || !MakeRoom()) return;
  reading_ = true;
  stream_->Read({buffer_.get() + end_, capacity_ - end_},
                [this](absl::StatusOr<size_t> count) { OnRead(std::move(count)); });
}

void HttpConnection::OnRead(absl::StatusOr<size_t> count) {
  auto self = shared_from_this();
  reading_ = false;
  if (!count.ok()) {
    if (count.status().code() == absl::StatusCode::kOutOfRange) {
      peer_ended_ = true;
      OnPeerEnd();
    } else {
      PeerGone(absl::IsDeadlineExceeded(count.status()) ? PeerLoss::kSilent : PeerLoss::kClosed);
    }
    return;
  }
  end_ += *count;
  if (phase_ == Phase::kLingering || (phase_ == Phase::kFinishing && linger_)) {
    begin_ = end_ = 0;
  } else if (phase_ == Phase::kReading) {
    Parse();
  }
  StartRead();
}

void HttpConnection::OnPeerEnd() {
  switch (phase_) {
    case Phase::kReading:
    case Phase::kLingering:
      Close();
      break;
    case Phase::kStreaming:
      // An open-ended stream to a peer that has closed serves nobody; a client that only ended its
      // own side still gets an answer of known length.
      if (!left_to_send_) PeerGone(PeerLoss::kClosed);
      break;
    case Phase::kAnswering:
    case Phase::kFinishing:
    case Phase::kClosed:
      break;  // a half-closed client still gets its answers
  }
}

void HttpConnection::Parse() {
  if (!parser_) {
    // RFC 9112 2.2: empty lines before a request line are ignored.
    while (begin_ < end_ && (buffer_[begin_] == '\r' || buffer_[begin_] == '\n')) ++begin_;
    if (begin_ == end_) return;
    parser_.emplace(limits_.header_bytes_max, limits_.body_bytes_max);
    sent_continue_ = false;
    read_deadline_ = absl::InfiniteFuture();
  }
  BeastError ec;
  begin_ += parser_->Feed(pending(), ec);
  if (ec && ec != beast_http::error::need_more) return RefuseRequest(ec);
  if (parser_->is_done()) return Dispatch();

  if (!parser_->is_header_done()) {
    if (parser_->head_bytes() + pending().size() >= limits_.header_bytes_max) {
      return RefuseRequest(beast_http::error::header_limit);
    }
    // Counted from the first byte: not moved by the bytes that follow.
    if (read_deadline_ == absl::InfiniteFuture()) SetReadDeadline(limits_.header_timeout);
    return;
  }
  if (pending().size() >= std::max(kIdleBufferBytes, limits_.header_bytes_max)) {
    return RefuseRequest(400, fmt::format("a chunk's head or trailer is longer than {} bytes; send "
                                          "shorter ones",
                                          limits_.header_bytes_max));
  }
  SetReadDeadline(limits_.body_timeout);
  if (!sent_continue_ && parser_->expects_continue() && pending().empty()) {
    sent_continue_ = true;
    Queue({.data = std::string(kContinue)});
    Flush();
  }
}

void HttpConnection::Dispatch() {
  http11_ = parser_->http11();
  close_after_ = !parser_->keep_alive() || (peer_ended_ && pending().empty());
  HttpRequest request = parser_->TakeRequest();
  parser_.reset();
  head_request_ = request.method == "HEAD";
  request.peer = peer_name_;
  linger_ = false;
  chunked_ = false;
  left_to_send_.reset();
  read_deadline_ = absl::InfiniteFuture();
  phase_ = Phase::kAnswering;

  auto host = host_.lock();
  if (host == nullptr) return Close();
  auto responder = std::make_shared<Responder>(loop_, weak_from_this());
  responder_ = responder.get();
  ++corked_;
  host->OnRequest(std::move(request), std::move(responder));
  --corked_;
  Flush();
}

void HttpConnection::RefuseRequest(const BeastError& ec) {
  if (ec == beast_http::error::header_limit) {
    return RefuseRequest(431, fmt::format("the request's head is longer than {} bytes; send fewer "
                                          "or shorter headers",
                                          limits_.header_bytes_max));
  }
  if (ec == beast_http::error::body_limit) {
    const std::string_view length = parser_->HeaderSoFar("Content-Length");
    return RefuseRequest(
        413, fmt::format("the request's body ({}{}) is larger than the limit of {} bytes; send "
                         "less in one request",
                         length.empty() ? "chunked" : length, length.empty() ? "" : " bytes",
                         limits_.body_bytes_max));
  }
  RefuseRequest(400, fmt::format("malformed HTTP request: {}; send HTTP/1.1 with either "
                                 "Content-Length or Transfer-Encoding: chunked",
                                 ec.message()));
}

void HttpConnection::RefuseRequest(int status, std::string_view message) {
  parser_.reset();
  begin_ = end_ = 0;
  read_deadline_ = absl::InfiniteFuture();
  close_after_ = true;
  linger_ = true;
  head_request_ = false;
  phase_ = Phase::kAnswering;
  // The messages are ours and hold nothing that JSON would have to escape.
  Respond(status, {{"Content-Type", "application/json"}},
          fmt::format(R"({{"error":"{}"}})", message));
}

// --- Deadlines ---

void HttpConnection::SetReadDeadline(absl::Duration after) {
  const absl::Time now = loop_.Now();
  read_deadline_ = now + after;
  ArmTimer(now);
}

void HttpConnection::ArmTimer(absl::Time now) {
  const absl::Time wanted = std::min(read_deadline_, write_deadline_);
  // Never armed later than one tick from now, so a deadline set later needs no new timer.
  if (wanted >= armed_for_) return;
  armed_for_ = std::min(wanted, now + tick_);
  timer_ = loop_.After(armed_for_ - now, [this] { OnTimer(); });
}

void HttpConnection::OnTimer() {
  auto self = shared_from_this();
  armed_for_ = absl::InfiniteFuture();
  const absl::Time now = loop_.Now();
  if (write_deadline_ <= now) return PeerGone(PeerLoss::kStalled);
  if (read_deadline_ <= now) {
    if (phase_ != Phase::kReading || !parser_) return Close();
    if (!parser_->is_header_done()) {
      return RefuseRequest(408, fmt::format("the request's head did not arrive within {} s; send "
                                            "it at once",
                                            absl::ToDoubleSeconds(limits_.header_timeout)));
    }
    return RefuseRequest(408, fmt::format("no byte of the request's body came for {} s; send it "
                                          "without pauses",
                                          absl::ToDoubleSeconds(limits_.body_timeout)));
  }
  ArmTimer(now);
}

}  // namespace callboard::net
