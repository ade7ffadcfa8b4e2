// One HTTP/1.1 server connection as a state machine over a byte stream. Included only inside net.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/runtime/event_loop.h"
#include "net/byte_stream.h"
#include "net/http_parser.h"
#include "net/http_server.h"

namespace callboard::net {

class HttpConnection;

// What a connection asks of the server that owns it.
class HttpConnectionHost {
 public:
  virtual ~HttpConnectionHost() = default;
  virtual void OnRequest(HttpRequest request, std::shared_ptr<HttpResponder> responder) = 0;
  // The connection is over; the host drops its reference.
  virtual void OnClosed(uint64_t connection_id) = 0;
};

// Loop thread only. The host owns it; stream callbacks and responders keep it alive for their own
// duration. Reads one request, hands it on, writes its answer, starts again. A Read is outstanding
// all the time as long as there is room for what may be pipelined (header_bytes_max), so one Read
// serves both the next request and the news that the peer has left.
// Deadlines are plain times, checked by one timer that is armed at most once per shortest limit.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(core::EventLoop& loop, const HttpServerLimits& limits, uint64_t id,
                 std::weak_ptr<HttpConnectionHost> host, std::unique_ptr<ByteStream> stream);
  ~HttpConnection();

  void Start();
  // Closes at once when idle, otherwise after the current answer.
  void Drain();
  // Drops everything; no callback of the handler runs any more.
  void Close();

 private:
  class Responder;

  enum class Phase {
    kReading,    // between requests or inside one
    kAnswering,  // the handler has the request
    kStreaming,  // a streamed answer is open
    kFinishing,  // the answer is complete and being written
    kLingering,  // written; the peer gets time to read it before the close
    kClosed,
  };

  // A queued part of an answer: a chunk's frame around it when it is one.
  struct Piece {
    std::string frame;
    std::string data;
    bool chunk_end = false;
    absl::AnyInvocable<void()> written;
    size_t size() const { return frame.size() + data.size() + (chunk_end ? 2 : 0); }
  };

  // Reading.
  void StartRead();
  bool MakeRoom();
  void OnRead(absl::StatusOr<size_t> count);
  void OnPeerEnd();
  void Parse();
  void Dispatch();
  void RefuseRequest(const BeastError& ec);
  void RefuseRequest(int status, std::string_view message);
  std::string_view pending() const { return {buffer_.get() + begin_, end_ - begin_}; }

  // Answering; called by the responder.
  void Respond(int status, const HeaderList& headers, std::string body);
  void StartStream(int status, const HeaderList& headers, std::optional<uint64_t> content_length);
  void WritePiece(std::string data, absl::AnyInvocable<void()> written);
  void End(bool close);
  std::string FormatHead(int status, const HeaderList& headers, std::string_view framing) const;

  // Writing.
  void Queue(Piece piece);
  void Flush();
  void OnWritten(const absl::Status& status);
  void FinishAnswer();

  // Ends.
  void PeerGone(PeerLoss loss);
  void OnTimer();
  void SetReadDeadline(absl::Duration after);
  void ArmTimer(absl::Time now);

  core::EventLoop& loop_;
  const HttpServerLimits limits_;
  const uint64_t id_;
  const absl::Duration tick_;  // the shortest of the limits
  std::weak_ptr<HttpConnectionHost> host_;
  std::string peer_name_;

  Phase phase_ = Phase::kReading;
  bool draining_ = false;

  // Unparsed bytes are [begin_, end_).
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool reading_ = false;
  bool peer_ended_ = false;
  std::optional<RequestParser> parser_;
  bool sent_continue_ = false;

  // Of the request being answered.
  bool head_request_ = false;
  bool http11_ = true;
  bool close_after_ = false;
  bool linger_ = false;
  bool chunked_ = false;
  std::optional<uint64_t> left_to_send_;  // of a stream framed by Content-Length
  Responder* responder_ = nullptr;        // null once its last reference is dropped
  absl::AnyInvocable<void()> on_peer_gone_;

  std::deque<Piece> queue_;
  size_t front_sent_bytes_ = 0;  // of queue_.front()
  size_t in_flight_bytes_ = 0;
  size_t unsent_bytes_ = 0;
  bool writing_ = false;
  int corked_ = 0;  // while positive, Flush waits to gather more

  absl::Time read_deadline_ = absl::InfiniteFuture();
  absl::Time write_deadline_ = absl::InfiniteFuture();
  absl::Time armed_for_ = absl::InfiniteFuture();
  core::Timer timer_;

  // Last: goes first, so that nothing it was lent is gone before it.
  std::unique_ptr<ByteStream> stream_;
};

// Stands between a handler, which may keep it for as long as it likes, and the connection.
class HttpConnection::Responder final : public HttpResponder,
                                        public std::enable_shared_from_this<Responder> {
 public:
  Responder(core::EventLoop& loop, std::weak_ptr<HttpConnection> connection)
      : loop_(loop), connection_(std::move(connection)) {}

  ~Responder() override {
    auto connection = Connection();
    if (connection == nullptr) return;
    connection->responder_ = nullptr;
    if (connection->phase_ == Phase::kAnswering || connection->phase_ == Phase::kStreaming) {
      connection->Close();
    }
  }

  void Respond(int status, HeaderList headers, std::string body) override {
    if (auto connection = Connection()) connection->Respond(status, headers, std::move(body));
  }
  void StartStream(int status, HeaderList headers,
                   std::optional<uint64_t> content_length) override {
    if (auto connection = Connection()) connection->StartStream(status, headers, content_length);
  }
  void Write(std::string piece, absl::AnyInvocable<void()> written) override {
    if (auto connection = Connection()) {
      connection->WritePiece(std::move(piece), std::move(written));
    }
  }
  void End(bool close) override {
    if (auto connection = Connection()) connection->End(close);
  }
  void Abort() override {
    if (auto connection = Connection()) connection->Close();
  }
  size_t unsent_bytes() const override {
    auto connection = Connection();
    return connection != nullptr ? connection->unsent_bytes_ : 0;
  }
  PeerLoss peer_loss() const override { return peer_loss_; }
  void OnPeerGone(absl::AnyInvocable<void()> callback) override {
    if (auto connection = Connection()) {
      connection->on_peer_gone_ = std::move(callback);
    } else if (peer_loss_ != PeerLoss::kNone) {
      loop_.Post([self = weak_from_this(), callback = std::move(callback)]() mutable {
        if (self.lock()) callback();
      });
    }
  }

  // The answer is complete or will never be.
  void Detach(PeerLoss loss) {
    connection_.reset();
    peer_loss_ = loss;
  }

 private:
  std::shared_ptr<HttpConnection> Connection() const { return connection_.lock(); }

  core::EventLoop& loop_;
  std::weak_ptr<HttpConnection> connection_;
  PeerLoss peer_loss_ = PeerLoss::kNone;
};

}  // namespace callboard::net
