// Tests of the queue of events that are fetched ahead.
#include "core/runtime/ahead_queue.h"

#include <gtest/gtest.h>

namespace callboard::core {
namespace {

struct Event {
  int number = 0;
  size_t bytes = 0;
  size_t ByteSizeLong() const { return bytes; }
};

TEST(AheadQueue, HasRoomBehindWhatMayBeFollowedOnly) {
  AheadQueue<Event> queue;
  EXPECT_FALSE(queue.has_room()) << "nobody has asked for anything yet";
  queue.Push({1, 10}, /*followed=*/true);
  EXPECT_TRUE(queue.has_room());
  queue.Push({2, 10}, /*followed=*/false);
  EXPECT_FALSE(queue.has_room());
  EXPECT_EQ(queue.Pop().number, 1);
  EXPECT_EQ(queue.Pop().number, 2);
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.has_room()) << "the last is not consumed before the next is asked for";
}

TEST(AheadQueue, EndsWithTheEventThatExceedsItsBytes) {
  AheadQueue<Event> queue;
  constexpr size_t kHalf = AheadQueue<Event>::kBytesMax / 2;
  queue.Push({1, kHalf}, true);
  queue.Push({2, kHalf}, true);
  EXPECT_TRUE(queue.has_room());
  queue.Push({3, 1'000'000}, true);
  EXPECT_FALSE(queue.has_room());
  EXPECT_EQ(queue.front().number, 1);
  queue.Pop();
  queue.Pop();
  EXPECT_FALSE(queue.has_room());
  EXPECT_EQ(queue.Pop().number, 3);
  EXPECT_TRUE(queue.has_room());
}

}  // namespace
}  // namespace callboard::core
