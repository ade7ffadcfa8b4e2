// Tests of the queue of a seat: fairness, lanes, bounds, deadlines.
#include "backend_agent/execution_queue.h"

#include <gtest/gtest.h>

namespace callboard::agent {
namespace {

ExecutionQueue::Entry Of(std::string id, std::string fair, std::string session = "s",
                         int priority = 0) {
  return {.call_id = std::move(id),
          .priority = priority,
          .fair_key = std::move(fair),
          .session_id = std::move(session)};
}

std::string Drain(ExecutionQueue& queue) {
  std::string order;
  while (auto id = queue.Take()) {
    order += *id;
    queue.Release({});
  }
  return order;
}

TEST(ExecutionQueue, ServesPrincipalsInTurnsAndEachInOrder) {
  ExecutionQueue queue({});
  for (const char* id : {"1", "2", "3"}) ASSERT_TRUE(queue.Push(Of(id, "ann")));
  for (const char* id : {"a", "b"}) ASSERT_TRUE(queue.Push(Of(id, "bob")));
  EXPECT_EQ(Drain(queue), "1a2b3");
}

TEST(ExecutionQueue, ServesSessionsOfOnePrincipalInTurns) {
  ExecutionQueue queue({});
  for (const char* id : {"1", "2"}) ASSERT_TRUE(queue.Push(Of(id, "ann", "x")));
  for (const char* id : {"a", "b"}) ASSERT_TRUE(queue.Push(Of(id, "ann", "y")));
  EXPECT_EQ(Drain(queue), "1a2b");
}

TEST(ExecutionQueue, ServesHigherPriorityFirst) {
  ExecutionQueue queue({});
  ASSERT_TRUE(queue.Push(Of("1", "ann")));
  ASSERT_TRUE(queue.Push(Of("2", "bob", "s", 5)));
  EXPECT_EQ(Drain(queue), "21");
}

TEST(ExecutionQueue, RunsOneOfTheMainLaneAndEightOfTheFreeOne) {
  ExecutionQueue queue({});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.Push(Of("m" + std::to_string(i), "a")));
  for (int i = 0; i < 10; ++i) {
    auto entry = Of("f" + std::to_string(i), "a");
    entry.lane.lane = v1::FREE;
    ASSERT_TRUE(queue.Push(entry));
  }
  size_t taken = 0;
  while (queue.Take()) ++taken;
  EXPECT_EQ(taken, 9u);
  queue.Release({.lane = v1::FREE});
  EXPECT_EQ(queue.Take(), "f8");
  EXPECT_FALSE(queue.Take());
}

TEST(ExecutionQueue, RefusesBeyondItsDepth) {
  ExecutionQueue queue({});
  for (int i = 0; i < 65; ++i) ASSERT_TRUE(queue.Push(Of(std::to_string(i), "a"))) << i;
  // One can run at once, 64 wait.
  EXPECT_FALSE(queue.Push(Of("66th", "a")));
}

TEST(ExecutionQueue, ClosedMainLaneLeavesTheFreeOneOpen) {
  ExecutionQueue queue({});
  queue.SetMainOpen(false);
  ASSERT_TRUE(queue.Push(Of("m", "a")));
  auto free = Of("f", "a");
  free.lane.lane = v1::FREE;
  ASSERT_TRUE(queue.Push(free));
  EXPECT_EQ(queue.Take(), "f");
  EXPECT_FALSE(queue.Take());
  queue.SetMainOpen(true);
  EXPECT_EQ(queue.Take(), "m");
}

TEST(ExecutionQueue, TellsPlacesInTheOrderOfServiceAndOnlyWhenTheyChange) {
  ExecutionQueue queue({});
  ASSERT_TRUE(queue.Push(Of("run", "ann")));
  ASSERT_EQ(queue.Take(), "run");
  ASSERT_TRUE(queue.Push(Of("1", "ann")));
  ASSERT_TRUE(queue.Push(Of("2", "ann")));
  ASSERT_TRUE(queue.Push(Of("a", "bob")));
  std::string places;
  const auto tell = [&](const std::string& id, uint32_t ahead) {
    places += id + "=" + std::to_string(ahead) + " ";
  };
  queue.TellPlaces(tell);
  EXPECT_EQ(places, "1=1 a=2 2=3 ");
  places.clear();
  queue.TellPlaces(tell);
  EXPECT_EQ(places, "");
  ASSERT_TRUE(queue.Remove("1"));
  queue.TellPlaces(tell);
  EXPECT_EQ(places, "2=1 ");
}

TEST(ExecutionQueue, TakesOutWhatHasExpired) {
  ExecutionQueue queue({});
  auto entry = Of("late", "a");
  entry.deadline = absl::FromUnixSeconds(10);
  ASSERT_TRUE(queue.Push(entry));
  EXPECT_EQ(queue.next_deadline(), absl::FromUnixSeconds(10));
  EXPECT_TRUE(queue.TakeExpired(absl::FromUnixSeconds(9)).empty());
  EXPECT_EQ(queue.TakeExpired(absl::FromUnixSeconds(10)), std::vector<std::string>{"late"});
  EXPECT_EQ(queue.waiting(), 0u);
}

}  // namespace
}  // namespace callboard::agent
