// Tests of Backoff.
#include "core/runtime/backoff.h"

#include <gtest/gtest.h>

namespace callboard::core {
namespace {

TEST(Backoff, StaysUnderADoublingCeilingUpToTheMaximum) {
  SeededRandom random(1);
  Backoff backoff(absl::Seconds(1), absl::Seconds(30), random);
  absl::Duration ceiling = absl::Seconds(1);
  for (int i = 0; i < 20; ++i) {
    const absl::Duration wait = backoff.Next();
    EXPECT_GE(wait, ceiling / 10);
    EXPECT_LE(wait, ceiling);
    ceiling = std::min(absl::Seconds(30), ceiling * 2);
  }
}

TEST(Backoff, UsesTheWholeRangeOnceGrown) {
  SeededRandom random(2);
  Backoff backoff(absl::Seconds(1), absl::Seconds(30), random);
  for (int i = 0; i < 5; ++i) backoff.Next();
  absl::Duration longest;
  absl::Duration shortest = absl::InfiniteDuration();
  for (int i = 0; i < 200; ++i) {
    const absl::Duration wait = backoff.Next();
    longest = std::max(longest, wait);
    shortest = std::min(shortest, wait);
  }
  EXPECT_GT(longest, absl::Seconds(25));
  EXPECT_LT(shortest, absl::Seconds(5));
  EXPECT_GE(shortest, absl::Seconds(3));
}

TEST(Backoff, ResetStartsAgain) {
  SeededRandom random(3);
  Backoff backoff(absl::Seconds(1), absl::Seconds(30), random);
  for (int i = 0; i < 10; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Seconds(1));
}

}  // namespace
}  // namespace callboard::core
