// Implementation of TCP streams on Boost.Asio sockets.
#include "net/tcp.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "core/runtime/lifetime.h"
#include "core/runtime/strings.h"

namespace callboard::net {

namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
// Bound to the concrete executor: no type erasure per operation.
using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<Tcp, Executor>;
using Acceptor = asio::basic_socket_acceptor<Tcp, Executor>;
using Resolver = asio::ip::basic_resolver<Tcp, Executor>;
using Error = boost::system::error_code;

constexpr int kListenBacklog = 4096;
constexpr absl::Duration kNoDescriptorWait = absl::Milliseconds(100);

std::string Text(const Tcp::endpoint& endpoint) {
  const auto address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

// What cannot be set is not worth losing a stream for.
void SetOptions(Socket& socket, const TcpOptions& options) {
  using UserTimeout = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_USER_TIMEOUT>;
  using NotSentLowat = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_NOTSENT_LOWAT>;
  Error ignored;
  socket.set_option(Tcp::no_delay(true), ignored);
  socket.set_option(UserTimeout(options.user_timeout_ms), ignored);
  socket.set_option(NotSentLowat(options.notsent_lowat_bytes), ignored);
}

// The pieces of a write not yet taken; cheap to copy, as Asio copies what it is given.
struct BufferRange {
  using value_type = asio::const_buffer;
  using const_iterator = const asio::const_buffer*;
  const_iterator begin() const { return first; }
  const_iterator end() const { return last; }
  const_iterator first;
  const_iterator last;
};

// Kept alive by Asio's pending operations; callbacks are dropped when the stream is destroyed.
// Asio tries each operation at once and completes it through the loop's queue, never inline.
class TcpSocket final : public std::enable_shared_from_this<TcpSocket> {
 public:
  TcpSocket(Socket socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

  void Read(std::span<char> buffer, absl::AnyInvocable<void(absl::StatusOr<size_t>)> callback) {
    read_callback_ = std::move(callback);
    socket_.async_read_some(asio::buffer(buffer.data(), buffer.size()),
                            [self = shared_from_this()](const Error& error, size_t count) {
                              self->OnRead(error, count);
                            });
  }

  void Write(std::vector<std::string_view> pieces,
             absl::AnyInvocable<void(absl::Status)> callback) {
    write_callback_ = std::move(callback);
    buffers_.clear();
    for (std::string_view piece : pieces) buffers_.emplace_back(piece.data(), piece.size());
    next_buffer_ = 0;
    taken_any_ = false;
    WriteSome();
  }

  void Close() {
    closed_ = true;
    Error ignored;
    socket_.close(ignored);
  }

  void Drop() {
    dropped_ = true;
    Close();
    // May own what destroys more: moved out first.
    const auto read_callback = std::move(read_callback_);
    const auto write_callback = std::move(write_callback_);
  }

  const std::string& peer() const { return peer_; }

 private:
  void WriteSome() {
    const BufferRange rest{buffers_.data() + next_buffer_, buffers_.data() + buffers_.size()};
    socket_.async_write_some(rest, [self = shared_from_this()](const Error& error, size_t count) {
      self->OnWritten(error, count);
    });
  }

  void OnRead(const Error& error, size_t count) {
    if (dropped_) return;
    auto callback = std::exchange(read_callback_, nullptr);
    if (!error) return callback(count);
    if (closed_) return callback(absl::CancelledError("the stream was closed"));
    if (error == asio::error::eof) {
      return callback(
          core::MakeError(absl::StatusCode::kOutOfRange, fmt::format("{} closed", peer_)));
    }
    callback(Broken(error));
  }

  void OnWritten(const Error& error, size_t count) {
    if (dropped_) return;
    if (error) {
      auto callback = std::exchange(write_callback_, nullptr);
      if (closed_) return callback(absl::CancelledError("the stream was closed"));
      return callback(Broken(error, taken_any_ ? absl::StatusCode::kUnavailable
                                               : absl::StatusCode::kFailedPrecondition));
    }
    taken_any_ = true;
    while (next_buffer_ < buffers_.size() && count >= buffers_[next_buffer_].size()) {
      count -= buffers_[next_buffer_].size();
      ++next_buffer_;
    }
    if (next_buffer_ < buffers_.size()) {
      buffers_[next_buffer_] += count;
      return WriteSome();
    }
    auto callback = std::exchange(write_callback_, nullptr);
    callback(absl::OkStatus());
  }

  absl::Status Broken(const Error& error,
                      absl::StatusCode code = absl::StatusCode::kUnavailable) const {
    if (error == asio::error::timed_out) code = absl::StatusCode::kDeadlineExceeded;
    return core::MakeError(code, fmt::format("{}: {}", peer_, error.message()));
  }

  Socket socket_;
  const std::string peer_;
  bool closed_ = false;
  bool dropped_ = false;
  absl::AnyInvocable<void(absl::StatusOr<size_t>)> read_callback_;
  absl::AnyInvocable<void(absl::Status)> write_callback_;
  std::vector<asio::const_buffer> buffers_;
  size_t next_buffer_ = 0;
  bool taken_any_ = false;
};

class TcpStream final : public ByteStream {
 public:
  TcpStream(Socket socket, std::string peer)
      : socket_(std::make_shared<TcpSocket>(std::move(socket), std::move(peer))) {}
  ~TcpStream() override { socket_->Drop(); }

  void Read(std::span<char> buffer,
            absl::AnyInvocable<void(absl::StatusOr<size_t>)> callback) override {
    socket_->Read(buffer, std::move(callback));
  }
  void Write(std::vector<std::string_view> pieces,
             absl::AnyInvocable<void(absl::Status)> callback) override {
    socket_->Write(std::move(pieces), std::move(callback));
  }
  void Close() override { socket_->Close(); }
  std::string PeerName() const override { return socket_->peer(); }

 private:
  std::shared_ptr<TcpSocket> socket_;
};

class AsioListener final : public Listener {
 public:
  AsioListener(core::AsioEventLoop& loop, Acceptor acceptor, TcpOptions options)
      : loop_(loop), acceptor_(std::move(acceptor)), options_(options) {}

  void Start(absl::AnyInvocable<void(std::unique_ptr<ByteStream>)> on_accept) override {
    on_accept_ = std::move(on_accept);
    Accept();
  }

 private:
  void Accept() {
    acceptor_.async_accept(life_.Wrap([this](const Error& error, Socket socket) {
      if (error) return OnError(error);
      Error gone;
      const Tcp::endpoint peer = socket.remote_endpoint(gone);
      auto alive = life_.Watch();
      if (!gone) {
        SetOptions(socket, options_);
        on_accept_(std::make_unique<TcpStream>(std::move(socket), Text(peer)));
      }
      if (!alive.expired()) Accept();
    }));
  }

  void OnError(const Error& error) {
    if (error == asio::error::operation_aborted) return;
    // A peer that hung up before it was accepted is no reason to wait; a lack of descriptors or
    // memory ends only when others give some back.
    if (error == asio::error::connection_aborted) return Accept();
    retry_ = loop_.After(kNoDescriptorWait, [this] { Accept(); });
  }

  core::AsioEventLoop& loop_;
  Acceptor acceptor_;
  const TcpOptions options_;
  absl::AnyInvocable<void(std::unique_ptr<ByteStream>)> on_accept_;
  core::Timer retry_;
  core::Lifetime life_;
};

using ConnectCallback = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>)>;

// One connect under way: tries the endpoints in their order.
class TcpConnect final : public std::enable_shared_from_this<TcpConnect> {
 public:
  TcpConnect(asio::io_context& io, std::string place, TcpOptions options,
             absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>)> done)
      : resolver_(io.get_executor()),
        socket_(io.get_executor()),
        place_(std::move(place)),
        options_(options),
        done_(std::move(done)) {}

  void Resolve(const std::string& host, uint16_t port) {
    resolver_.async_resolve(
        host, std::to_string(port),
        [self = shared_from_this()](const Error& error, const Tcp::resolver::results_type& found) {
          if (self->done_ == nullptr) return;
          if (error) return self->Fail(error);
          std::vector<Tcp::endpoint> endpoints;
          for (const auto& entry : found) endpoints.push_back(entry.endpoint());
          self->Try(std::move(endpoints));
        });
  }

  void Try(std::vector<Tcp::endpoint> endpoints) {
    endpoints_ = std::move(endpoints);
    next_ = 0;
    TryNext();
  }

  void Cancel() {
    const auto done = std::move(done_);
    done_ = nullptr;
    resolver_.cancel();
    Error ignored;
    socket_.close(ignored);
  }

 private:
  void TryNext() {
    Error ignored;
    socket_.close(ignored);
    socket_.async_connect(endpoints_[next_], [self = shared_from_this()](const Error& error) {
      if (self->done_ == nullptr) return;
      if (!error) return self->Succeed();
      if (++self->next_ < self->endpoints_.size()) return self->TryNext();
      self->Fail(error);
    });
  }

  void Succeed() {
    SetOptions(socket_, options_);
    auto done = std::exchange(done_, nullptr);
    done(std::make_unique<TcpStream>(std::move(socket_), Text(endpoints_[next_])));
  }

  void Fail(const Error& error) {
    auto done = std::exchange(done_, nullptr);
    done(core::MakeError(absl::StatusCode::kUnavailable,
                         fmt::format("connect to {}: {}", place_, error.message())));
  }

  Resolver resolver_;
  Socket socket_;
  const std::string place_;
  const TcpOptions options_;
  ConnectCallback done_;  // null once called or cancelled
  std::vector<Tcp::endpoint> endpoints_;
  size_t next_ = 0;
};

class TcpConnector final : public Connector {
 public:
  TcpConnector(core::AsioEventLoop& loop, std::string host, uint16_t port, TcpOptions options)
      : loop_(loop), host_(std::move(host)), port_(port), options_(options) {}

  ~TcpConnector() override {
    for (const auto& [id, connect] : connects_) connect->Cancel();
  }

  void Connect(ConnectCallback callback) override {
    const uint64_t id = ++last_id_;
    auto connect = std::make_shared<TcpConnect>(
        loop_.io(), fmt::format("{}:{}", host_, port_), options_,
        life_.Wrap([this, id, callback = std::move(callback)](
                       absl::StatusOr<std::unique_ptr<ByteStream>> stream) mutable {
          connects_.erase(id);
          auto done = std::move(callback);
          done(std::move(stream));
        }));
    connects_.emplace(id, connect);
    Error not_literal;
    const auto address = asio::ip::make_address(host_, not_literal);
    if (host_ == "localhost") {
      // Always this machine (RFC 6761), whatever a resolver makes of it; servers choose one family.
      connect->Try({Tcp::endpoint(asio::ip::address_v4::loopback(), port_),
                    Tcp::endpoint(asio::ip::address_v6::loopback(), port_)});
    } else if (not_literal) {
      connect->Resolve(host_, port_);
    } else {
      connect->Try({Tcp::endpoint(address, port_)});
    }
  }

 private:
  core::AsioEventLoop& loop_;
  const std::string host_;
  const uint16_t port_;
  const TcpOptions options_;
  std::map<uint64_t, std::shared_ptr<TcpConnect>> connects_;
  uint64_t last_id_ = 0;
  core::Lifetime life_;
};

}  // namespace

absl::StatusOr<TcpListener> ListenTcp(core::AsioEventLoop& loop, const std::string& address,
                                      uint16_t port, TcpOptions options) {
  Error error;
  const auto failure = [&](std::string_view step, std::string_view help) {
    return core::MakeError(absl::StatusCode::kUnavailable,
                           fmt::format("cannot listen on {}:{}: {}: {}; {}", address, port, step,
                                       error.message(), help));
  };
  const auto ip = asio::ip::make_address(address, error);
  if (error) {
    return core::MakeError(absl::StatusCode::kInvalidArgument,
                           fmt::format("cannot listen on '{}': not an IP address; use 127.0.0.1, "
                                       "0.0.0.0 or ::",
                                       address));
  }
  const Tcp::endpoint endpoint(ip, port);
  Acceptor acceptor(loop.io().get_executor());
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Acceptor::reuse_address(true), error);
  if (error) return failure("socket", "check the limit of open files");
  acceptor.bind(endpoint, error);
  if (error) return failure("bind", "choose another port, or stop what uses this one");
  acceptor.listen(kListenBacklog, error);
  if (error) return failure("listen", "choose another port, or stop what uses this one");
  TcpListener result;
  result.port = acceptor.local_endpoint(error).port();
  result.listener = std::make_unique<AsioListener>(loop, std::move(acceptor), options);
  return result;
}

std::unique_ptr<Connector> MakeTcpConnector(core::AsioEventLoop& loop, std::string host,
                                            uint16_t port, TcpOptions options) {
  return std::make_unique<TcpConnector>(loop, std::move(host), port, options);
}

}  // namespace callboard::net
