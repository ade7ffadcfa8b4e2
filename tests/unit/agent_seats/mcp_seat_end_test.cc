// Tests of how calls end when the DCC dies, the backend misbehaves or the process is another one.
#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {
namespace {

using McpSeatEnd = SeatFixture;

TEST_F(McpSeatEnd, DeathOfTheProcessEndsTheRunningCallWithTheSignal) {
  BringUp();
  Submit(Tool("A"));
  Submit(Tool("B"));
  backend->Die(9);
  loop.RunFor(absl::Milliseconds(500));
  EXPECT_EQ(told.back(), "A end LOST DCC_EXITED UNKNOWN");
  EXPECT_EQ(End("A").facts.exit_signal(), 9);
  EXPECT_EQ(End("A").facts.detail(), "blender was killed by signal 9");
  EXPECT_EQ(seat->State().health().process(), v1::GONE);
  EXPECT_FALSE(ends.contains("B"));
  // The next process takes what waited.
  backend->process = 4712;
  backend->Up();
  loop.RunReady();
  EXPECT_EQ(told.back(), "B starting 2");
}

TEST_F(McpSeatEnd, WaitingCallThatExpectsTheDeadProcessIsRefused) {
  BringUp();
  Submit(Tool("A"));
  CallSpec pinned = Tool("B");
  pinned.expect_incarnation = 1;
  Submit(std::move(pinned));
  backend->Die(11);
  loop.RunReady();
  EXPECT_EQ(told.back(), "B end REJECTED WRONG_INCARNATION NOT_STARTED");
}

TEST_F(McpSeatEnd, CallForAnotherProcessIsRefusedUnsent) {
  BringUp();
  CallSpec pinned = Tool("A");
  pinned.expect_incarnation = 7;
  Submit(std::move(pinned));
  EXPECT_EQ(told, (Told{"A end REJECTED WRONG_INCARNATION NOT_STARTED"}));
  pinned = Tool("B");
  pinned.expect_incarnation = 1;
  Submit(std::move(pinned));
  EXPECT_EQ(told.back(), "B starting 1");
}

TEST_F(McpSeatEnd, SameProcessAfterAnEndpointLossKeepsItsNumber) {
  BringUp();
  backend->Up();
  loop.RunReady();
  EXPECT_EQ(seat->State().incarnation(), 1u);
}

TEST_F(McpSeatEnd, BrokenConnectionWithALivingProcessIsConnectionLost) {
  BringUp();
  Submit(Tool("A"));
  backend->End(LastCall(), absl::UnavailableError("connection reset"), true);
  loop.RunReady();
  EXPECT_FALSE(ends.contains("A"));
  loop.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(told.back(), "A end LOST BACKEND_CONNECTION_LOST UNKNOWN");
}

TEST_F(McpSeatEnd, UnreachedBackendLeavesTheCallNotStarted) {
  BringUp();
  Submit(Tool("A"));
  backend->End(LastCall(), absl::UnavailableError("connection refused"), false);
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end REJECTED BACKEND_UNREACHABLE NOT_STARTED");
  EXPECT_EQ(End("A").facts.detail(), "connection refused");
}

TEST_F(McpSeatEnd, ReplyWithoutAResponseIsAProtocolError) {
  BringUp();
  Submit(Tool("A"));
  backend->End(LastCall(), absl::OkStatus(), true);
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end LOST BACKEND_PROTOCOL_ERROR UNKNOWN");
}

TEST_F(McpSeatEnd, ReplyOverTheSizeLimitIsLostAndFinished) {
  BringUp();
  Submit(Tool("A"));
  backend->End(LastCall(), absl::ResourceExhaustedError("result of 9 bytes exceeds 5"), true);
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end LOST RESULT_TOO_LARGE FINISHED");
  EXPECT_EQ(End("A").facts.detail(), "result of 9 bytes exceeds 5");
}

TEST_F(McpSeatEnd, RpcErrorOfTheBackendIsPassedOnAsItIs) {
  BringUp();
  Submit(Tool("A"));
  backend->Say(fmt::format(
      R"({{"jsonrpc":"2.0","id":{},"error":{{"code":-32602,"message":"no","data":[1]}}}})",
      LastCall()));
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end RPC_ERROR REASON_UNSPECIFIED FINISHED");
  EXPECT_EQ(End("A").body.view(), R"({"code":-32602,"message":"no","data":[1]})");
}

TEST_F(McpSeatEnd, CallsWaitForABackendThatIsNotThereYet) {
  CallSpec spec = Tool("A");
  spec.queue_deadline = loop.Now() + absl::Seconds(10);
  Submit(std::move(spec));
  spec = Tool("B");
  spec.queue_deadline = loop.Now() + absl::Seconds(1);
  Submit(std::move(spec));
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(told.back(), "B end EXPIRED QUEUE_BUDGET_SPENT NOT_STARTED");
  backend->Up();
  loop.RunReady();
  EXPECT_EQ(told.back(), "A starting 1");
}

TEST_F(McpSeatEnd, AnotherProcessInTheSamePlaceEndsWhatRanOnTheFormerOne) {
  BringUp();
  Submit(Tool("A"));
  auto next = std::make_unique<PlayedBackend>(loop);
  PlayedBackend* other = next.get();
  other->process = 5000;
  seat->ReplaceBackend(std::move(next), {.seat_id = "5ea7", .name = "blender", .app = "blender"});
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end LOST DCC_EXITED UNKNOWN");
  other->Up();
  loop.RunReady();
  EXPECT_EQ(seat->State().incarnation(), 2u);
  EXPECT_EQ(seat->State().pid(), 5000);
}

TEST_F(McpSeatEnd, FactsNameErrorJobAndStatus) {
  BringUp();
  Submit(Tool("A"));
  backend->Answer(LastCall(), R"({"isError":true,"structuredContent":{"job_id":"j1","status":)"
                              R"("pending"},"resultType":"complete"})");
  loop.RunReady();
  const v1::OutcomeFacts& facts = End("A").facts;
  EXPECT_TRUE(facts.is_error());
  EXPECT_EQ(facts.backend_job_id(), "j1");
  EXPECT_EQ(facts.job_status(), "pending");
  EXPECT_EQ(facts.era_fields_size(), 1);
  EXPECT_EQ(facts.size(), End("A").body.size());
}

TEST_F(McpSeatEnd, SlotOfACallThatIsNeverAnsweredIsFreedInTheEnd) {
  SeatLimits limits;
  limits.late_max = absl::Minutes(2);
  MakeSeat(limits);
  BringUp();
  Submit(Tool("A"));
  Submit(Tool("B"));
  seat->Cancel("A", v1::Cancel::CLIENT);
  loop.RunFor(absl::Minutes(1));
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  loop.RunFor(absl::Minutes(2));
  EXPECT_EQ(told[told.size() - 2], "A late LOST");
  EXPECT_EQ(told.back(), "B starting 1");
}

TEST_F(McpSeatEnd, StdioServerThatDropsACancelledCallGetsItsSlotBackAfterTheRunBudget) {
  backend->ends_unanswered = false;
  BringUp();
  CallSpec call = Tool("A");
  call.run_budget = absl::Minutes(2);
  Submit(std::move(call));
  Submit(Tool("B"));
  seat->Cancel("A", v1::Cancel::CLIENT);
  loop.RunFor(absl::Seconds(119));
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(told[told.size() - 2], "A late LOST");
  EXPECT_EQ(told.back(), "B starting 1");
}

TEST_F(McpSeatEnd, StdioServerThatAnswersNoPingKeepsTheSlot) {
  backend->ends_unanswered = false;
  BringUp();
  backend->answers_ping = false;
  CallSpec call = Tool("A");
  call.run_budget = absl::Seconds(2);
  Submit(std::move(call));
  Submit(Tool("B"));
  loop.RunFor(absl::Minutes(20));
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  // It was at work all the time.
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  EXPECT_EQ(told[told.size() - 2], "A late RESULT");
  EXPECT_EQ(told.back(), "B starting 1");
}

}  // namespace
}  // namespace callboard::agent
