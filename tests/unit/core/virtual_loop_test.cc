// Tests of the virtual loop's order, which the simulation rests on.
#include "tests/support/virtual_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/runtime/offload.h"

namespace callboard::tests {
namespace {

using testing::ElementsAre;

class VirtualLoopTest : public testing::Test {
 protected:
  auto Note(std::string what) {
    return [this, what = std::move(what)] { notes_.push_back(what); };
  }

  VirtualLoop loop_;
  std::vector<std::string> notes_;
};

TEST_F(VirtualLoopTest, RunsPostedWorkInOrderBeforeAnyTimer) {
  const core::Timer now = loop_.After(absl::ZeroDuration(), Note("timer"));
  loop_.Post([this] {
    notes_.push_back("a");
    loop_.Post(Note("c"));
  });
  loop_.Post(Note("b"));
  EXPECT_TRUE(notes_.empty());
  loop_.RunReady();
  EXPECT_THAT(notes_, ElementsAre("a", "b", "c", "timer"));
}

TEST_F(VirtualLoopTest, TimeJumpsToTheNextTimerAndStandsStillMeanwhile) {
  const absl::Time start = loop_.Now();
  absl::Time seen;
  const core::Timer timer = loop_.After(absl::Hours(5), [&] { seen = loop_.Now(); });
  loop_.RunFor(absl::Hours(4));
  EXPECT_EQ(loop_.Now(), start + absl::Hours(4));
  EXPECT_TRUE(timer.pending());
  loop_.RunFor(absl::Hours(4));
  EXPECT_EQ(seen, start + absl::Hours(5));
  EXPECT_EQ(loop_.Now(), start + absl::Hours(8));
}

TEST_F(VirtualLoopTest, TimersOfOneInstantRunInOrderOfScheduling) {
  const absl::Time when = loop_.Now() + absl::Seconds(1);
  const core::Timer a = loop_.At(when, Note("a"));
  const core::Timer b = loop_.At(when, Note("b"));
  const core::Timer past = loop_.After(-absl::Seconds(9), Note("past"));
  loop_.RunFor(absl::Seconds(1));
  EXPECT_THAT(notes_, ElementsAre("past", "a", "b"));
}

TEST_F(VirtualLoopTest, RunUntilStopsAsSoonAsTheConditionHolds) {
  const core::Timer a = loop_.After(absl::Seconds(1), Note("a"));
  const core::Timer b = loop_.After(absl::Seconds(2), Note("b"));
  EXPECT_TRUE(loop_.RunUntil([this] { return notes_.size() == 1; }, absl::Seconds(10)));
  EXPECT_THAT(notes_, ElementsAre("a"));
  EXPECT_FALSE(loop_.RunUntil([this] { return notes_.size() == 3; }, absl::Seconds(10)));
  EXPECT_EQ(loop_.steps(), 2u);
}

TEST_F(VirtualLoopTest, InlineOffloadRunsLaterAndInOrder) {
  core::InlineOffload offload(loop_);
  offload.Run(Note("work"), Note("done"));
  EXPECT_TRUE(notes_.empty());
  loop_.RunReady();
  EXPECT_THAT(notes_, ElementsAre("work", "done"));
}

}  // namespace
}  // namespace callboard::tests
