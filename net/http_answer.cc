// HttpConnection, second half: framing, queueing and writing of answers.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "net/http_connection.h"

namespace callboard::net {

namespace {

// One Write takes at most so much, so that the write limit measures progress, not size.
constexpr size_t kWriteBytesMax = 256 * 1024;
constexpr size_t kWritePiecesMax = 62;
// A refused peer that is still sending would get a reset instead of the answer if we closed at
// once; it is given so long to read it.
constexpr absl::Duration kLingerTime = absl::Seconds(2);

bool StatusHasBody(int status) { return status >= 200 && status != 204 && status != 304; }

}  // namespace

std::string HttpConnection::FormatHead(int status, const HeaderList& headers,
                                       std::string_view framing) const {
  std::string head;
  size_t bytes = 96 + framing.size();
  for (const auto& [name, value] : headers) bytes += name.size() + value.size() + 4;
  head.reserve(bytes);
  fmt::format_to(std::back_inserter(head), "HTTP/1.1 {} {}\r\n", status, HttpReason(status));
  for (const auto& [name, value] : headers) AppendHeader(head, name, value);
  head.append(framing);
  if (close_after_) {
    head.append("Connection: close\r\n");
  } else if (!http11_) {
    head.append("Connection: keep-alive\r\n");
  }
  head.append("\r\n");
  return head;
}

void HttpConnection::Respond(int status, const HeaderList& headers, std::string body) {
  if (phase_ != Phase::kAnswering) return;
  if (draining_) close_after_ = true;
  const bool has_body = StatusHasBody(status);
  Queue({.data = FormatHead(
             status, headers,
             has_body ? fmt::format("Content-Length: {}\r\n", body.size()) : std::string())});
  if (has_body && !head_request_ && !body.empty()) Queue({.data = std::move(body)});
  phase_ = Phase::kFinishing;
  Flush();
}

void HttpConnection::StartStream(int status, const HeaderList& headers,
                                 std::optional<uint64_t> content_length) {
  if (phase_ != Phase::kAnswering) return;
  if (draining_) close_after_ = true;
  std::string framing;
  if (content_length) {
    framing = fmt::format("Content-Length: {}\r\n", *content_length);
  } else if (http11_) {
    framing = "Transfer-Encoding: chunked\r\n";
    chunked_ = true;
  } else {
    close_after_ = true;
  }
  left_to_send_ = content_length;
  phase_ = Phase::kStreaming;
  Queue({.data = FormatHead(status, headers, framing)});
  // The head waits for the first piece, or for the end of this turn of the loop.
  loop_.Post([weak = weak_from_this()] {
    auto self = weak.lock();
    if (self == nullptr) return;
    if (self->peer_ended_) return self->OnPeerEnd();
    self->Flush();
  });
}

void HttpConnection::WritePiece(std::string data, absl::AnyInvocable<void()> written) {
  if (phase_ != Phase::kStreaming) return;
  if (left_to_send_) {
    if (data.size() > *left_to_send_) data.resize(*left_to_send_);
    *left_to_send_ -= data.size();
  }
  if (head_request_) data.clear();
  Piece piece{.data = std::move(data), .written = std::move(written)};
  if (chunked_ && !piece.data.empty()) {
    piece.frame = fmt::format("{:x}\r\n", piece.data.size());
    piece.chunk_end = true;
  }
  Queue(std::move(piece));
  Flush();
}

void HttpConnection::End(bool close) {
  if (phase_ != Phase::kStreaming) return;
  // Fewer bytes than announced: only a broken connection tells the peer.
  if (left_to_send_.value_or(0) > 0 && !head_request_) return Close();
  if (chunked_ && !head_request_) Queue({.data = "0\r\n\r\n"});
  if (close || draining_) close_after_ = true;
  phase_ = Phase::kFinishing;
  Queue({});  // so that an answer all written already finishes as well
  Flush();
}

void HttpConnection::Queue(Piece piece) {
  unsent_bytes_ += piece.size();
  queue_.push_back(std::move(piece));
}

void HttpConnection::Flush() {
  if (corked_ > 0 || writing_ || queue_.empty() || phase_ == Phase::kClosed) return;
  std::vector<std::string_view> views;
  size_t skip = front_sent_bytes_;
  size_t room = kWriteBytesMax;
  for (const Piece& piece : queue_) {
    for (std::string_view part : {std::string_view(piece.frame), std::string_view(piece.data),
                                  std::string_view(piece.chunk_end ? "\r\n" : "")}) {
      const size_t skipped = std::min(skip, part.size());
      skip -= skipped;
      part = part.substr(skipped, room);
      room -= part.size();
      if (!part.empty()) views.push_back(part);
    }
    if (room == 0 || views.size() >= kWritePiecesMax) break;
  }
  writing_ = true;
  in_flight_bytes_ = kWriteBytesMax - room;
  if (in_flight_bytes_ == 0) {
    // Only callbacks to run, or the end of the answer; never from inside the caller.
    loop_.Post([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->OnWritten(absl::OkStatus());
    });
    return;
  }
  const absl::Time now = loop_.Now();
  write_deadline_ = now + limits_.write_timeout;
  ArmTimer(now);
  stream_->Write(std::move(views), [this](const absl::Status& status) { OnWritten(status); });
}

void HttpConnection::OnWritten(const absl::Status& status) {
  if (phase_ == Phase::kClosed) return;
  auto self = shared_from_this();
  writing_ = false;
  write_deadline_ = absl::InfiniteFuture();
  if (!status.ok()) {
    return PeerGone(absl::IsDeadlineExceeded(status) ? PeerLoss::kSilent : PeerLoss::kWriteFailed);
  }
  unsent_bytes_ -= in_flight_bytes_;
  front_sent_bytes_ += in_flight_bytes_;
  in_flight_bytes_ = 0;
  ++corked_;
  while (!queue_.empty() && queue_.front().size() <= front_sent_bytes_) {
    front_sent_bytes_ -= queue_.front().size();
    auto written = std::move(queue_.front().written);
    queue_.pop_front();
    if (written) written();
    if (phase_ == Phase::kClosed) return;
  }
  --corked_;
  if (!queue_.empty()) return Flush();
  if (phase_ == Phase::kFinishing) FinishAnswer();
}

void HttpConnection::FinishAnswer() {
  if (responder_ != nullptr) std::exchange(responder_, nullptr)->Detach(PeerLoss::kNone);
  const auto on_peer_gone = std::move(on_peer_gone_);
  on_peer_gone_ = nullptr;
  if (close_after_ || draining_ || (peer_ended_ && pending().empty())) {
    if (peer_ended_ || (!linger_ && pending().empty())) return Close();
    phase_ = Phase::kLingering;
    begin_ = end_ = 0;
    SetReadDeadline(kLingerTime);
    return StartRead();
  }
  phase_ = Phase::kReading;
  SetReadDeadline(limits_.idle_timeout);
  if (!pending().empty()) Parse();
  if (peer_ended_ && phase_ == Phase::kReading) return Close();
  StartRead();
}

}  // namespace callboard::net
