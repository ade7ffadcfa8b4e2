// That the network in memory behaves as a ByteStream must, faults included.
#include "tests/support/memory_stream.h"

#include <gtest/gtest.h>

#include "core/runtime/random.h"
#include "tests/support/virtual_loop.h"
#include "tests/unit/net/raw_peer.h"

namespace callboard::tests {
namespace {

class MemoryNetworkTest : public testing::Test {
 protected:
  void Open(MemoryNetwork::Options options = {}) {
    network_ = std::make_unique<MemoryNetwork>(loop_, random_, options);
    listener_ = network_->Listen();
    listener_->Start([this](std::unique_ptr<net::ByteStream> stream) {
      server_ = std::make_unique<RawPeer>(std::move(stream));
    });
    connector_ = network_->MakeConnector("agent");
    connector_->Connect([this](absl::StatusOr<std::unique_ptr<net::ByteStream>> stream) {
      client_ = std::make_unique<RawPeer>(*std::move(stream));
    });
    loop_.RunFor(2 * options.latency);
    ASSERT_NE(client_, nullptr);
  }

  VirtualLoop loop_;
  core::SeededRandom random_{1};
  std::unique_ptr<MemoryNetwork> network_;
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<net::Connector> connector_;
  std::unique_ptr<RawPeer> client_;
  std::unique_ptr<RawPeer> server_;
};

TEST_F(MemoryNetworkTest, CarriesBytesWithLatencyAndEndsInOrder) {
  Open({.latency = absl::Milliseconds(10), .slice_bytes_max = 3});
  client_->Send("hello ");
  client_->Send("world");
  client_->Send("");
  loop_.RunFor(absl::Milliseconds(9));
  EXPECT_EQ(server_->received, "");
  loop_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(server_->received, "hello world");
  client_->Leave();
  loop_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(server_->end.code(), absl::StatusCode::kOutOfRange);
}

TEST_F(MemoryNetworkTest, BreaksBothSidesOfTheNamedClient) {
  Open();
  network_->Break("somebody else");
  loop_.RunReady();
  EXPECT_FALSE(client_->ended());
  network_->Break("agent");
  loop_.RunReady();
  EXPECT_EQ(client_->end.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_->end.code(), absl::StatusCode::kUnavailable);
}

TEST_F(MemoryNetworkTest, HoldsEverythingWhileClogged) {
  Open();
  network_->Clog(true);
  client_->Send("late");
  loop_.RunFor(absl::Minutes(1));
  EXPECT_EQ(server_->received, "");
  network_->Clog(false);
  loop_.RunReady();
  EXPECT_EQ(server_->received, "late");
}

TEST_F(MemoryNetworkTest, ResetsAWriterWhosePeerIsGone) {
  Open();
  server_->Leave();
  client_->Send("x");
  loop_.RunReady();
  EXPECT_TRUE(client_->ended());
  EXPECT_EQ(network_->open_streams(), 1u);
  client_->Leave();
  EXPECT_EQ(network_->open_streams(), 0u);
}

}  // namespace
}  // namespace callboard::tests
