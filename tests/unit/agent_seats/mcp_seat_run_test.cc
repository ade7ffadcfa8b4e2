// Tests of a seat's calls while they wait and run.
#include "core/runtime/digest.h"
#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {
namespace {

using McpSeatRun = SeatFixture;

TEST_F(McpSeatRun, AnswersACallWithTheBackendsOwnBytes) {
  BringUp();
  Submit(Tool("A"));
  backend->Answer(LastCall(), R"({ "content" : [], "n": 1.0 })");
  loop.RunReady();
  EXPECT_EQ(told, (Told{"A starting 1", "A end RESULT REASON_UNSPECIFIED FINISHED"}));
  EXPECT_EQ(End("A").body.view(), R"({ "content" : [], "n": 1.0 })");
  EXPECT_EQ(End("A").backend_revision, "2025-06-18");
}

TEST_F(McpSeatRun, SubmitNeverCallsBackInline) {
  BringUp();
  seat->Submit(Tool("A"));
  EXPECT_TRUE(told.empty());
  seat->SetCordon(true);
  seat->Submit(Tool("B"));
  EXPECT_TRUE(told.empty());
  loop.RunReady();
  EXPECT_EQ(End("B").reason, v1::CORDONED);
}

TEST_F(McpSeatRun, RunsOneMainThreadCallAfterTheOther) {
  BringUp();
  Submit(Tool("A"));
  Submit(Tool("B"));
  EXPECT_EQ(told, (Told{"A starting 1", "B queued 1"}));
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  EXPECT_EQ(seat->State().queue_depth(), 1u);
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  EXPECT_EQ(told[2], "A end RESULT REASON_UNSPECIFIED FINISHED");
  EXPECT_EQ(told[3], "B starting 1");
}

TEST_F(McpSeatRun, QueueBudgetEndsAWaitingCallUnsent) {
  BringUp();
  Submit(Tool("A"));
  CallSpec late = Tool("B");
  late.queue_deadline = loop.Now() + absl::Seconds(2);
  Submit(std::move(late));
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(told.back(), "B end EXPIRED QUEUE_BUDGET_SPENT NOT_STARTED");
  EXPECT_EQ(backend->Count("tools/call"), 1u);
}

TEST_F(McpSeatRun, RunBudgetEndsTheCallButKeepsTheSlotUntilTheAnswer) {
  BringUp();
  CallSpec slow = Tool("A");
  slow.run_budget = absl::Seconds(1);
  Submit(std::move(slow));
  Submit(Tool("B"));
  const uint64_t call = LastCall();
  loop.RunFor(absl::Seconds(5));
  EXPECT_EQ(told.back(), "A end EXPIRED RUN_BUDGET_SPENT RUNNING");
  EXPECT_NE(
      backend->Last("notifications/cancelled").text.find(fmt::format("\"requestId\":{}", call)),
      std::string::npos);
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  EXPECT_EQ(seat->State().health().main_thread(), v1::UNRESPONSIVE);
  EXPECT_EQ(seat->State().health().process(), v1::HEALTHY);
  backend->Answer(call, R"({"late":1})");
  loop.RunReady();
  EXPECT_EQ(told[told.size() - 2], "A late RESULT");
  EXPECT_EQ(told.back(), "B starting 1");
  EXPECT_EQ(End("A late").body.view(), R"({"late":1})");
}

TEST_F(McpSeatRun, CancelDropsAWaitingCall) {
  BringUp();
  Submit(Tool("A"));
  Submit(Tool("B"));
  EXPECT_EQ(seat->Cancel("B", v1::Cancel::CLIENT), v1::CancelAck::DROPPED);
  EXPECT_EQ(told.size(), 2u);
  loop.RunReady();
  EXPECT_EQ(told.back(), "B end CANCELLED CANCELLED_BY_CLIENT NOT_STARTED");
  EXPECT_EQ(seat->Cancel("B", v1::Cancel::CLIENT), v1::CancelAck::OVER);
}

TEST_F(McpSeatRun, CancelTellsTheBackendAndTheCallerAtOnce) {
  BringUp();
  Submit(Tool("A"));
  EXPECT_EQ(seat->Cancel("A", v1::Cancel::ADMIN), v1::CancelAck::DELIVERED);
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end CANCELLED CANCELLED_BY_ADMIN RUNNING");
  EXPECT_EQ(seat->State().running_size(), 1);
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  EXPECT_EQ(told.back(), "A late RESULT");
  EXPECT_EQ(seat->State().running_size(), 0);
}

TEST_F(McpSeatRun, CancelBeforeTheFirstByteKeepsTheCallFromTheDcc) {
  BringUp();
  on_starting = [this] {
    EXPECT_EQ(seat->Cancel("A", v1::Cancel::PARENT), v1::CancelAck::DROPPED);
  };
  Submit(Tool("A"));
  EXPECT_EQ(told.back(), "A end CANCELLED CANCELLED_BY_PARENT NOT_STARTED");
  EXPECT_EQ(backend->Count("tools/call"), 0u);
  on_starting = nullptr;
  Submit(Tool("B"));
  EXPECT_EQ(told.back(), "B starting 1");
}

TEST_F(McpSeatRun, AnswerInTheSameInstantAsCancelComesAfterTheEnd) {
  BringUp();
  Submit(Tool("A"));
  backend->Answer(LastCall(), "{}");
  seat->Cancel("A", v1::Cancel::CLIENT);
  loop.RunReady();
  EXPECT_EQ(told,
            (Told{"A starting 1", "A end CANCELLED CANCELLED_BY_CLIENT RUNNING", "A late RESULT"}));
}

TEST_F(McpSeatRun, RefusesWhenTheQueueIsFull) {
  SeatLimits limits;
  limits.queue.main_depth = 1;
  MakeSeat(limits);
  BringUp();
  Submit(Tool("A"));
  Submit(Tool("B"));
  Submit(Tool("C"));
  EXPECT_EQ(told.back(), "C end REJECTED QUEUE_FULL NOT_STARTED");
}

TEST_F(McpSeatRun, JournalThatCannotBeWrittenKeepsTheCallFromTheDcc) {
  BringUp();
  may_start = false;
  Submit(Tool("A"));
  EXPECT_EQ(told.back(), "A end REJECTED JOURNAL_UNWRITABLE NOT_STARTED");
  EXPECT_EQ(backend->Count("tools/call"), 0u);
}

TEST_F(McpSeatRun, AssumeBusyClosesTheMainLaneUntilAPingIsAnswered) {
  BringUp();
  backend->answers_ping = false;
  seat->AssumeBusy();
  Submit(Tool("A"));
  CallSpec list = Tool("L");
  list.lane = v1::FREE;
  Submit(std::move(list));
  EXPECT_EQ(told, (Told{"L starting 1"}));
  EXPECT_EQ(seat->State().health().main_thread(), v1::BUSY);
  backend->Answer(backend->Last("ping").exchange, "{}");
  loop.RunReady();
  EXPECT_EQ(told.back(), "A starting 1");
}

TEST_F(McpSeatRun, AssumeBusyLastsAMinuteAtMost) {
  BringUp();
  backend->answers_ping = false;
  seat->AssumeBusy();
  Submit(Tool("A"));
  loop.RunFor(absl::Seconds(59));
  EXPECT_TRUE(told.empty());
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(told, (Told{"A starting 1"}));
}

TEST_F(McpSeatRun, ListIsNewBeforeTheOutcomeOfACallThatChangesIt) {
  BringUp();
  const std::string before = seat->State().catalogue_digest();
  EXPECT_EQ(before, core::Sha256Hex(R"({"tools":[{"name":"a"}]})"));
  Submit(Tool("A", "load_skill"));
  backend->pages[""] = R"({"tools":[{"name":"a"},{"name":"b"}]})";
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  EXPECT_EQ(digest_at_end["A"], core::Sha256Hex(R"({"tools":[{"name":"a"},{"name":"b"}]})"));
  EXPECT_TRUE(End("A").facts.list_changed_hint());
}

TEST_F(McpSeatRun, AListThatDoesNotComeDelaysTheOutcomeByFiveSecondsAtMost) {
  BringUp();
  Submit(Tool("A", "load_skill"));
  Submit(Tool("B"));
  backend->answers_list = false;
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  // The DCC is free meanwhile.
  EXPECT_EQ(told.back(), "B starting 1");
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(told.back(), "A end RESULT REASON_UNSPECIFIED FINISHED");
}

TEST_F(McpSeatRun, PagesAreCollectedInOrderAndASecondEqualCursorEnds) {
  backend->pages = {{"", R"({"tools":[{"name":"a"}],"nextCursor":"2"})"},
                    {"2", R"({"tools":[{"name":"b", "x":1.50}],"nextCursor":"2"})"}};
  BringUp();
  EXPECT_EQ(seat->Catalogue().view(), R"({"tools":[{"name":"a"},{"name":"b", "x":1.50}]})");
  EXPECT_EQ(backend->Count("tools/list"), 2u);
}

TEST_F(McpSeatRun, ListChangedNoticesWithinAQuarterSecondAreOneListing) {
  BringUp();
  const size_t before = backend->Count("tools/list");
  for (int i = 0; i < 5; ++i) {
    backend->Say(R"({"jsonrpc":"2.0","method":"notifications/tools/list_changed"})");
  }
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(backend->Count("tools/list"), before + 1);
  EXPECT_EQ(told.front(), "notice notifications/tools/list_changed ");
}

TEST_F(McpSeatRun, TheListIsPolledAboutOnceAMinute) {
  BringUp();
  loop.RunFor(absl::Minutes(2));
  const size_t before = backend->Count("tools/list");
  loop.RunFor(absl::Minutes(10));
  EXPECT_NEAR(static_cast<double>(backend->Count("tools/list") - before), 10, 1.5);
}

TEST_F(McpSeatRun, TheListOfADccThatHasJustStartedIsPolledOften) {
  BringUp();
  const size_t before = backend->Count("tools/list");
  loop.RunFor(absl::Seconds(2));
  EXPECT_GE(backend->Count("tools/list") - before, 2u);
  loop.RunFor(absl::Seconds(58));
  EXPECT_GE(backend->Count("tools/list") - before, 5u);
}

TEST_F(McpSeatRun, ASilentEndpointIsUnresponsiveAfterTwoProbesAndNotGone) {
  BringUp();
  backend->probe_answer = false;
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(seat->State().health().endpoint(), v1::HEALTHY);
  loop.RunFor(absl::Seconds(5));
  EXPECT_EQ(seat->State().health().endpoint(), v1::UNRESPONSIVE);
  EXPECT_EQ(seat->State().health().process(), v1::HEALTHY);
  backend->probe_answer = true;
  loop.RunFor(absl::Seconds(5));
  EXPECT_EQ(seat->State().health().endpoint(), v1::HEALTHY);
}

TEST_F(McpSeatRun, MayBeDestroyedFromInsideItsCallbacks) {
  BringUp();
  on_end = [this] { seat.reset(); };
  Submit(Tool("A"));
  Submit(Tool("B"));
  backend->Answer(LastCall(), "{}");
  loop.RunFor(absl::Minutes(2));
  EXPECT_EQ(told.back(), "A end RESULT REASON_UNSPECIFIED FINISHED");
}

TEST_F(McpSeatRun, QueueThatGrowsAndShrinksIsToldThoughTheSeatStaysBusy) {
  BringUp();
  Submit(Tool("A"));
  loop.RunFor(absl::Milliseconds(300));
  const int before = seat_changes;
  Submit(Tool("B"));
  Submit(Tool("C"));
  EXPECT_EQ(seat_changes, before);
  loop.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(seat_changes, before + 1) << "both at once";
  EXPECT_EQ(seat->State().queue_depth(), 2u);
  seat->Cancel("B", v1::Cancel::CLIENT);
  loop.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(seat_changes, before + 2);
}

}  // namespace
}  // namespace callboard::agent
