// What becomes of calls when links are cut, agents restart and DCCs die.
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

TEST_F(FlowsTest, ContinuesACallAfterACutFromTheLastEvent) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Progress(call, 2, R"({"progress":1})");
  loop.RunReady();
  agent->Cut();
  loop.RunFor(absl::Seconds(3));
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 3)});
  auto verdict = back->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CONTINUE);
  EXPECT_EQ(verdict->verdict().have_n(), 2u);
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch));
  back->Progress(call, 2, R"({"progress":1})");  // told twice
  back->Progress(call, 3, R"({"progress":2})");
  back->Result(call, 4);
  loop.RunReady();
  EXPECT_EQ(caller->params().size(), 2u);
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, ContinuesALargeBodyAfterACutFromItsOffset) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  const std::string piece(64 << 10, 'p');
  agent->BigResult(call, 1, 2 * piece.size());
  agent->Chunk(call, 1, 0, piece);
  loop.RunReady();
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::FINISHED, 1)});
  auto verdict = back->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().have_n(), 0u);
  EXPECT_EQ(verdict->verdict().have_offset(), piece.size());
  back->BigResult(call, 1, 2 * piece.size());
  back->Chunk(call, 1, piece.size(), piece);
  loop.RunReady();
  EXPECT_EQ(caller->outcomes().size(), 1u);
  EXPECT_EQ(caller->body().size(), 2 * piece.size());
}

TEST_F(FlowsTest, AnEventThatARestartedAgentCannotEndGivesWayToTheOutcome) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  v1::AgentItem ask = FakeAgent::Event(call, 2);
  ask.mutable_call_event()->mutable_ask()->set_method("roots/list");
  ask.mutable_call_event()->mutable_ask()->mutable_params()->set_size(100'000);
  agent->Say(std::move(ask));
  agent->Chunk(call, 2, 0, std::string(64 << 10, '{'));
  loop.RunReady();
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-2", 1, "journal-1", {FakeAgent::State(call, v1::CallState::FINISHED)});
  const auto verdict = back->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().have_n(), 1u);
  EXPECT_EQ(verdict->verdict().have_offset(), 0u);
  back->BigResult(call, 2, 70'000);
  back->Chunk(call, 2, 0, std::string(70'000, 'r'));
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  EXPECT_EQ(caller->body(), std::string(70'000, 'r'));
}

TEST_F(FlowsTest, WaitsForADetachedSeatAndDispatchesWhenItIsBack) {
  auto agent = Link();
  agent->Cut();
  loop.RunReady();
  auto caller = Invoke(Call(OpenSession()));
  EXPECT_TRUE(caller->events.empty());
  auto back = Link("boot-1", 2);
  back->Result(back->TakeDispatch(), 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, RefusesACallToASeatThatIsStale) {
  auto agent = Link();
  agent->Cut();
  loop.RunFor(absl::Seconds(40));
  auto caller = Invoke(Call(OpenSession()));
  EXPECT_EQ(caller->outcome().reason(), v1::SEAT_OFFLINE);
  EXPECT_EQ(caller->outcome().certainty(), v1::NOT_STARTED);
}

TEST_F(FlowsTest, EndsAWaitingCallWhenItsQueueBudgetIsSpent) {
  auto agent = Link();
  agent->Cut();
  loop.RunReady();
  auto request = Call(OpenSession());
  request.set_queue_ms(2'000);
  auto caller = Invoke(request);
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(caller->outcome().reason(), v1::QUEUE_BUDGET_SPENT);
  EXPECT_EQ(caller->outcome().certainty(), v1::NOT_STARTED);
}

TEST_F(FlowsTest, SendsACallAgainThatTheSameJournalDoesNotKnow) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-2", 1, "journal-1");
  const v1::Dispatch again = back->TakeDispatch();
  EXPECT_EQ(again.call_id(), call.call_id());
  EXPECT_EQ(again.attempt(), 1u);
  back->Result(again, 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, ACallSentAgainFromTheQueueKeepsItsWholeRunBudget) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Queued(call, 1, 5);
  loop.RunFor(absl::Minutes(5));
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-2", 1, "journal-1");
  const v1::Dispatch again = back->TakeDispatch();
  EXPECT_EQ(again.call_id(), call.call_id());
  EXPECT_EQ(again.run_ms(), 120'000u);
  EXPECT_EQ(again.queue_ms(), 300'000u);
}

TEST_F(FlowsTest, WhatWaitsForARestartedAgentIsSentWhenItsSeatIsThere) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Cut();
  loop.RunReady();
  // The agent is back and has not found the DCC yet.
  auto back = Link("boot-2", 1, "journal-1", {}, 0);
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch));
  EXPECT_TRUE(caller->outcomes().empty());
  back->TellState(1);
  loop.RunReady();
  const v1::Dispatch again = back->TakeDispatch();
  EXPECT_EQ(again.call_id(), call.call_id());
  back->Result(again, 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, ALostJournalMakesTheOutcomeUnknown) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-2", 1, "journal-2");
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch));
  EXPECT_EQ(caller->outcome().reason(), v1::JOURNAL_LOST);
  EXPECT_EQ(caller->outcome().certainty(), v1::UNKNOWN);
}

TEST_F(FlowsTest, ALostJournalSendsAnIdempotentCallAgainAsTheNextAttempt) {
  auto agent = Link();
  GiveList(*agent, "d1");
  auto caller = Invoke(Call(OpenSession(), "1", "look"));
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_TRUE(call.idempotent());
  agent->Started(call);
  loop.RunReady();
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-2", 1, "journal-2");
  const v1::Dispatch again = back->TakeDispatch();
  EXPECT_EQ(again.call_id(), call.call_id());
  EXPECT_EQ(again.attempt(), 2u);
  back->Result(again, 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, LetsACallNobodyKnowsEndAndSettlesIt) {
  const v1::Dispatch unknown = FakeAgent::UnknownCall();
  auto agent =
      Link("boot-1", 1, "journal-1", {FakeAgent::State(unknown, v1::CallState::RUNNING, 1)});
  auto verdict = agent->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CONTINUE);
  agent->Result(unknown, 2);
  loop.RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kSettle));
  v1::CallRef ref;
  ref.set_call_id(unknown.call_id());
  auto receipt = GetCall(ref);
  ASSERT_TRUE(receipt.ok());
  EXPECT_TRUE(receipt->orphan());
  EXPECT_TRUE(receipt->settled());
  EXPECT_EQ(receipt->phase(), v1::CALL_SUCCEEDED);
}

TEST_F(FlowsTest, AnAttemptOfBeforeIsSettledWhenTheNewerOneIsOver) {
  auto agent = Link();
  GiveList(*agent, "d1");
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session, "1", "look"));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Finish(call, 2, v1::LOST, v1::DCC_EXITED, v1::UNKNOWN);
  loop.RunFor(absl::Seconds(2));
  const v1::Dispatch again = agent->TakeDispatch();
  ASSERT_EQ(again.attempt(), 2u);
  CancelRequest(session, "1");
  agent->Cut();
  loop.RunReady();
  // Its journal knows what started, and nothing of the second attempt.
  auto back = Link("boot-2", 1, "journal-1", {FakeAgent::State(call, v1::CallState::FINISHED, 2)});
  loop.RunFor(absl::Seconds(1));
  auto settle = back->Take(v1::ServerItem::kSettle);  // when its receipt is durable
  ASSERT_TRUE(settle);
  EXPECT_EQ(settle->settle().call_id(0), call.call_id());
  EXPECT_EQ(caller->outcome().class_(), v1::CANCELLED);
}

TEST_F(FlowsTest, AskOfACallNobodyKnowsIsAnsweredWithAnError) {
  const v1::Dispatch unknown = FakeAgent::UnknownCall();
  auto agent =
      Link("boot-1", 1, "journal-1", {FakeAgent::State(unknown, v1::CallState::RUNNING, 1)});
  agent->Ask(unknown, 2);
  loop.RunReady();
  auto answer = agent->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answer().call_id(), unknown.call_id());
  EXPECT_EQ(answer->answer().ask_n(), 2u);
  EXPECT_EQ(answer->answer().error().inline_(),
            R"({"code":-32000,"message":"the client of this call is gone"})");
}

TEST_F(FlowsTest, GivesNoVerdictAboutTheCallsOfAnotherControlPlane) {
  v1::Dispatch unknown;
  unknown.set_call_id("0123456789abcdef");
  unknown.set_attempt(1);
  v1::CallState of_other = FakeAgent::State(unknown, v1::CallState::RUNNING, 1);
  of_other.set_owner_plane("plane-2");
  auto agent = Link("boot-1", 1, "journal-1", {of_other});
  EXPECT_FALSE(agent->Take(v1::ServerItem::kVerdict));
  // The link of the other has ended: nobody here takes it over.
  v1::AgentItem asked;
  *asked.mutable_call_state() = of_other;
  agent->Say(asked);
  loop.RunReady();
  EXPECT_FALSE(agent->Take(v1::ServerItem::kVerdict));
  EXPECT_EQ(plane->gauges().open_executions, 0u);
  // Of this one's own former run, which has left nothing: it is let end and settled.
  asked.mutable_call_state()->set_owner_plane("plane-1");
  agent->Say(asked);
  loop.RunReady();
  auto verdict = agent->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CONTINUE);
  EXPECT_EQ(plane->gauges().open_executions, 1u);
}

TEST_F(FlowsTest, ACallCancelledDuringACutIsCancelledAtTheAgentWhenItIsBack) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  loop.RunReady();
  agent->Cut();
  loop.RunReady();
  CancelRequest(session, "1");
  EXPECT_EQ(caller->outcome().certainty(), v1::UNKNOWN);
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 1)});
  auto verdict = back->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CANCEL);
}

TEST_F(FlowsTest, ANewProcessOfTheSeatEndsWhatRanInTheFormerOne) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->TellState(2);
  loop.RunFor(absl::Milliseconds(900));
  EXPECT_TRUE(caller->outcomes().empty());
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_EQ(caller->outcome().reason(), v1::DCC_EXITED);
  EXPECT_EQ(caller->outcome().certainty(), v1::UNKNOWN);
}

TEST_F(FlowsTest, ACallThatAStoppingAgentDoesNotTakeIsSentToTheNext) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Finish(call, 1, v1::REJECTED, v1::DRAINING, v1::NOT_STARTED);
  loop.RunFor(absl::Seconds(1));
  EXPECT_TRUE(caller->outcomes().empty());
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
  agent->Cut();
  loop.RunFor(absl::Seconds(5));
  auto back = Link("boot-2");
  const v1::Dispatch again = back->TakeDispatch();
  EXPECT_EQ(again.call_id(), call.call_id());
  EXPECT_EQ(again.attempt(), 1u);
  back->Started(again);
  back->Result(again, 2);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, ACallWhoseStoppedAgentStaysAwayIsToldThatItNeverStarted) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  agent->Finish(agent->TakeDispatch(), 1, v1::REJECTED, v1::DRAINING, v1::NOT_STARTED);
  loop.RunReady();
  agent->Cut();
  loop.RunFor(absl::Minutes(11));
  EXPECT_EQ(caller->outcome().certainty(), v1::NOT_STARTED);
}

TEST_F(FlowsTest, WhatWaitedForTheFormerProcessIsSentAgainForThatOneOnly) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_EQ(call.expect_incarnation(), 1u);
  agent->Queued(call, 1, 2);
  loop.RunReady();
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-2", 1, "journal-1", {}, 2);
  EXPECT_EQ(back->TakeDispatch().expect_incarnation(), 1u) << "another process, another scene";
}

TEST_F(FlowsTest, ASessionIsToldOnceThatItsSeatHasBeenRestarted) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Call(session, "1"));
  agent->Result(agent->TakeDispatch(), 1);
  agent->TellState(2);
  loop.RunReady();
  auto refused = Invoke(Call(session, "2"));
  EXPECT_EQ(refused->outcome().reason(), v1::WRONG_INCARNATION);
  EXPECT_EQ(refused->outcome().certainty(), v1::NOT_STARTED);
  EXPECT_NE(refused->outcome().message().find("incarnation 1, now incarnation 2"),
            std::string::npos);
  auto again = Invoke(Call(session, "3"));
  EXPECT_EQ(agent->TakeDispatch().expect_incarnation(), 2u);
}

TEST_F(FlowsTest, RetriesAnIdempotentCallThatTheAgentReportsLost) {
  auto agent = Link();
  GiveList(*agent, "d1");
  auto caller = Invoke(Call(OpenSession(), "1", "look"));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Finish(call, 2, v1::LOST, v1::DCC_EXITED, v1::UNKNOWN);
  loop.RunFor(absl::Milliseconds(700));
  const v1::Dispatch again = agent->TakeDispatch();
  EXPECT_EQ(again.attempt(), 2u);
  agent->Result(again, 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, ProgressOfAnotherAttemptIsToldFromWhereTheFormerWas) {
  auto agent = Link();
  GiveList(*agent, "d1");
  auto caller = Invoke(Call(OpenSession(), "1", "look"));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Progress(call, 2, R"({"progress":9})");
  agent->Finish(call, 3, v1::LOST, v1::DCC_EXITED, v1::UNKNOWN);
  loop.RunFor(absl::Milliseconds(700));
  const v1::Dispatch again = agent->TakeDispatch();
  agent->Started(again);
  uint64_t n = 1;
  for (const char* params : {R"({"progress":1})", R"({"progress":9})", R"({"progress":10})"}) {
    agent->Progress(again, ++n, params);
  }
  loop.RunReady();
  EXPECT_EQ(caller->params(),
            (std::vector<std::string>{R"({"progress":9,"progressToken":"tok"})",
                                      R"({"progress":10,"progressToken":"tok"})"}));
  EXPECT_EQ(agent->TakeAll(v1::ServerItem::kAck).empty(), false) << "what is not told is consumed";
  agent->Result(again, ++n);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

}  // namespace
}  // namespace callboard::server
