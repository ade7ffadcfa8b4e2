// Implementation of MemoryNetwork.
#include "tests/support/memory_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

namespace callboard::tests {

using StreamCallback = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<net::ByteStream>>)>;

struct MemoryNetwork::State {
  State(core::EventLoop& event_loop, core::Random& random_source, Options network_options)
      : loop(event_loop), random(random_source), options(network_options) {}

  core::EventLoop& loop;
  core::Random& random;
  const Options options;
  bool clogged = false;
  bool refuse = false;
  bool hang = false;
  uint64_t connects = 0;
  uint64_t last_port = 40'000;
  // Shared, because the listener may be destroyed by what it calls.
  std::shared_ptr<absl::AnyInvocable<void(std::unique_ptr<net::ByteStream>)>> on_accept;
  std::vector<std::weak_ptr<MemoryConversation>> conversations;
};

// Bytes taken from the front without moving the rest each time.
class ByteQueue {
 public:
  void Append(std::string_view bytes) { bytes_.append(bytes); }
  bool empty() const { return taken_ == bytes_.size(); }
  size_t size() const { return bytes_.size() - taken_; }
  void Clear() {
    bytes_.clear();
    taken_ = 0;
  }
  std::string_view Take(size_t count) {
    if (taken_ > bytes_.size() / 2) {
      bytes_.erase(0, taken_);
      taken_ = 0;
    }
    const std::string_view front = std::string_view(bytes_).substr(taken_, count);
    taken_ += front.size();
    return front;
  }

 private:
  std::string bytes_;
  size_t taken_ = 0;
};

// Both directions of one connection. Kept by its two ends.
class MemoryConversation final : public std::enable_shared_from_this<MemoryConversation> {
 public:
  MemoryConversation(std::shared_ptr<MemoryNetwork::State> network, std::string client)
      : network_(std::move(network)), client_(std::move(client)) {}

  void Read(int side, std::span<char> buffer,
            absl::AnyInvocable<void(absl::StatusOr<size_t>)> callback) {
    End& end = ends_[side];
    end.read_buffer = buffer;
    end.on_read = std::move(callback);
    Later([side](MemoryConversation& self) { self.FinishRead(side); });
  }

  void Write(int side, const std::vector<std::string_view>& pieces,
             absl::AnyInvocable<void(absl::Status)> callback) {
    End& end = ends_[side];
    end.on_write = std::move(callback);
    if (end.broken || end.closed) {
      Later([side](MemoryConversation& self) {
        const bool closed = self.ends_[side].closed;
        self.FinishWrite(side, closed ? absl::CancelledError("the stream was closed")
                                      : absl::FailedPreconditionError("broken pipe"));
      });
      return;
    }
    for (std::string_view piece : pieces) end.to_send.Append(piece);
    Later([side](MemoryConversation& self) { self.Send(side); });
  }

  void Close(int side) {
    End& end = ends_[side];
    if (end.closed) return;
    end.closed = true;
    // Unread bytes turn the orderly end into a reset, as in TCP.
    const bool reset = !end.arrived.empty();
    if (!half_open_) Deliver(side, {}, reset ? Kind::kReset : Kind::kEnd);
    end.arrived.Clear();
    Later([side](MemoryConversation& self) {
      self.FinishRead(side);
      self.FinishWrite(side, absl::CancelledError("the stream was closed"));
    });
  }

  // The stream object is gone: no callback any more.
  void Drop(int side) {
    const auto on_read = std::exchange(ends_[side].on_read, nullptr);
    const auto on_write = std::exchange(ends_[side].on_write, nullptr);
    Close(side);
  }

  void Break() {
    for (int side : {0, 1}) BreakSide(side);
  }
  void HalfOpen() { half_open_ = true; }
  void Unclog() {
    for (int side : {0, 1}) {
      Later([side](MemoryConversation& self) { self.Send(side); });
      Later([side](MemoryConversation& self) { self.FinishRead(side); });
    }
  }
  bool open() const { return !ends_[0].closed || !ends_[1].closed; }
  const std::string& client() const { return client_; }

 private:
  enum class Kind { kBytes, kEnd, kReset };

  struct End {
    ByteQueue to_send;  // of the Write outstanding
    ByteQueue arrived;
    bool closed = false;
    bool peer_ended = false;
    bool broken = false;
    std::span<char> read_buffer;
    absl::AnyInvocable<void(absl::StatusOr<size_t>)> on_read;
    absl::AnyInvocable<void(absl::Status)> on_write;
    size_t in_flight = 0;  // sent and not yet read by the peer
  };

  template <class Fn>
  void Later(Fn fn) {
    network_->loop.Post([weak = weak_from_this(), fn] {
      if (auto self = weak.lock()) fn(*self);
    });
  }

  // Takes what the window has room for; the Write is complete when all is taken.
  void Send(int side) {
    End& end = ends_[side];
    if (end.on_write == nullptr || end.closed || end.broken || network_->clogged) return;
    const size_t room = half_open_ ? end.to_send.size()
                                   : network_->options.window_bytes -
                                         std::min(network_->options.window_bytes, end.in_flight);
    const size_t count = std::min(room, end.to_send.size());
    std::string bytes(end.to_send.Take(count));
    if (!half_open_ && !bytes.empty()) {
      end.in_flight += count;
      Deliver(side, std::move(bytes), Kind::kBytes);
    }
    if (end.to_send.empty()) FinishWrite(side, absl::OkStatus());
  }

  void Deliver(int from, std::string bytes, Kind kind) {
    // Timers of equal delay run in the order they were set, which keeps the bytes in order.
    timers_.push_back(network_->loop.After(network_->options.latency,
                                           [this, from, bytes = std::move(bytes), kind]() mutable {
                                             auto self = shared_from_this();
                                             while (!timers_.empty() && !timers_.front().pending())
                                               timers_.pop_front();
                                             Arrive(1 - from, std::move(bytes), kind);
                                           }));
  }

  void Arrive(int side, std::string bytes, Kind kind) {
    if (half_open_) return;
    End& end = ends_[side];
    if (kind == Kind::kReset) return BreakSide(side);
    if (kind == Kind::kEnd) {
      end.peer_ended = true;
    } else if (end.closed) {
      return Deliver(side, {}, Kind::kReset);
    } else {
      end.arrived.Append(bytes);
    }
    FinishRead(side);
  }

  void BreakSide(int side) {
    End& end = ends_[side];
    end.broken = true;
    end.arrived.Clear();
    // A Write that begins after this has an answer of its own: nothing of it was taken.
    Later([side, writing = end.on_write != nullptr](MemoryConversation& self) {
      self.FinishRead(side);
      if (writing) self.FinishWrite(side, absl::UnavailableError("connection reset by peer"));
    });
  }

  void FinishRead(int side) {
    End& end = ends_[side];
    if (end.on_read == nullptr) return;
    absl::StatusOr<size_t> result = size_t{0};
    if (end.closed) {
      result = absl::CancelledError("the stream was closed");
    } else if (end.broken) {
      result = absl::UnavailableError("connection reset by peer");
    } else if (network_->clogged) {
      return;
    } else if (!end.arrived.empty()) {
      size_t count = std::min(end.arrived.size(), end.read_buffer.size());
      const size_t slice = network_->options.slice_bytes_max;
      if (slice > 0) count = std::min<size_t>(count, 1 + network_->random.Below(slice));
      std::memcpy(end.read_buffer.data(), end.arrived.Take(count).data(), count);
      ends_[1 - side].in_flight -= count;
      Later([side](MemoryConversation& self) { self.Send(1 - side); });
      result = count;
    } else if (end.peer_ended) {
      result = absl::OutOfRangeError("the peer closed");
    } else {
      return;
    }
    auto callback = std::exchange(end.on_read, nullptr);
    callback(std::move(result));
  }

  void FinishWrite(int side, absl::Status status) {
    End& end = ends_[side];
    if (end.on_write == nullptr) return;
    end.to_send.Clear();
    auto callback = std::exchange(end.on_write, nullptr);
    callback(std::move(status));
  }

  std::shared_ptr<MemoryNetwork::State> network_;
  const std::string client_;
  End ends_[2];  // 0: the client's
  bool half_open_ = false;
  std::deque<core::Timer> timers_;
};

namespace {

class MemoryStream final : public net::ByteStream {
 public:
  MemoryStream(std::shared_ptr<MemoryConversation> conversation, int side, std::string peer)
      : conversation_(std::move(conversation)), side_(side), peer_(std::move(peer)) {}
  ~MemoryStream() override { conversation_->Drop(side_); }

  void Read(std::span<char> buffer,
            absl::AnyInvocable<void(absl::StatusOr<size_t>)> callback) override {
    conversation_->Read(side_, buffer, std::move(callback));
  }
  void Write(std::vector<std::string_view> pieces,
             absl::AnyInvocable<void(absl::Status)> callback) override {
    conversation_->Write(side_, pieces, std::move(callback));
  }
  void Close() override { conversation_->Close(side_); }
  std::string PeerName() const override { return peer_; }

 private:
  std::shared_ptr<MemoryConversation> conversation_;
  const int side_;
  const std::string peer_;
};

class MemoryListener final : public net::Listener {
 public:
  explicit MemoryListener(std::shared_ptr<MemoryNetwork::State> state) : state_(std::move(state)) {}
  ~MemoryListener() override { const auto dropped = std::exchange(state_->on_accept, nullptr); }
  void Start(absl::AnyInvocable<void(std::unique_ptr<net::ByteStream>)> on_accept) override {
    state_->on_accept =
        std::make_shared<absl::AnyInvocable<void(std::unique_ptr<net::ByteStream>)>>(
            std::move(on_accept));
  }

 private:
  std::shared_ptr<MemoryNetwork::State> state_;
};

class MemoryConnector final : public net::Connector {
 public:
  MemoryConnector(std::shared_ptr<MemoryNetwork::State> state, std::string client)
      : state_(std::move(state)), client_(std::move(client)) {}

  void Connect(StreamCallback callback) override {
    const absl::Duration round_trip = 2 * state_->options.latency;
    while (!timers_.empty() && !timers_.front().pending()) timers_.pop_front();
    timers_.push_back(state_->loop.After(
        round_trip, [this, callback = std::move(callback)]() mutable { Finish(callback); }));
  }

 private:
  void Finish(StreamCallback& callback) {
    ++state_->connects;
    if (state_->hang) {
      hanging_.push_back(std::move(callback));
      return;
    }
    if (state_->refuse || state_->on_accept == nullptr) {
      return callback(absl::UnavailableError("connection refused"));
    }
    auto state = state_;
    auto conversation = std::make_shared<MemoryConversation>(state, client_);
    std::erase_if(state->conversations, [](const auto& weak) { return weak.expired(); });
    state->conversations.push_back(conversation);
    const std::string name = fmt::format("{}:{}", client_, ++state->last_port);
    auto client_end = std::make_unique<MemoryStream>(conversation, 0, "memory:0");
    auto on_accept = state->on_accept;
    (*on_accept)(std::make_unique<MemoryStream>(conversation, 1, name));
    callback(std::move(client_end));
  }

  std::shared_ptr<MemoryNetwork::State> state_;
  const std::string client_;
  std::deque<core::Timer> timers_;
  std::vector<StreamCallback> hanging_;
};

}  // namespace

MemoryNetwork::MemoryNetwork(core::EventLoop& loop, core::Random& random, Options options)
    : state_(std::make_shared<State>(loop, random, options)) {}
MemoryNetwork::~MemoryNetwork() = default;

std::unique_ptr<net::Listener> MemoryNetwork::Listen() {
  return std::make_unique<MemoryListener>(state_);
}
std::unique_ptr<net::Connector> MemoryNetwork::MakeConnector(std::string client) {
  return std::make_unique<MemoryConnector>(state_, std::move(client));
}

void MemoryNetwork::Break(std::string_view client) {
  for (const auto& weak : state_->conversations) {
    auto conversation = weak.lock();
    if (conversation != nullptr && (client.empty() || conversation->client() == client)) {
      conversation->Break();
    }
  }
}

void MemoryNetwork::HalfOpen(std::string_view client) {
  for (const auto& weak : state_->conversations) {
    auto conversation = weak.lock();
    if (conversation != nullptr && (client.empty() || conversation->client() == client)) {
      conversation->HalfOpen();
    }
  }
}

void MemoryNetwork::Clog(bool clogged) {
  state_->clogged = clogged;
  if (clogged) return;
  for (const auto& weak : state_->conversations) {
    if (auto conversation = weak.lock()) conversation->Unclog();
  }
}

void MemoryNetwork::RefuseConnects(bool refuse) { state_->refuse = refuse; }
void MemoryNetwork::HangConnects(bool hang) { state_->hang = hang; }

size_t MemoryNetwork::open_streams() const {
  size_t count = 0;
  for (const auto& weak : state_->conversations) {
    auto conversation = weak.lock();
    if (conversation != nullptr && conversation->open()) ++count;
  }
  return count;
}
uint64_t MemoryNetwork::connects() const { return state_->connects; }

}  // namespace callboard::tests
