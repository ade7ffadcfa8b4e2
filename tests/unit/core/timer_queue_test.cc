// Tests of TimerQueue and Timer.
#include "core/runtime/timer_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace callboard::core {
namespace {

using testing::ElementsAre;

absl::Time At(int seconds) { return absl::FromUnixSeconds(seconds); }

class TimerQueueTest : public testing::Test {
 protected:
  void RunDue(int seconds) {
    while (auto fn = queue_.PopDue(At(seconds))) fn();
  }
  Timer Note(int seconds, int what) {
    return queue_.Add(At(seconds), [this, what] { fired_.push_back(what); });
  }

  TimerQueue queue_;
  std::vector<int> fired_;
};

TEST_F(TimerQueueTest, FiresByTimeAndThenByOrderOfScheduling) {
  const Timer a = Note(3, 1);
  const Timer b = Note(1, 2);
  const Timer c = Note(3, 3);
  const Timer d = Note(2, 4);
  EXPECT_EQ(queue_.NextDue(), At(1));
  RunDue(2);
  EXPECT_THAT(fired_, ElementsAre(2, 4));
  RunDue(3);
  EXPECT_THAT(fired_, ElementsAre(2, 4, 1, 3));
  EXPECT_EQ(queue_.NextDue(), std::nullopt);
}

TEST_F(TimerQueueTest, CancelledTimersNeverFire) {
  Timer a = Note(1, 1);
  Timer b = Note(2, 2);
  EXPECT_TRUE(a.pending());
  a.Cancel();
  EXPECT_FALSE(a.pending());
  EXPECT_EQ(queue_.NextDue(), At(2));
  {
    const Timer scoped = Note(1, 3);
  }
  b = Note(4, 4);
  EXPECT_EQ(queue_.NextDue(), At(4));
  RunDue(10);
  EXPECT_THAT(fired_, ElementsAre(4));
  EXPECT_FALSE(b.pending());
}

TEST_F(TimerQueueTest, ATimerMayReplaceItselfWhileItFires) {
  Timer timer;
  timer = queue_.Add(At(1), [&] {
    fired_.push_back(1);
    timer = Note(2, 2);
  });
  RunDue(1);
  EXPECT_TRUE(timer.pending());
  RunDue(2);
  EXPECT_THAT(fired_, ElementsAre(1, 2));
}

TEST_F(TimerQueueTest, CancellingMayDestroyTheOwnerOfTheTimer) {
  struct Owner {
    Timer timer;
  };
  auto owner = std::make_shared<Owner>();
  std::weak_ptr<Owner> watch = owner;
  Owner* const bare = owner.get();
  bare->timer = queue_.Add(At(1), [kept = std::move(owner)] {});
  bare->timer.Cancel();
  EXPECT_TRUE(watch.expired());
}

TEST_F(TimerQueueTest, ManyCancelledTimersLeaveTheLiveOnesInOrder) {
  std::vector<Timer> live;
  for (int i = 0; i < 5000; ++i) {
    {
      const Timer cancelled = Note(i, -1);
    }
    if (i % 100 == 0) live.push_back(Note(5000 - i, i));
  }
  RunDue(5001);
  ASSERT_EQ(fired_.size(), 50u);
  EXPECT_EQ(fired_.front(), 4900);
  EXPECT_EQ(fired_.back(), 0);
}

}  // namespace
}  // namespace callboard::core
