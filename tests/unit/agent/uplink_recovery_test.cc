// What an agent that was killed says after its next start.
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

using UplinkRecovery = AgentTest;

TEST_F(UplinkRecovery, FinishedCallIsAnsweredFromTheJournal) {
  StartLinked();
  const std::string call_id = Begin('a');
  agent->call_observer().OnEnd(call_id, MakeEnd(agent::Payload("{\"answer\":42}")));
  Kill();  // before anything could be written
  StartAgent();
  auto states = Items(v1::AgentItem::kCallState);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].call_state().phase(), v1::CallState::FINISHED);
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(Numbers(call_id), std::vector<uint64_t>{2});
  EXPECT_EQ(OutcomeOf(call_id).body().inline_(), "{\"answer\":42}");
  EXPECT_FALSE(seat.assumed_busy);
  SendSettle(call_id);
  Kill();
  StartAgent();
  EXPECT_TRUE(Items(v1::AgentItem::kCallState).empty());
}

TEST_F(UplinkRecovery, LargeBodyWaitsInTheSpoolUntilSettled) {
  StartLinked();
  const std::string text = Text(150'000);
  const std::string call_id = Begin('a');
  End(call_id, InSpool(text));
  Kill();
  EXPECT_EQ(spool.file_count(), 1u);
  StartAgent();
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 1, 100'000);
  EXPECT_EQ(Chunks(call_id, 100'000), text.substr(100'000));
  SendSettle(call_id);
  EXPECT_EQ(spool.file_count(), 0u);
  EXPECT_EQ(agent->gauges().spool_bytes, 0u);
}

TEST_F(UplinkRecovery, MissingSpoolFileIsBodyLost) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, InSpool(Text(150'000)));
  Kill();
  spool.RemoveAllBut({});
  StartAgent();
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(OutcomeOf(call_id).class_(), v1::LOST);
  EXPECT_EQ(OutcomeOf(call_id).reason(), v1::BODY_LOST);
  EXPECT_EQ(OutcomeOf(call_id).certainty(), v1::FINISHED);
}

TEST_F(UplinkRecovery, BodiesWhoseOwnerIsAwayLeaveASpoolThatIsNearlyFull) {
  spool.set_bytes_max(1'000'000);
  StartLinked();
  std::vector<std::string> calls;
  for (char letter : {'a', 'b', 'c', 'd'}) calls.push_back(Begin(letter));
  plane.Cut();
  loop.RunReady();
  for (const std::string& call_id : calls) {
    agent->call_observer().OnEnd(call_id, MakeEnd(InSpool(Text(200'000))));
    loop.RunReady();
  }
  EXPECT_LE(spool.bytes(), 600'000u);
  loop.RunFor(absl::Seconds(1));
  SendWelcome();
  for (const std::string& call_id : calls) SendVerdict(call_id, v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(OutcomeOf(calls[0]).reason(), v1::BODY_LOST);
  EXPECT_EQ(OutcomeOf(calls[0]).certainty(), v1::FINISHED);
  EXPECT_EQ(OutcomeOf(calls[0]).body().size(), 0u);
  EXPECT_EQ(OutcomeOf(calls[3]).class_(), v1::RESULT) << "the newest are kept";
  // The next run says the same.
  Kill();
  StartAgent();
  SendWelcome();
  SendVerdict(calls[0], v1::Verdict::CONTINUE, 2);
  SendVerdict(calls[3], v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(OutcomeOf(calls[0]).reason(), v1::BODY_LOST);
  EXPECT_EQ(OutcomeOf(calls[3]).body().size(), 200'000u);
}

// A client may come back for what it has been sent; new results come first.
TEST_F(UplinkRecovery, BodiesThatHaveBeenSentLeaveASpoolThatIsNearlyFull) {
  spool.set_bytes_max(1'000'000);
  StartLinked();
  std::vector<std::string> calls;
  const auto end = [&](char letter) {
    calls.push_back(Begin(letter));
    agent->call_observer().OnEnd(calls.back(), MakeEnd(InSpool(Text(200'000))));
    loop.RunReady();
    EXPECT_EQ(OutcomeOf(calls.back()).class_(), v1::RESULT);
  };
  const auto take = [&](const std::string& call_id) {
    SendAck(call_id, 1, 0, 1 << 20);
    EXPECT_EQ(Chunks(call_id), Text(200'000));
  };
  end('a');  // its reader takes nothing for now
  for (char letter : {'b', 'c', 'd', 'e', 'f', 'g'}) {
    end(letter);
    take(calls.back());
  }
  EXPECT_LE(spool.bytes(), 800'000u);
  take(calls[0]);
  plane.items.clear();
  for (const std::string& call_id : calls) SendVerdict(call_id, v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(OutcomeOf(calls[1]).reason(), v1::BODY_LOST);
  EXPECT_EQ(OutcomeOf(calls[0]).class_(), v1::RESULT) << "it had not been sent";
  EXPECT_EQ(OutcomeOf(calls[6]).class_(), v1::RESULT) << "the newest are kept";
}

TEST_F(UplinkRecovery, StartedCallIsLostAndItsSeatCountsAsBusy) {
  StartLinked();
  const std::string call_id = Begin('a');
  Send(MakeDispatch('q'));
  Kill();
  StartAgent();
  EXPECT_TRUE(seat.assumed_busy);
  ASSERT_EQ(Items(v1::AgentItem::kCallState).size(), 1u) << "a queued call is not journaled";
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 1);
  EXPECT_EQ(OutcomeOf(call_id).reason(), v1::AGENT_RESTARTED);
  EXPECT_EQ(OutcomeOf(call_id).certainty(), v1::UNKNOWN);
  Send(MakeDispatch('q'));
  EXPECT_EQ(seat.submitted.size(), 1u);
}

TEST_F(UplinkRecovery, DispatchOfAKnownCallIsAnsweredFromTheJournal) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload("{\"answer\":42}"));
  Kill();
  StartAgent();
  SendWelcome();
  Send(MakeDispatch('a'));
  EXPECT_TRUE(seat.submitted.empty());
  EXPECT_EQ(Numbers(call_id), std::vector<uint64_t>{1});
  EXPECT_EQ(OutcomeOf(call_id).body().inline_(), "{\"answer\":42}");
}

TEST_F(UplinkRecovery, TombstonesSurviveARestart) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload("{}"));
  SendSettle(call_id);
  Kill();
  StartAgent();
  SendWelcome();
  Send(MakeDispatch('a'));
  EXPECT_TRUE(seat.submitted.empty());
  EXPECT_EQ(OutcomeOf(call_id).reason(), v1::SETTLED_BEFORE);
}

TEST_F(UplinkRecovery, CallThatWasStillRunningWhenItsCallerWasToldIsLost) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload(), v1::EXPIRED, v1::RUNNING);
  Kill();
  StartAgent();
  EXPECT_TRUE(seat.assumed_busy);
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 2);
  EXPECT_EQ(Numbers(call_id), std::vector<uint64_t>{3});
  EXPECT_EQ(OutcomeOf(call_id).certainty(), v1::UNKNOWN);
}

TEST_F(UplinkRecovery, LateEndIsWhatTheJournalKeeps) {
  StartLinked();
  const std::string call_id = Begin('a');
  End(call_id, agent::Payload(), v1::EXPIRED, v1::RUNNING);
  agent->call_observer().OnLateEnd(call_id, MakeEnd(agent::Payload("{\"late\":1}")));
  Kill();
  StartAgent();
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 2);
  EXPECT_EQ(OutcomeOf(call_id).body().inline_(), "{\"late\":1}");
}

TEST_F(UplinkRecovery, JournalIdTellsWhetherTheJournalCanBeTrusted) {
  auto id = [this] {
    StartAgent();
    std::string journal_id = plane.items[0].hello().journal_id();
    Kill();
    return journal_id;
  };
  const std::string first = id();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(id(), first);
  journal.boot_id = "boot-2";
  const std::string second = id();
  EXPECT_NE(second, first);
  EXPECT_EQ(id(), second);
  journal.content.pop_back();
  const std::string third = id();
  EXPECT_NE(third, second);
  EXPECT_EQ(id(), third);
}

TEST_F(UplinkRecovery, CopiedStateFolderAnswersWhatItKnowsAndProvesNothing) {
  StartLinked();
  const std::string finished = Begin('a');
  End(finished, agent::Payload("{\"answer\":42}"));
  const std::string running = Begin('b');
  Kill();
  StartAgent();
  const std::string journal_id = plane.items[0].hello().journal_id();
  Kill();
  journal.place = "place-2";
  StartAgent();
  EXPECT_NE(plane.items[0].hello().journal_id(), journal_id);
  EXPECT_EQ(Items(v1::AgentItem::kCallState).size(), 2u);
  EXPECT_TRUE(seat.assumed_busy) << "the machine has not been booted since";
  SendWelcome();
  SendVerdict(finished, v1::Verdict::CONTINUE);
  SendVerdict(running, v1::Verdict::CONTINUE);
  EXPECT_EQ(OutcomeOf(finished).body().inline_(), "{\"answer\":42}");
  EXPECT_EQ(OutcomeOf(running).certainty(), v1::UNKNOWN);
}

TEST_F(UplinkRecovery, WithoutABootIdTheJournalProvesNothing) {
  journal.boot_id.clear();
  StartAgent();
  const std::string journal_id = plane.items[0].hello().journal_id();
  Kill();
  StartAgent();
  EXPECT_NE(plane.items[0].hello().journal_id(), journal_id);
}

TEST_F(UplinkRecovery, AfterABootOfTheMachineNoSeatIsAssumedBusy) {
  StartLinked();
  Begin('a');
  Kill();
  journal.boot_id = "boot-2";
  StartAgent();
  EXPECT_FALSE(seat.assumed_busy);
  EXPECT_EQ(Items(v1::AgentItem::kCallState).size(), 1u);
}

}  // namespace
}  // namespace callboard::tests
