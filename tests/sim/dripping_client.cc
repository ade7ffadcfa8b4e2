// Implementation of DrippingClient.
#include "tests/sim/dripping_client.h"

#include <fmt/format.h>

#include <utility>

namespace callboard::sim {
namespace {

constexpr std::string_view kName = "drip";

}  // namespace

DrippingClient::DrippingClient(ClientSurroundings& world, const net::HttpServerLimits& limits)
    : world_(world),
      header_timeout_(limits.header_timeout),
      connector_(world.connect(std::string(kName))),
      buffer_(4'096) {
  Connect();
}
DrippingClient::~DrippingClient() = default;

void DrippingClient::Connect() {
  in_header_ = ++connections_ % 2 == 1;
  const std::string body = R"({"jsonrpc":"2.0","id":1,"method":"ping"})";
  text_ = fmt::format(
      "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:9765\r\nContent-Type: application/json\r\n"
      "Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body);
  // A slow body comes after a whole header.
  sent_ = 0;
  connector_->Connect(
      lifetime_.Wrap([this](absl::StatusOr<std::unique_ptr<net::ByteStream>> stream) {
        if (!stream.ok()) return OnEnd();
        stream_ = *std::move(stream);
        first_byte_ = world_.loop.Now();
        world_.trace.Total("dripping connections");
        Read();
        Drip();
      }));
  timer_ = world_.loop.After(absl::Seconds(10), [this] {
    if (stream_ == nullptr) OnEnd();
  });
}

void DrippingClient::Drip() {
  if (sent_ == text_.size()) return;
  const absl::Time since = std::max(first_byte_, world_.last_disturbance(std::string(kName)));
  if (in_header_ && world_.loop.Now() - since > header_timeout_ + absl::Seconds(5)) {
    world_.trace.Violate("who drips its header is shown the door",
                         fmt::format("{} bytes in {}", sent_,
                                     absl::FormatDuration(world_.loop.Now() - first_byte_)));
  }
  const size_t whole = text_.find("\r\n\r\n") + 4;
  const size_t count = !in_header_ && sent_ == 0 ? whole : 1;
  stream_->Write({std::string_view(text_).substr(sent_, count)},
                 lifetime_.Wrap([this, count](const absl::Status& status) {
                   if (!status.ok()) return OnEnd();
                   sent_ += count;
                   timer_ = world_.loop.After(absl::Seconds(1), [this] { Drip(); });
                 }));
}

void DrippingClient::Read() {
  stream_->Read(buffer_, lifetime_.Wrap([this](const absl::StatusOr<size_t>& bytes) {
    if (!bytes.ok()) return OnEnd();
    // A whole request has had its answer: 400, as it names no session.
    if (sent_ == text_.size()) return OnEnd();
    Read();
  }));
}

// Later: this comes from inside the stream.
void DrippingClient::OnEnd() {
  lifetime_.Renew();
  timer_ = world_.loop.After(absl::Seconds(2), [this] {
    stream_.reset();
    Connect();
  });
}

}  // namespace callboard::sim
