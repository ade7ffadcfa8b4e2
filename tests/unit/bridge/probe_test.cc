// Tests of the streams that measure a path.
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

class Probes : public BridgeTest {
 protected:
  Answer Probe(std::string kind) { return Get("", {{"x-callboard-probe", std::move(kind)}}); }
};

TEST_F(Probes, BeatEverySecondAndTellTheBridgesOwnHeartbeat) {
  const Answer answer = Probe("beats");
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->Header("Content-Type"), "text/event-stream");
  loop_.RunFor(absl::Milliseconds(3500));
  EXPECT_EQ(answer->body, ": probe heartbeat_ms=15000\n\n: ping\n\n: ping\n\n: ping\n\n");
  EXPECT_TRUE(plane_.listens.empty());
}

TEST_F(Probes, MayBeSilentForTenMinutes) {
  const Answer answer = Probe("silent");
  loop_.RunFor(absl::Minutes(10) - absl::Seconds(1));
  EXPECT_EQ(answer->body, ": probe heartbeat_ms=15000\n\n");
  EXPECT_FALSE(answer->ended);
  loop_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(answer->ended);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Probes, AreFewAndOfKnownKinds) {
  EXPECT_EQ(Probe("loud")->status, 400);
  std::vector<Answer> open;
  for (int i = 0; i < 8; ++i) open.push_back(Probe("silent"));
  EXPECT_EQ(open.back()->status, 200);
  const Answer refused = Probe("silent");
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->Header("Retry-After"), "2");
  open[0]->on_peer_gone();
  loop_.RunReady();
  EXPECT_EQ(Probe("silent")->status, 200);
}

TEST_F(Probes, EndInADrain) {
  const Answer answer = Probe("beats");
  bridge_->Drain(absl::Seconds(1), [] {});
  loop_.RunReady();
  EXPECT_TRUE(answer->ended);
  EXPECT_EQ(Probe("beats")->status, 503);
}

}  // namespace
}  // namespace callboard::tests
