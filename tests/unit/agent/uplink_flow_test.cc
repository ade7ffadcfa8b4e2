// Windows, pacing, coalescing, and going on after a cut.
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

using UplinkFlow = AgentTest;

TEST_F(UplinkFlow, AfterACutNoEventIsLostOrRepeated) {
  StartLinked();
  const std::string call_id = Begin('a');
  for (int i = 0; i < 5; ++i) {
    agent->call_observer().OnProgress(call_id, "{\"progress\":" + std::to_string(i) + "}");
  }
  loop.RunReady();
  EXPECT_EQ(Numbers(call_id), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
  CutAndRedial();
  agent->call_observer().OnProgress(call_id, "{\"progress\":5}");
  End(call_id, agent::Payload("{}"));
  SendWelcome();
  EXPECT_TRUE(Events(call_id).empty()) << "without a verdict the call says nothing";
  SendVerdict(call_id, v1::Verdict::CONTINUE, 4);
  EXPECT_EQ(Numbers(call_id), (std::vector<uint64_t>{5, 6, 7, 8}));
  EXPECT_EQ(Events(call_id)[2].progress().inline_(), "{\"progress\":5}");
  EXPECT_TRUE(Events(call_id)[3].has_outcome());
}

TEST_F(UplinkFlow, BodyGoesOnWhereTheControlPlaneHasIt) {
  StartLinked();
  const std::string text = Text(400'000);
  const std::string call_id = Begin('a');
  End(call_id, InSpool(text));
  EXPECT_EQ(OutcomeOf(call_id).body().size(), text.size());
  EXPECT_EQ(Chunks(call_id), text.substr(0, 65'536)) << "one window";
  SendAck(call_id, 1, 50'000, 100'000);
  EXPECT_GT(Chunks(call_id).size(), 100'000u);
  CutAndRedial();
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 1, 70'000);
  EXPECT_EQ(Numbers(call_id), std::vector<uint64_t>{2}) << "the header comes again";
  SendAck(call_id, 1, 70'000, 1 << 20);
  EXPECT_EQ(Chunks(call_id, 70'000), text.substr(70'000));
}

TEST_F(UplinkFlow, BodyOfAnAcknowledgedOutcomeCanBeHadAgain) {
  StartLinked();
  const std::string text = Text(60'000) + Text(60'000);
  const std::string call_id = Begin('a');
  SendAck(call_id, 1, 0, 1 << 20);
  End(call_id, InSpool(text));
  SendAck(call_id, 2, 0);
  plane.items.clear();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 1, 0);
  EXPECT_EQ(Numbers(call_id), std::vector<uint64_t>{2});
  EXPECT_EQ(Chunks(call_id), text);
}

TEST_F(UplinkFlow, WindowStopsOneCallAndNotItsNeighbour) {
  StartLinked();
  const std::string slow = Begin('a');
  const std::string quick = Begin('b');
  const std::string text = Text(300'000);
  End(slow, InSpool(text));
  EXPECT_EQ(Chunks(slow).size(), 65'536u);
  End(quick, InSpool(text));
  uint64_t consumed = 0;
  while (Chunks(quick).size() > consumed) {
    consumed = Chunks(quick).size();
    SendAck(quick, 1, consumed);
  }
  EXPECT_EQ(Chunks(quick), text);
  EXPECT_EQ(Chunks(slow).size(), 65'536u);
  SendAck(slow, 1, 65'536, 1 << 20);
  EXPECT_EQ(Chunks(slow), text);
}

TEST_F(UplinkFlow, CancelAckOvertakesABody) {
  StartLinked();
  plane.confirm = false;
  const std::string large = Begin('a');
  const std::string other = Begin('b');
  SendAck(large, 1, 0, 1 << 20);
  End(large, InSpool(Text(1'000'000)));
  const size_t before = Chunks(large).size();
  EXPECT_LE(before, 256u << 10) << "only so much may be unconfirmed";
  EXPECT_GT(before, 128u << 10);
  const size_t items = plane.items.size();
  SendCancel(other);
  ASSERT_EQ(plane.items.size(), items + 1);
  EXPECT_TRUE(plane.items.back().has_cancel_ack());
  plane.confirm = true;
  plane.SendFrame({});
  loop.RunReady();
  EXPECT_EQ(Chunks(large).size(), 1'000'000u);
  EXPECT_LE(plane.frame_bytes_max, (256u << 10) / 3)
      << "several frames are under way, and each is a turn for other calls";
}

TEST_F(UplinkFlow, BodiesTakeTurns) {
  StartLinked();
  const std::string a = Begin('a');
  const std::string b = Begin('b');
  SendAck(a, 1, 0, 1 << 20);
  SendAck(b, 1, 0, 1 << 20);
  agent->call_observer().OnEnd(a, MakeEnd(InSpool(Text(500'000))));
  End(b, InSpool(Text(500'000)));
  int changes = 0;
  std::string last;
  for (const auto& item : Items(v1::AgentItem::kChunk)) {
    if (item.chunk().call_id() != last) ++changes;
    last = item.chunk().call_id();
  }
  EXPECT_GE(changes, 12);
  EXPECT_EQ(Chunks(a).size(), 500'000u);
  EXPECT_EQ(Chunks(b).size(), 500'000u);
}

TEST_F(UplinkFlow, EveryProgressGoesOutWhileThereIsWindow) {
  StartLinked();
  const std::string call_id = Begin('a');
  for (int i = 0; i < 500; ++i) agent->call_observer().OnProgress(call_id, "{\"progress\":1}");
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(Events(call_id).size(), 502u);
}

TEST_F(UplinkFlow, CoalescedProgressLeavesNoHoleInTheNumbers) {
  StartLinked();
  const std::string call_id = Begin('a');
  const std::string padding(1'000, ' ');
  for (int i = 0; i < 500; ++i) {
    agent->call_observer().OnProgress(call_id,
                                      "{\"progress\":" + std::to_string(i) + padding + "}");
    if (i % 10 == 0) loop.RunReady();
  }
  End(call_id, agent::Payload("{}"));
  while (true) {
    const uint64_t have = Events(call_id).back().n();
    SendAck(call_id, have, 0);
    if (Events(call_id).back().n() == have) break;
  }
  auto events = Events(call_id);
  EXPECT_LT(events.size(), 100u);
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].n(), i + 1);
  EXPECT_EQ(events[events.size() - 2].progress().inline_(), "{\"progress\":499" + padding + "}")
      << "the newest is the one that is kept";
  EXPECT_TRUE(events.back().has_outcome());
  const uint64_t coalesced = 502 - events.size();  // beside them it was started and it ended
  EXPECT_EQ(agent->gauges().coalesced, coalesced);
  SendSettle(call_id);
  EXPECT_EQ(agent->gauges().coalesced, coalesced) << "of calls that are over, too";
  core::MetricsText text;
  agent->WriteMetrics(text);
  EXPECT_NE(
      text.Take().find(fmt::format("\ncallboard_agent_progress_coalesced_total {}\n", coalesced)),
      std::string::npos);
}

TEST_F(UplinkFlow, StartedSharesItsFrameWithAnOutcomeThatFollowsAtOnce) {
  StartLinked();
  Send(MakeDispatch('a'));
  const std::string call_id = CallIdOf('a');
  const uint64_t frames = plane.frames;
  ASSERT_TRUE(agent->call_observer().OnStarting(call_id, 3));
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(plane.frames, frames);
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(plane.frames, frames + 1);
  const auto events = Events(call_id);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].has_started());
  EXPECT_TRUE(events[1].has_outcome());
}

TEST_F(UplinkFlow, StartedOfASlowToolIsToldWithinTwoMilliseconds) {
  StartLinked();
  const std::string call_id = Begin('a');
  const auto events = Events(call_id);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].has_started());
}

TEST_F(UplinkFlow, LogsBeyondTheirBoundAreCounted) {
  StartLinked();
  const std::string call_id = Begin('a');
  CutAndRedial();
  const std::string padding(1'000, ' ');
  for (int i = 0; i < 400; ++i) agent->call_observer().OnLog(call_id, "{" + padding + "}");
  agent->call_observer().OnLog(call_id, "{\"last\":1}");
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 1);
  while (true) {
    const uint64_t have = Events(call_id).back().n();
    SendAck(call_id, have, 0);
    if (Events(call_id).back().n() == have) break;
  }
  auto events = Events(call_id);
  EXPECT_EQ(events.size(), 257u);
  EXPECT_NE(events[0].log().inline_().find("145 log messages were left out"), std::string::npos);
  EXPECT_EQ(events.back().log().inline_(), "{\"last\":1}");
}

TEST_F(UplinkFlow, AcknowledgedEventsAreLetGo) {
  StartLinked();
  const std::string call_id = Begin('a');
  for (int i = 0; i < 9; ++i) agent->call_observer().OnProgress(call_id, "{}");
  loop.RunReady();
  EXPECT_EQ(agent->gauges().outbox_events, 10u);
  SendAck(call_id, 8, 0);
  EXPECT_EQ(agent->gauges().outbox_events, 2u);
  SendAck(call_id, 3, 0);  // late
  EXPECT_EQ(agent->gauges().outbox_events, 2u);
}

TEST_F(UplinkFlow, WhatAFormerControlPlaneConsumedIsNotSentAgain) {
  StartLinked();
  const std::string call_id = Begin('a');
  for (const char* text : {"\"two\"", "\"three\"", "\"four\""}) {
    agent->call_observer().OnLog(call_id, text);
  }
  loop.RunReady();
  SendAck(call_id, 2, 0);
  CutAndRedial();
  welcome.set_term(4);
  SendWelcome();
  const auto states = Items(v1::AgentItem::kCallState);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].call_state().last_n(), 4u);
  // It knows nothing of the call's events; the agent begins with what it still holds.
  SendVerdict(call_id, v1::Verdict::CONTINUE, 0, 0, 4);
  EXPECT_EQ(Numbers(call_id), (std::vector<uint64_t>{3, 4}));
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(Numbers(call_id), (std::vector<uint64_t>{3, 4, 5}));
  SendSettle(call_id, 3);
  EXPECT_EQ(agent->gauges().calls, 1u) << "of the former owner";
  SendSettle(call_id, 4);
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkFlow, LastNumberIsToldThoughNothingIsHeldAnyMore) {
  StartLinked();
  const std::string call_id = Begin('a');
  agent->call_observer().OnLog(call_id, "\"two\"");
  loop.RunReady();
  SendAck(call_id, 2, 0);
  EXPECT_EQ(agent->gauges().outbox_events, 0u);
  CutAndRedial();
  EXPECT_EQ(Items(v1::AgentItem::kCallState).at(0).call_state().last_n(), 2u);
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 0, 0, 1);
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(Numbers(call_id), (std::vector<uint64_t>{3}));
}

TEST_F(UplinkFlow, VerdictCancelStopsTheCallAndItsOutcomeIsSent) {
  StartLinked();
  const std::string call_id = Begin('a');
  CutAndRedial();
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CANCEL, 1);
  EXPECT_EQ(seat.cancelled, std::vector<std::string>{call_id});
  End(call_id, agent::Payload(), v1::CANCELLED, v1::RUNNING);
  EXPECT_EQ(OutcomeOf(call_id).class_(), v1::CANCELLED);
}

TEST_F(UplinkFlow, VerdictSettleForgetsQueuedAndFinishedCalls) {
  StartLinked();
  Send(MakeDispatch('q'));
  const std::string done = Begin('a');
  End(done, agent::Payload("{}"));
  CutAndRedial();
  EXPECT_EQ(Items(v1::AgentItem::kCallState).size(), 2u);
  SendWelcome();
  SendVerdict(done, v1::Verdict::SETTLE);
  SendVerdict(CallIdOf('q'), v1::Verdict::SETTLE);
  EXPECT_EQ(seat.cancelled, std::vector<std::string>{CallIdOf('q')});
  End(CallIdOf('q'), agent::Payload(), v1::CANCELLED, v1::NOT_STARTED);
  EXPECT_EQ(agent->gauges().calls, 0u);
  EXPECT_TRUE(Events(done).empty());
}

TEST_F(UplinkFlow, AnItemLargerThanAFramesShareGoesBehindAPongToo) {
  config.limits.link_unreceived_max = 60'000;  // a frame's share is a third
  StartLinked();
  plane.confirm = false;
  const std::string call = Begin('a');
  End(call, agent::Payload(Text(40'000)));
  EXPECT_EQ(Events(call).size(), 1u) << "what was told of its beginning is under way";
  // On a quiet link only pings confirm, and each has its pong in the frame.
  v1::ServerItem ping;
  ping.mutable_ping()->set_token(1);
  plane.confirm = true;
  plane.Send(ping);
  plane.confirm = false;
  loop.RunReady();
  EXPECT_EQ(OutcomeOf(call).body().inline_(), Text(40'000));
}

TEST_F(UplinkFlow, ReportsWhatItHasReceivedWithoutBeingAsked) {
  StartLinked();
  const size_t frames = plane.frames;
  v1::ServerFrame frame;
  frame.add_items()->mutable_chunk()->set_bytes(std::string(70'000, 'x'));
  plane.SendFrame(frame);
  loop.RunReady();
  EXPECT_EQ(plane.frames, frames + 1);
}

}  // namespace
}  // namespace callboard::tests
