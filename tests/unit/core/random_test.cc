// Tests of the random sources.
#include "core/runtime/random.h"

#include <gtest/gtest.h>

#include <set>

namespace callboard::core {
namespace {

TEST(SeededRandom, RepeatsForTheSameSeed) {
  SeededRandom a(42);
  SeededRandom b(42);
  SeededRandom c(43);
  EXPECT_EQ(a.Next64(), 13930160852258120406u);  // the standard fixes mt19937_64's sequence
  EXPECT_EQ(b.Next64(), 13930160852258120406u);
  EXPECT_EQ(a.Hex(16), b.Hex(16));
  EXPECT_NE(a.Next64(), c.Next64());
}

TEST(SeededRandom, StaysInRange) {
  SeededRandom random(1);
  EXPECT_EQ(random.Below(0), 0u);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(random.Below(7), 7u);
    const double unit = random.Unit();
    EXPECT_GE(unit, 0.0);
    EXPECT_LT(unit, 1.0);
  }
}

TEST(SeededRandom, GivesTheAskedNumberOfBytes) {
  SeededRandom random(1);
  for (size_t count : {0u, 1u, 7u, 8u, 9u, 31u}) {
    EXPECT_EQ(random.Bytes(count).size(), count);
    const std::string hex = random.Hex(count);
    EXPECT_EQ(hex.size(), 2 * count);
    EXPECT_EQ(hex.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
}

TEST(SecureRandom, DoesNotRepeatAcrossRefills) {
  SecureRandom random;
  std::set<uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(random.Next64());
  EXPECT_EQ(seen.size(), 200u);
}

}  // namespace
}  // namespace callboard::core
