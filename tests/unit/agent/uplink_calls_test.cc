// A call between the control plane and the seat: taking, refusing, cancelling, ending, forgetting.
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

using UplinkCalls = AgentTest;

TEST_F(UplinkCalls, SmallCallIsStartedAndAnswered) {
  StartLinked();
  v1::Dispatch dispatch = MakeDispatch('a', R"({"name":"echo"})");
  dispatch.set_run_ms(30'000);
  dispatch.set_queue_ms(10'000);
  Send(dispatch);
  ASSERT_EQ(seat.submitted.size(), 1u);
  EXPECT_EQ(seat.submitted[0].params.view(), R"({"name":"echo"})");
  EXPECT_EQ(seat.submitted[0].run_budget, absl::Seconds(30));
  EXPECT_EQ(seat.submitted[0].queue_deadline, loop.Now() + absl::Seconds(10));

  const std::string call_id = CallIdOf('a');
  const size_t frames = plane.frames;
  ASSERT_TRUE(agent->call_observer().OnStarting(call_id, 3));
  End(call_id, agent::Payload(R"({"content":[]})"));
  EXPECT_EQ(plane.frames, frames + 1) << "what one turn produces goes into one frame";
  auto events = Events(call_id);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].started().incarnation(), 3u);
  EXPECT_EQ(events[1].n(), 2u);
  EXPECT_EQ(events[1].outcome().body().inline_(), R"({"content":[]})");
  EXPECT_EQ(events[1].outcome().facts().size(), 14u);
  EXPECT_EQ(agent->gauges().calls, 1u);

  SendSettle(call_id);
  EXPECT_EQ(agent->gauges().calls, 0u);
  EXPECT_EQ(agent->gauges().outbox_events, 0u);
}

TEST_F(UplinkCalls, QueuePositionIsToldOnlyToThoseWhoWait) {
  StartLinked();
  Send(MakeDispatch('a'));
  Send(MakeDispatch('b'));
  agent->call_observer().OnQueued(CallIdOf('a'), 0);
  agent->call_observer().OnQueued(CallIdOf('b'), 2);
  agent->call_observer().OnQueued(CallIdOf('b'), 1);
  loop.RunReady();
  EXPECT_TRUE(Events(CallIdOf('a')).empty());
  ASSERT_EQ(Events(CallIdOf('b')).size(), 1u);
  EXPECT_EQ(Events(CallIdOf('b'))[0].queued().ahead(), 1u);
}

TEST_F(UplinkCalls, UnknownSeatIsRejected) {
  StartLinked();
  v1::Dispatch dispatch = MakeDispatch('a');
  dispatch.set_seat_id("nowhere");
  Send(dispatch);
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).reason(), v1::SEAT_UNKNOWN);
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).certainty(), v1::NOT_STARTED);
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkCalls, BeyondOpenCallsOrQueuedBytesTheQueueIsFull) {
  config.limits.open_calls_max = 2;
  config.limits.queued_bytes_max = 100;
  StartLinked();
  Send(MakeDispatch('a', std::string(60, ' ')));
  Send(MakeDispatch('b', std::string(60, ' ')));
  EXPECT_EQ(OutcomeOf(CallIdOf('b')).reason(), v1::QUEUE_FULL);
  EXPECT_EQ(OutcomeOf(CallIdOf('b')).class_(), v1::REJECTED);
  // Started calls no longer count against the bytes.
  ASSERT_TRUE(agent->call_observer().OnStarting(CallIdOf('a'), 3));
  Send(MakeDispatch('c', std::string(60, ' ')));
  EXPECT_EQ(seat.submitted.size(), 2u);
  Send(MakeDispatch('d'));
  EXPECT_EQ(OutcomeOf(CallIdOf('d')).reason(), v1::QUEUE_FULL);
  Send(MakeDispatch('e', std::string(101, ' ')));
  EXPECT_EQ(OutcomeOf(CallIdOf('e')).reason(), v1::PARAMS_TOO_LARGE);
}

TEST_F(UplinkCalls, OfAClientsHeadersOnlySoundOnesGoToTheSeat) {
  StartLinked();
  v1::Dispatch dispatch = MakeDispatch('a');
  const std::pair<std::string, std::string> headers[] = {
      {"farm", "=?base64?YQ==?="}, {"", "x"}, {"no token", "x"}, {"split", "x\r\nHost: y"}};
  for (const auto& [name, value] : headers) {
    v1::ParamHeader& header = *dispatch.add_param_headers();
    header.set_name(name);
    header.set_value(value);
  }
  Send(std::move(dispatch));
  ASSERT_EQ(seat.submitted.size(), 1u);
  using Headers = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(seat.submitted[0].param_headers, (Headers{{"farm", "=?base64?YQ==?="}}));
}

TEST_F(UplinkCalls, EndedCallsThatWaitToBeSettledTakeNoSlot) {
  config.limits.open_calls_max = 2;
  config.limits.ended_calls_max = 3;
  StartLinked();
  for (const char letter : {'a', 'b', 'c'}) End(Begin(letter), agent::Payload("{}"));
  EXPECT_EQ(agent->gauges().calls, 3u);
  EXPECT_EQ(agent->gauges().held, 3u);
  Send(MakeDispatch('d'));
  const v1::Outcome refusal = OutcomeOf(CallIdOf('d'));
  EXPECT_EQ(refusal.reason(), v1::QUEUE_FULL);
  EXPECT_EQ(refusal.certainty(), v1::NOT_STARTED);
  EXPECT_EQ(refusal.facts().detail(),
            "the agent keeps 3 of 3 ended calls with 6 of 16777216 bytes of results in memory "
            "until their control plane settles them, which it does not while its store fails");
  SendSettle(CallIdOf('a'));
  EXPECT_EQ(agent->gauges().held, 2u);
  Begin('e');
  Begin('f');
  Send(MakeDispatch('g'));
  EXPECT_EQ(OutcomeOf(CallIdOf('g')).facts().detail(),
            "the agent holds 2 of 2 calls and 0 of 67108864 bytes of parameters");
}

TEST_F(UplinkCalls, CallTheDccIsStillAtTakesItsSlotUntilItsLateEnd) {
  config.limits.open_calls_max = 1;
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, {}, v1::EXPIRED, v1::RUNNING);
  EXPECT_EQ(agent->gauges().held, 0u);
  Send(MakeDispatch('b'));
  EXPECT_EQ(OutcomeOf(CallIdOf('b')).reason(), v1::QUEUE_FULL);
  agent->call_observer().OnLateEnd(call_id, MakeEnd(agent::Payload("{}")));
  EXPECT_EQ(agent->gauges().held, 1u);
  Begin('c');
}

TEST_F(UplinkCalls, ResultsBeyondWhatMemoryHoldsAreInTheSpoolUntilTheyAreSettled) {
  config.limits.ended_bytes_max = 250;
  StartLinked();
  for (const char letter : {'a', 'b', 'c'}) End(Begin(letter), agent::Payload(Text(100)));
  EXPECT_EQ(agent->gauges().held_bytes, 200u);
  EXPECT_EQ(spool.bytes(), 100u) << "the oldest";
  CutAndRedial();
  SendWelcome();
  SendVerdict(CallIdOf('a'), v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).body().inline_(), Text(100));

  // The journal says where it is.
  Kill();
  StartLinked();
  SendVerdict(CallIdOf('a'), v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).body().inline_(), Text(100));
  EXPECT_EQ(agent->gauges().held_bytes, 200u);
  for (const char letter : {'a', 'b', 'c'}) SendSettle(CallIdOf(letter));
  EXPECT_EQ(spool.bytes(), 0u);
  EXPECT_EQ(agent->gauges().held, 0u);
  EXPECT_EQ(agent->gauges().held_bytes, 0u);
}

TEST_F(UplinkCalls, ResultsThatNeitherMemoryNorSpoolTakesAreLostOldestFirstWhenTheyWereSent) {
  config.limits.ended_bytes_max = 250;
  spool.set_bytes_max(50);
  StartLinked();
  for (const char letter : {'a', 'b', 'c'}) End(Begin(letter), agent::Payload(Text(100)));
  EXPECT_EQ(agent->gauges().held_bytes, 200u);
  EXPECT_EQ(agent->gauges().bodies_lost, 1u);
  CutAndRedial();
  SendWelcome();
  for (const char letter : {'a', 'b'}) SendVerdict(CallIdOf(letter), v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).reason(), v1::BODY_LOST);
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).certainty(), v1::FINISHED);
  EXPECT_EQ(OutcomeOf(CallIdOf('b')).body().inline_(), Text(100));
}

TEST_F(UplinkCalls, NoCallIsTakenWhileResultsNobodyHasGotFillMemoryAndSpool) {
  config.limits.ended_bytes_max = 250;
  config.limits.window = 10;
  spool.set_bytes_max(50);
  welcome.mutable_limits()->set_window(10);
  StartLinked();
  // One item may exceed the window; what follows waits for an acknowledgement.
  const std::string call_id = Begin('a');
  agent->call_observer().OnLog(call_id, Text(20));
  loop.RunReady();
  End(call_id, agent::Payload(Text(300)));
  EXPECT_EQ(agent->gauges().bodies_lost, 0u);
  Send(MakeDispatch('b'));
  EXPECT_EQ(OutcomeOf(CallIdOf('b')).reason(), v1::QUEUE_FULL);
  SendAck(call_id, 2, 0);
  EXPECT_EQ(OutcomeOf(call_id).body().inline_(), Text(300)) << "it was kept for its owner";
}

TEST_F(UplinkCalls, LargeParametersAreCollectedAndTheirWindowGivenBack) {
  StartLinked();
  const std::string params = Text(200'000);
  v1::Dispatch dispatch = MakeDispatch('a');
  dispatch.mutable_params()->set_size(params.size());
  Send(dispatch);
  EXPECT_TRUE(seat.submitted.empty());
  for (size_t offset = 0; offset < params.size(); offset += 50'000) {
    v1::ServerItem item;
    v1::Chunk* chunk = item.mutable_chunk();
    chunk->set_call_id(CallIdOf('a'));
    chunk->set_attempt(1);
    chunk->set_offset(offset);
    chunk->set_bytes(params.substr(offset, 50'000));
    plane.Send(item);
    plane.Send(item);  // a repeated piece is not taken twice
    loop.RunReady();
  }
  ASSERT_EQ(seat.submitted.size(), 1u);
  EXPECT_EQ(seat.submitted[0].params.view(), params);
  auto acks = Items(v1::AgentItem::kAck);
  ASSERT_FALSE(acks.empty());
  EXPECT_EQ(acks.front().ack().entries(0).window(), 1u << 20);
  EXPECT_EQ(acks.back().ack().entries(0).n(), 0u);
  EXPECT_EQ(acks.back().ack().entries(0).offset(), params.size());
}

TEST_F(UplinkCalls, HalfCollectedCallIsDroppedWithTheLinkAndMayComeAgain) {
  StartLinked();
  v1::Dispatch dispatch = MakeDispatch('a');
  dispatch.mutable_params()->set_size(200'000);
  Send(dispatch);
  EXPECT_EQ(agent->gauges().calls, 1u);
  CutAndRedial();
  EXPECT_TRUE(Items(v1::AgentItem::kCallState).empty());
  EXPECT_EQ(agent->gauges().calls, 0u);
  SendWelcome();
  Send(MakeDispatch('a'));
  EXPECT_EQ(seat.submitted.size(), 1u);
}

TEST_F(UplinkCalls, CancelIsPassedOnAndAlwaysAcknowledged) {
  StartLinked();
  const std::string call_id = Begin('a');
  SendCancel(call_id);
  SendCancel(CallIdOf('z'));
  EXPECT_EQ(seat.cancelled, std::vector<std::string>{call_id});
  auto acks = Items(v1::AgentItem::kCancelAck);
  ASSERT_EQ(acks.size(), 2u);
  EXPECT_EQ(acks[0].cancel_ack().effect(), v1::CancelAck::DELIVERED);
  EXPECT_EQ(acks[1].cancel_ack().effect(), v1::CancelAck::OVER);
}

TEST_F(UplinkCalls, CancelledWhileItsParametersComeIn) {
  StartLinked();
  v1::Dispatch dispatch = MakeDispatch('a');
  dispatch.mutable_params()->set_size(200'000);
  Send(dispatch);
  SendCancel(CallIdOf('a'));
  EXPECT_EQ(Items(v1::AgentItem::kCancelAck)[0].cancel_ack().effect(), v1::CancelAck::DROPPED);
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).class_(), v1::CANCELLED);
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).certainty(), v1::NOT_STARTED);
  EXPECT_TRUE(seat.submitted.empty());
}

TEST_F(UplinkCalls, CommandsOfAFencedOwnerAreIgnored) {
  StartLinked();
  v1::Dispatch dispatch = MakeDispatch('a');
  dispatch.set_owner_term(5);
  Send(dispatch);
  SendCancel(CallIdOf('a'));  // of term 1
  SendSettle(CallIdOf('a'), 4);
  EXPECT_TRUE(seat.cancelled.empty());
  EXPECT_EQ(agent->gauges().calls, 1u);
}

TEST_F(UplinkCalls, SameDispatchAgainDoesNotRunTwice) {
  StartLinked();
  const std::string call_id = Begin('a');
  Send(MakeDispatch('a'));
  EXPECT_EQ(seat.submitted.size(), 1u);
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(Numbers(call_id), (std::vector<uint64_t>{1, 2}));
}

TEST_F(UplinkCalls, SettledCallLeavesATombstoneThatAnswers) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload("{}"));
  SendSettle(call_id);
  plane.items.clear();
  Send(MakeDispatch('a'));
  EXPECT_EQ(seat.submitted.size(), 1u);
  EXPECT_EQ(OutcomeOf(call_id).class_(), v1::LOST) << "a result without a body is none";
  EXPECT_EQ(OutcomeOf(call_id).reason(), v1::SETTLED_BEFORE);
  EXPECT_EQ(OutcomeOf(call_id).certainty(), v1::FINISHED);
  EXPECT_EQ(
      OutcomeOf(call_id).facts().detail(),
      "attempt 1 of this call has ended before, as RESULT, and its outcome is no longer kept; "
      "it is not run again. Look at the scene before calling again");
}

TEST_F(UplinkCalls, TombstoneTellsNoMoreThanWasKnown) {
  StartLinked();
  const std::string unknown = Begin('a');
  End(unknown, agent::Payload(), v1::LOST, v1::UNKNOWN);
  SendSettle(unknown);
  Send(MakeDispatch('b'));
  End(CallIdOf('b'), agent::Payload(), v1::CANCELLED, v1::NOT_STARTED);
  SendSettle(CallIdOf('b'));
  plane.items.clear();
  Send(MakeDispatch('a'));
  Send(MakeDispatch('b'));
  EXPECT_EQ(OutcomeOf(unknown).class_(), v1::LOST);
  EXPECT_EQ(OutcomeOf(unknown).certainty(), v1::UNKNOWN);
  EXPECT_EQ(OutcomeOf(CallIdOf('b')).class_(), v1::LOST);
  EXPECT_EQ(OutcomeOf(CallIdOf('b')).certainty(), v1::NOT_STARTED);
  EXPECT_EQ(seat.submitted.size(), 2u);
}

TEST_F(UplinkCalls, HigherAttemptRunsOnlyIfTheFormerCannotHaveRunOrTheCallIsIdempotent) {
  StartLinked();
  const std::string call_id = Begin('a');
  v1::Dispatch again = MakeDispatch('a');
  again.set_attempt(2);
  again.set_idempotent(true);
  Send(again);
  EXPECT_EQ(OutcomeOf(call_id).reason(), v1::ATTEMPT_REFUSED) << "attempt 1 is still at work";

  End(call_id, agent::Payload(), v1::LOST, v1::UNKNOWN);
  plane.items.clear();
  again.set_idempotent(false);
  Send(again);
  EXPECT_EQ(OutcomeOf(call_id).reason(), v1::ATTEMPT_REFUSED);
  EXPECT_EQ(seat.submitted.size(), 1u);

  again.set_idempotent(true);
  Send(again);
  ASSERT_EQ(seat.submitted.size(), 2u);
  EXPECT_EQ(seat.submitted[1].attempt, 2u);

  agent->call_observer().OnEnd(call_id, MakeEnd(agent::Payload(), v1::REJECTED, v1::NOT_STARTED));
  again.set_attempt(3);
  again.set_idempotent(false);
  Send(again);
  EXPECT_EQ(seat.submitted.size(), 3u) << "attempt 2 never started";
}

TEST_F(UplinkCalls, ResultsLargerThanTheControlPlaneTakesAreToldToBeTooLarge) {
  welcome.mutable_limits()->set_result_bytes_max(100);
  StartLinked();
  End(Begin('a'), agent::Payload(std::string(100, ' ')));
  EXPECT_EQ(OutcomeOf(CallIdOf('a')).class_(), v1::RESULT);
  End(Begin('b'), agent::Payload(std::string(101, ' ')));
  const v1::Outcome outcome = OutcomeOf(CallIdOf('b'));
  EXPECT_EQ(outcome.class_(), v1::LOST);
  EXPECT_EQ(outcome.reason(), v1::RESULT_TOO_LARGE);
  EXPECT_EQ(outcome.certainty(), v1::FINISHED);
  EXPECT_EQ(outcome.facts().size(), 0u);
  EXPECT_EQ(outcome.facts().detail(),
            "the answer has 101 bytes, the control plane takes 100 (limits.result_bytes_max); the "
            "tool ran");
}

TEST_F(UplinkCalls, InADrainOnlyWhatRunsGoesOn) {
  StartLinked();
  const std::string running = Begin('a');
  Send(MakeDispatch('b'));
  agent->Drain();
  loop.RunReady();
  EXPECT_EQ(seat.cancelled, std::vector<std::string>{CallIdOf('b')});
  EXPECT_TRUE(Events(CallIdOf('b')).empty()) << "missing in the next inventory it is sent again";
  EXPECT_FALSE(agent->call_observer().OnStarting(CallIdOf('b'), 3));
  Send(MakeDispatch('c'));
  EXPECT_EQ(OutcomeOf(CallIdOf('c')).reason(), v1::DRAINING);
  EXPECT_EQ(OutcomeOf(CallIdOf('c')).certainty(), v1::NOT_STARTED);
  EXPECT_EQ(agent->gauges().running, 1u);
  End(running, agent::Payload("{}"));
  EXPECT_EQ(OutcomeOf(running).class_(), v1::RESULT);
  EXPECT_EQ(agent->gauges().running, 0u);
}

TEST_F(UplinkCalls, WithoutAJournalNothingStarts) {
  StartLinked();
  Send(MakeDispatch('a'));
  journal.disk_full = true;
  EXPECT_FALSE(agent->call_observer().OnStarting(CallIdOf('a'), 3));
  agent->call_observer().OnEnd(CallIdOf('a'),
                               MakeEnd(agent::Payload(), v1::REJECTED, v1::NOT_STARTED));
  journal.disk_full = false;
  // The half record is not left in the middle of the file.
  Begin('b');
  Kill();
  StartAgent();
  auto states = Items(v1::AgentItem::kCallState);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].call_state().call_id(), CallIdOf('b'));
}

TEST_F(UplinkCalls, LateEndIsASecondOutcomeAndTheCallIsHeldUntilThen) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload(), v1::EXPIRED, v1::RUNNING);
  SendSettle(call_id);
  EXPECT_EQ(agent->gauges().calls, 1u);
  EXPECT_EQ(agent->gauges().running, 1u);
  agent->call_observer().OnLateEnd(call_id, MakeEnd(agent::Payload("{\"late\":true}")));
  loop.RunReady();
  auto events = Events(call_id);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].outcome().certainty(), v1::RUNNING);
  EXPECT_EQ(events[2].n(), 3u);
  EXPECT_EQ(events[2].outcome().body().inline_(), "{\"late\":true}");
  EXPECT_EQ(agent->gauges().running, 0u);
  SendSettle(call_id);
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkCalls, SettledCallIsForgottenAfterItsLateEndEvenWithoutAnAnswer) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload(), v1::EXPIRED, v1::RUNNING);
  SendSettle(call_id);
  agent->call_observer().OnLateEnd(call_id, MakeEnd(agent::Payload("{}")));
  loop.RunFor(absl::Seconds(4));
  EXPECT_EQ(agent->gauges().calls, 1u);
  loop.RunFor(absl::Seconds(15));
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkCalls, LateEndAfterACutIsToldToWhoSettledTheCall) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload(), v1::EXPIRED, v1::RUNNING);
  SendSettle(call_id);
  CutAndRedial();
  agent->call_observer().OnLateEnd(call_id, MakeEnd(agent::Payload("{\"late\":1}")));
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::SETTLE);
  EXPECT_EQ(Numbers(call_id), std::vector<uint64_t>{3});
  EXPECT_EQ(OutcomeOf(call_id).body().inline_(), "{\"late\":1}");
  SendSettle(call_id);
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkCalls, LateEndOfACallSettledAfterACutIsTold) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload(), v1::EXPIRED, v1::RUNNING);
  CutAndRedial();
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::SETTLE);
  EXPECT_TRUE(Events(call_id).empty());
  agent->call_observer().OnLateEnd(call_id, MakeEnd(agent::Payload("{}")));
  loop.RunReady();
  EXPECT_EQ(Numbers(call_id), std::vector<uint64_t>{3});
  loop.RunFor(absl::Seconds(20));
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkCalls, OrphanRunsToItsEndAndIsThenForgotten) {
  StartLinked();
  const std::string call_id = Begin('a');
  SendSettle(call_id);
  EXPECT_EQ(agent->gauges().calls, 1u);
  EXPECT_TRUE(seat.cancelled.empty());
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkCalls, FinishedCallsNobodyAsksForAreForgottenAfterADay) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, InSpool(Text(100'000)));
  EXPECT_EQ(spool.file_count(), 1u);
  loop.RunFor(absl::Hours(26));
  EXPECT_EQ(agent->gauges().calls, 0u);
  EXPECT_EQ(spool.file_count(), 0u);
}

}  // namespace
}  // namespace callboard::tests
