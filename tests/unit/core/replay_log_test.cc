// Tests of ReplayLog.
#include "core/runtime/replay_log.h"

#include <gtest/gtest.h>

#include <string>

namespace callboard::core {
namespace {

TEST(ReplayLog, NumbersFromOneWithoutHoles) {
  ReplayLog<std::string> log({.items_max = 10, .bytes_max = 100});
  EXPECT_TRUE(log.empty());
  EXPECT_EQ(log.last(), 0u);
  EXPECT_EQ(log.Append("a", 1), 1u);
  EXPECT_EQ(log.Append("b", 2), 2u);
  EXPECT_EQ(*log.Find(1), "a");
  EXPECT_EQ(*log.Find(2), "b");
  EXPECT_EQ(log.Find(0), nullptr);
  EXPECT_EQ(log.Find(3), nullptr);
  EXPECT_EQ(log.bytes(), 3u);
}

TEST(ReplayLog, AcknowledgingTrimsAndIsNoGap) {
  ReplayLog<std::string> log({.items_max = 10, .bytes_max = 100});
  for (const char* item : {"a", "b", "c"}) log.Append(item, 10);
  log.Acknowledge(2);
  EXPECT_EQ(log.floor(), 2u);
  EXPECT_EQ(log.dropped_through(), 0u);
  EXPECT_EQ(log.Find(2), nullptr);
  EXPECT_EQ(*log.Find(3), "c");
  EXPECT_EQ(log.bytes(), 10u);
  log.Acknowledge(1);
  EXPECT_EQ(log.floor(), 2u);
  log.Acknowledge(99);
  EXPECT_EQ(log.floor(), 3u);
  EXPECT_EQ(log.Append("d", 1), 4u);
}

TEST(ReplayLog, DropsTheOldestBeyondEitherBoundAndSaysSo) {
  ReplayLog<std::string> log({.items_max = 3, .bytes_max = 100});
  for (const char* item : {"a", "b", "c", "d"}) log.Append(item, 10);
  EXPECT_EQ(log.size(), 3u);
  EXPECT_EQ(log.dropped_through(), 1u);
  log.Append("e", 85);
  EXPECT_EQ(log.floor(), 3u);
  EXPECT_EQ(log.dropped_through(), 3u);
  EXPECT_EQ(*log.Find(4), "d");
  EXPECT_EQ(*log.Find(5), "e");
}

TEST(ReplayLog, KeepsOneItemLargerThanTheBoundAlone) {
  ReplayLog<std::string> log({.items_max = 3, .bytes_max = 100});
  log.Append("a", 10);
  EXPECT_EQ(log.Append("huge", 1000), 2u);
  EXPECT_EQ(log.size(), 1u);
  EXPECT_EQ(*log.Find(2), "huge");
  log.Append("b", 1);
  EXPECT_EQ(log.size(), 1u);
  EXPECT_EQ(log.bytes(), 1u);
}

}  // namespace
}  // namespace callboard::core
