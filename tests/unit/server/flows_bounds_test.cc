// What bounds a call and a link when the other end says nothing: timers, sweeps, windows.
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

TEST_F(FlowsTest, HardTimerEndsACallThatBeganSoLateThatItsBudgetsDoNot) {
  auto agent = Link();
  agent->Cut();
  loop.RunReady();
  auto request = Call(OpenSession());
  request.set_queue_ms(10'000);
  request.set_run_ms(30'000);
  auto caller = Invoke(request);
  loop.RunFor(absl::Seconds(9));
  auto back = Link("boot-1", 2);
  const v1::Dispatch call = back->TakeDispatch();
  // Silent for nearly a whole run, then begun, then silent again.
  loop.RunFor(absl::Seconds(30));
  EXPECT_TRUE(caller->outcomes().empty());
  back->Started(call);
  loop.RunFor(absl::Milliseconds(10'900));
  EXPECT_TRUE(caller->outcomes().empty());
  loop.RunFor(absl::Milliseconds(200));  // queue 10 s, run 30 s and the margin of 10 s are over
  EXPECT_EQ(caller->outcome().class_(), v1::EXPIRED);
  EXPECT_EQ(caller->outcome().reason(), v1::HARD_TIMER);
  EXPECT_EQ(caller->outcome().certainty(), v1::RUNNING);
  const std::string diagnostics = caller->outcome().diagnostics();
  EXPECT_NE(diagnostics.find(R"("call_age_ms":50000)"), std::string::npos) << diagnostics;
  const absl::Time began = loop.WallNow() - absl::Seconds(50);
  EXPECT_NE(diagnostics.find(
                absl::FormatTime(R"("call_start":"%Y-%m-%dT%H:%M:)", began, absl::UTCTimeZone())),
            std::string::npos)
      << diagnostics;
  EXPECT_NE(diagnostics.find(R"("reconnects":1,"reconnects_refused":0)"
                             R"(,"last_link_loss":"the network is gone")"),
            std::string::npos)
      << diagnostics;
  EXPECT_NE(diagnostics.find(R"("linked":true)"), std::string::npos) << diagnostics;
  EXPECT_NE(diagnostics.find(R"("last_state":"waiting")"), std::string::npos) << diagnostics;
  auto cancel = back->Take(v1::ServerItem::kCancel);
  ASSERT_TRUE(cancel);
  EXPECT_EQ(cancel->cancel().reason(), v1::Cancel::DEADLINE);
}

TEST_F(FlowsTest, OrphanOfAnAgentThatNeverComesBackEndsWhenItsSeatIsForgotten) {
  const v1::Dispatch unknown = FakeAgent::UnknownCall();
  auto agent =
      Link("boot-1", 1, "journal-1", {FakeAgent::State(unknown, v1::CallState::RUNNING, 1)});
  v1::CallRef ref;
  ref.set_call_id(unknown.call_id());
  EXPECT_EQ(GetCall(ref)->phase(), v1::CALL_WAITING);
  agent->Cut();
  loop.RunFor(absl::Hours(23));
  EXPECT_EQ(GetCall(ref)->phase(), v1::CALL_WAITING);
  EXPECT_EQ(plane->gauges().open_executions, 1u);
  loop.RunFor(absl::Hours(1) + absl::Seconds(2));
  const auto receipt = GetCall(ref);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->phase(), v1::CALL_OUTCOME_UNKNOWN);
  EXPECT_EQ(receipt->reason(), v1::LINK_LOST);
  EXPECT_EQ(receipt->certainty(), v1::UNKNOWN);
  EXPECT_EQ(receipt->message(), "the agent did not come back");
  EXPECT_EQ(plane->gauges().open_executions, 0u);
}

TEST_F(FlowsTest, OrphanThatItsAgentNoLongerHoldsIsLost) {
  const v1::Dispatch unknown = FakeAgent::UnknownCall();
  auto agent =
      Link("boot-1", 1, "journal-1", {FakeAgent::State(unknown, v1::CallState::RUNNING, 1)});
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-2", 1, "journal-2");
  v1::CallRef ref;
  ref.set_call_id(unknown.call_id());
  const auto receipt = GetCall(ref);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->reason(), v1::AGENT_RESTARTED);
  EXPECT_EQ(receipt->message(), "the agent came back without the call");
  EXPECT_EQ(plane->gauges().open_executions, 0u);
}

TEST_F(FlowsTest, LinkCarriesOnlySoMuchThatItsPeerHasNotTakenAndCancelsAllTheSame) {
  auto agent = Link();
  agent->report_received = false;
  const std::string session = OpenSession();
  auto request = Call(session, "1");
  request.set_params(R"({"name":"bake","arguments":{"text":")" + std::string(2 << 20, 'x') +
                     R"("}})");
  auto large = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  // The call's own window is no bound here.
  v1::AgentItem ack;
  v1::AckEntry& entry = *ack.mutable_ack()->add_entries();
  entry.set_call_id(call.call_id());
  entry.set_attempt(1);
  entry.set_window(1 << 20);
  agent->Say(std::move(ack));
  loop.RunReady();
  size_t sent = 0;
  for (const auto& item : agent->TakeAll(v1::ServerItem::kChunk)) {
    sent += item.chunk().bytes().size();
  }
  EXPECT_GT(sent, 128u << 10);
  EXPECT_LE(sent, 256u << 10) << "no more may be under way";

  auto other = Invoke(Call(session, "2"));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch)) << "a dispatch waits for credit";
  EXPECT_TRUE(CancelRequest(session, "1"));
  ASSERT_TRUE(agent->Take(v1::ServerItem::kCancel)) << "a cancel does not";

  agent->report_received = true;
  agent->SayFrame({});
  loop.RunReady();
  EXPECT_TRUE(agent->Take(v1::ServerItem::kDispatch));
}

}  // namespace
}  // namespace callboard::server
