// A peer that speaks bytes, not HTTP: for what no HTTP library would send.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "net/byte_stream.h"

namespace callboard::tests {

// Reads all that comes into `received`; writes what Send() queues. Loop thread only.
class RawPeer {
 public:
  explicit RawPeer(std::unique_ptr<net::ByteStream> stream, bool reads = true)
      : stream_(std::move(stream)) {
    if (reads) Read();
  }

  void Send(std::string bytes) {
    outbox_.push_back(std::move(bytes));
    if (outbox_.size() == 1) WriteNext();
  }
  void Read() {
    stream_->Read(buffer_, [this](absl::StatusOr<size_t> count) {
      if (!count.ok()) {
        end = count.status();
        return;
      }
      received.append(buffer_, *count);
      Read();
    });
  }
  void Leave() { stream_.reset(); }

  bool ended() const { return !end.ok(); }

  std::string received;
  absl::Status end;  // OK while open

 private:
  void WriteNext() {
    stream_->Write({outbox_.front()}, [this](const absl::Status& status) {
      if (!status.ok()) return;
      outbox_.pop_front();
      if (!outbox_.empty()) WriteNext();
    });
  }

  char buffer_[16 * 1024];
  std::deque<std::string> outbox_;
  std::unique_ptr<net::ByteStream> stream_;
};

// Opens one raw stream; null when refused.
template <class Loop>
std::unique_ptr<RawPeer> ConnectRaw(Loop& loop, net::Connector& connector, bool reads = true) {
  std::unique_ptr<RawPeer> peer;
  connector.Connect([&](absl::StatusOr<std::unique_ptr<net::ByteStream>> stream) {
    if (stream.ok()) peer = std::make_unique<RawPeer>(*std::move(stream), reads);
  });
  loop.RunReady();
  return peer;
}

}  // namespace callboard::tests
