// A hundred worlds, each with every kind of fault, and ten of them twice.
#include <gtest/gtest.h>

#include "tests/sim/seeds.h"

namespace callboard::sim {
namespace {

constexpr absl::Duration kFaultsFor = absl::Seconds(30);
constexpr uint64_t kShards = 10;
constexpr uint64_t kSeedsPerShard = 10;

class Simulation : public ::testing::TestWithParam<uint64_t> {
 protected:
  // What is too rare for one shard.
  static void TearDownTestSuite() {
    if (all_.seeds < kShards * kSeedsPerShard) return;
    for (const char* what : {"kills while the store fails", "drains while the store fails"}) {
      EXPECT_GT(all_.counted[what], 0u) << what << ": nothing of it happened in these worlds";
    }
  }
  static inline Totals all_;
};

TEST_P(Simulation, KeepsEveryPromiseUnderFaultsAndRecovers) {
  const uint64_t first = 1 + GetParam() * kSeedsPerShard;
  Totals totals;
  for (uint64_t seed = first; seed < first + kSeedsPerShard; ++seed) {
    const WorldReport report = RunSeed(seed, kFaultsFor);
    ASSERT_TRUE(report.ok) << report.failure;
    ASSERT_GT(report.totals.at("answers"), 0u) << "seed " << seed << " did nothing";
    totals.Add(report);
    all_.Add(report);
  }
  for (const char* what :
       {"asks answered", "asks outside calls", "asks outside calls answered",
        "asks outside calls heard", "asks refused", "batches", "dripping connections",
        "forged answers", "jobs", "large results fetched", "logs", "notices",
        "notices of the application"}) {
    EXPECT_GT(totals.counted[what], 0u) << what << ": nothing of it happened in these worlds";
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulation, ::testing::Range<uint64_t>(0, kShards));

TEST(SimulationItself, RepeatsAWorldExactlyFromItsSeed) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const WorldReport first = RunSeed(seed, kFaultsFor);
    const WorldReport second = RunSeed(seed, kFaultsFor);
    EXPECT_EQ(first.hash, second.hash) << "seed " << seed;
    EXPECT_EQ(first.steps, second.steps) << "seed " << seed;
  }
}

TEST(SimulationItself, DiffersFromSeedToSeed) {
  EXPECT_NE(RunSeed(1, absl::Seconds(5)).hash, RunSeed(2, absl::Seconds(5)).hash);
}

}  // namespace
}  // namespace callboard::sim
