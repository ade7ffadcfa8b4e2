// How the agent opens, keeps and gives up its link.
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

using UplinkLink = AgentTest;

TEST_F(UplinkLink, OpensWithHelloSeatsCallsAndInventoryDone) {
  StartAgent();
  ASSERT_EQ(plane.items.size(), 3u);
  EXPECT_EQ(plane.items[0].hello().agent_id(), config.agent_id);
  EXPECT_EQ(plane.items[0].hello().link_epoch(), 1u);
  EXPECT_EQ(plane.items[0].hello().limits().window(), 65'536u);
  EXPECT_EQ(plane.items[1].seat_state().seat_id(), kSeat);
  EXPECT_TRUE(plane.items[2].has_inventory_done());
  EXPECT_EQ(plane.frames, 1u);
  EXPECT_FALSE(agent->gauges().linked);
  SendWelcome();
  EXPECT_TRUE(agent->gauges().linked);

  const std::string call_id = Begin('a');
  CutAndRedial();
  ASSERT_EQ(plane.items.size(), 4u);
  EXPECT_EQ(plane.items[0].hello().link_epoch(), 2u);
  EXPECT_EQ(plane.items[0].hello().last_cluster_id(), "cluster");
  const v1::CallState& state = plane.items[2].call_state();
  EXPECT_EQ(state.call_id(), call_id);
  EXPECT_EQ(state.phase(), v1::CallState::RUNNING);
  EXPECT_EQ(state.last_n(), 1u);
  EXPECT_EQ(state.owner_plane(), "plane-1");
  EXPECT_EQ(state.seat().incarnation(), 3u);
}

TEST_F(UplinkLink, SendsNothingElseBeforeWelcome) {
  StartAgent();
  const size_t items = plane.items.size();
  agent->seat_observer().OnSeatChanged(kSeat);
  loop.RunFor(absl::Seconds(5));
  EXPECT_EQ(plane.items.size(), items);
  SendWelcome();
  EXPECT_EQ(Items(v1::AgentItem::kSeatState).size(), 2u);
}

TEST_F(UplinkLink, BackoffGrowsUntilWelcomeAndNotUntilTheConnect) {
  StartAgent();
  for (int i = 0; i < 20; ++i) CutAndRedial();
  absl::Duration longest;
  for (size_t i = 1; i < plane.dialled_at.size(); ++i) {
    longest = std::max(longest, plane.dialled_at[i] - plane.dialled_at[i - 1]);
  }
  EXPECT_GT(longest, absl::Seconds(2));
  EXPECT_LE(longest, absl::Seconds(10));
  SendWelcome();
  const absl::Time before = loop.Now();
  CutAndRedial();
  EXPECT_LE(loop.Now() - before, absl::Milliseconds(100));
}

// An agent with a way of its own to one control plane, which all lose at the same moment.
struct Station {
  Station(VirtualLoop& loop, uint64_t seed)
      : random(seed),
        plane(loop),
        dialer(loop, {{"plane", &plane}}),
        agent(loop, random, dialer, journal, spool,
              {.agent_id = fmt::format("{:032x}", seed), .control_planes = {"plane"}}) {
    EXPECT_TRUE(agent.Recover().ok());
    agent.Start();
  }
  int DialsWithin(absl::Time begin, absl::Duration time) const {
    return static_cast<int>(
        std::count_if(plane.dialled_at.begin(), plane.dialled_at.end(),
                      [&](absl::Time at) { return at > begin && at <= begin + time; }));
  }

  core::SeededRandom random;
  FakePlane plane;
  FakeDialer dialer;
  MemoryJournalFile journal;
  MemorySpool spool;
  agent::Agent agent;
};

TEST_F(UplinkLink, FC11_TwentyAgentsNeitherStormNorReturnInOneInstant) {
  std::vector<std::unique_ptr<Station>> stations;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    stations.push_back(std::make_unique<Station>(loop, seed));
  }
  loop.RunReady();
  v1::ServerItem item;
  *item.mutable_welcome() = welcome;
  for (auto& station : stations) station->plane.Send(item);
  loop.RunReady();
  for (auto& station : stations) {
    EXPECT_TRUE(station->agent.gauges().linked);
    station->plane.refuses = true;
    station->plane.Cut();
  }
  const absl::Time lost = loop.Now();
  loop.RunFor(absl::Minutes(15));
  for (auto& station : stations) {
    EXPECT_LE(station->DialsWithin(lost, absl::Minutes(1)), 30);
    for (int minute = 1; minute < 15; ++minute) {
      const int dials = station->DialsWithin(lost + minute * absl::Minutes(1), absl::Minutes(1));
      EXPECT_LE(dials, 20);
      EXPECT_GE(dials, 6) << "at most 10 s apart";
    }
    station->plane.refuses = false;
  }
  const absl::Time open = loop.Now();
  for (int second = 0; second < 11; ++second) {
    loop.RunFor(absl::Seconds(1));
    for (auto& station : stations) {
      if (!station->agent.gauges().linked) station->plane.Send(item);
    }
  }
  absl::Time first = absl::InfiniteFuture();
  absl::Time last = absl::InfinitePast();
  for (auto& station : stations) {
    const auto& dials = station->plane.dialled_at;
    const auto back = std::upper_bound(dials.begin(), dials.end(), open);
    ASSERT_NE(back, dials.end());
    first = std::min(first, *back);
    last = std::max(last, *back);
  }
  EXPECT_GT(last - first, absl::Seconds(1));
  loop.RunReady();
  for (auto& station : stations) EXPECT_TRUE(station->agent.gauges().linked);
}

TEST_F(UplinkLink, PermanentRefusalIsRetriedAfterAMinute) {
  StartAgent();
  v1::ServerItem item;
  item.mutable_refused()->set_permanent(true);
  item.mutable_refused()->set_code(v1::Refused::PROTOCOL_TOO_OLD);
  plane.Send(item);
  loop.RunFor(absl::Seconds(59));
  EXPECT_EQ(plane.dials, 1);
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(plane.dials, 2);

  item.mutable_refused()->set_permanent(false);
  item.mutable_refused()->set_retry_after_ms(1'000);
  plane.Send(item);
  loop.RunFor(absl::Milliseconds(990));
  EXPECT_EQ(plane.dials, 2);
  loop.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(plane.dials, 3);
}

TEST_F(UplinkLink, LinkWithoutWelcomeIsGivenUp) {
  StartAgent();
  loop.RunFor(absl::Seconds(9));
  EXPECT_EQ(plane.dials, 1);
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(plane.dials, 2);
}

TEST_F(UplinkLink, HeartbeatNamesRunningCallsAndQueueDepths) {
  StartLinked();
  const std::string call_id = Begin('a');
  Send(MakeDispatch('b'));
  seat.state.set_queue_depth(1);
  seat.state.add_running(call_id);
  loop.RunFor(absl::Seconds(5));
  auto beats = Items(v1::AgentItem::kHeartbeat);
  ASSERT_EQ(beats.size(), 1u);
  ASSERT_EQ(beats[0].heartbeat().running_size(), 1);
  EXPECT_EQ(beats[0].heartbeat().running(0), call_id);
  EXPECT_EQ(beats[0].heartbeat().queue_depth().at(kSeat), 1u);
  EXPECT_EQ(beats[0].heartbeat().load(), 1.0);
}

TEST_F(UplinkLink, SilentLinkIsPingedAndThenGivenUp) {
  StartLinked();
  plane.confirm = false;
  loop.RunFor(absl::Milliseconds(14'900));
  EXPECT_FALSE(Items(v1::AgentItem::kPing).empty());
  EXPECT_EQ(plane.dials, 1);
  loop.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(plane.dials, 2);
  EXPECT_FALSE(agent->gauges().linked);
}

TEST_F(UplinkLink, AnswersPing) {
  StartLinked();
  v1::ServerItem item;
  item.mutable_ping()->set_token(99);
  plane.Send(item);
  loop.RunReady();
  auto pongs = Items(v1::AgentItem::kPong);
  ASSERT_EQ(pongs.size(), 1u);
  EXPECT_EQ(pongs[0].pong().token(), 99u);
}

TEST_F(UplinkLink, GoAwayFinishesTheCallsAndAttachesAgain) {
  StartLinked();
  const std::string call_id = Begin('a');
  agent->call_observer().OnProgress(call_id, "{\"progress\":1}");
  v1::ServerItem item;
  item.mutable_go_away()->set_grace_ms(10'000);
  plane.Send(item);
  loop.RunFor(absl::Seconds(2));
  EXPECT_TRUE(plane.connected()) << "only here the call's end is of use";
  EXPECT_EQ(Numbers(call_id), (std::vector<uint64_t>{1, 2}));
  End(call_id, agent::Payload("{}"));
  EXPECT_TRUE(plane.connected());
  EXPECT_EQ(OutcomeOf(call_id).class_(), v1::RESULT);
  SendSettle(call_id);
  EXPECT_FALSE(plane.connected());
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_EQ(plane.dials, 2);
}

TEST_F(UplinkLink, GoAwayWaitsForCallsNoLongerThanItsGrace) {
  StartLinked();
  const std::string call_id = Begin('a');
  agent->call_observer().OnProgress(call_id, "{\"progress\":1}");
  v1::ServerItem item;
  item.mutable_go_away()->set_grace_ms(1'000);
  plane.Send(item);
  loop.RunFor(absl::Milliseconds(900));
  EXPECT_EQ(plane.dials, 1);
  EXPECT_EQ(Numbers(call_id), (std::vector<uint64_t>{1, 2}));
  loop.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(plane.dials, 2);
}

TEST_F(UplinkLink, StopWritesTheOutcomeBeforeItCloses) {
  StartLinked();
  const std::string call_id = Begin('a');
  agent->call_observer().OnEnd(call_id, MakeEnd(agent::Payload("{}")));
  bool stopped = false;
  agent->Stop(absl::Seconds(5), [&] { stopped = true; });
  EXPECT_FALSE(stopped);
  loop.RunReady();
  EXPECT_TRUE(stopped);
  EXPECT_FALSE(plane.connected());
  EXPECT_EQ(OutcomeOf(call_id).class_(), v1::RESULT);
  loop.RunFor(absl::Minutes(5));
  EXPECT_EQ(plane.dials, 1);
}

TEST_F(UplinkLink, StopWaitsForWhatOnlyThePaceHoldsBack) {
  StartLinked();
  const std::string call_id = Begin('a');
  SendAck(call_id, 1, 0, 1 << 20);
  plane.confirm = false;
  agent->call_observer().OnEnd(call_id, MakeEnd(InSpool(Text(900'000))));
  bool stopped = false;
  agent->Stop(absl::Seconds(5), [&] { stopped = true; });
  loop.RunReady();
  EXPECT_FALSE(stopped);
  plane.confirm = true;
  plane.SendFrame({});
  loop.RunReady();
  EXPECT_TRUE(stopped);
  EXPECT_EQ(Chunks(call_id).size(), 900'000u);
}

TEST_F(UplinkLink, StatesThatDoNotFitIntoOneFrameAllGoBeforeTheOutcome) {
  StartLinked();
  const std::string call_id = Begin('a');
  plane.items.clear();
  std::vector<FakeSeat::Asked> others(8);
  for (size_t i = 0; i < others.size(); ++i) {
    agent->AddSeat(std::make_unique<FakeSeat>("seat" + std::to_string(i), others[i]));
    others[i].state.set_instructions(std::string(60'000, 'x'));
  }
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(Items(v1::AgentItem::kSeatState).size(), 8u);
  EXPECT_LE(plane.frame_bytes_max, 256u << 10);
  EXPECT_TRUE(plane.items.back().call_event().has_outcome());
  agent.reset();
}

TEST_F(UplinkLink, StopEndsWhenTheLinkIsCutMeanwhile) {
  StartLinked();
  plane.confirm = false;
  const std::string call_id = Begin('a');
  bool stopped = false;
  agent->call_observer().OnEnd(call_id, MakeEnd(agent::Payload("{}")));
  agent->Stop(absl::Seconds(5), [&] { stopped = true; });
  plane.Cut();
  loop.RunReady();
  EXPECT_TRUE(stopped);
  loop.RunFor(absl::Minutes(5));
  EXPECT_EQ(plane.dials, 1);
}

TEST_F(UplinkLink, NewCatalogueIsToldBeforeTheOutcomeThatFollowsIt) {
  StartLinked();
  const std::string call_id = Begin('a');
  plane.items.clear();
  seat.state.set_catalogue_digest("new");
  agent->call_observer().OnProgress(call_id, "{}");
  agent->seat_observer().OnSeatChanged(kSeat);
  agent->seat_observer().OnSeatChanged(kSeat);
  End(call_id, agent::Payload("{}"));
  ASSERT_GE(plane.items.size(), 2u);
  EXPECT_EQ(plane.items[0].seat_state().catalogue_digest(), "new");
  EXPECT_EQ(Items(v1::AgentItem::kSeatState).size(), 1u);
  EXPECT_TRUE(plane.items.back().call_event().has_outcome());
}

TEST_F(UplinkLink, LargeCatalogueComesInChunksUnderTheSeatId) {
  StartLinked();
  const std::string text = Text(300'000);
  seat.catalogue = agent::Payload(text);
  seat.state.set_catalogue_digest("d1");
  v1::ServerItem item;
  item.mutable_catalogue_want()->set_digest("d1");
  plane.Send(item);
  plane.Send(item);
  loop.RunReady();
  auto catalogues = Items(v1::AgentItem::kCatalogue);
  ASSERT_EQ(catalogues.size(), 1u);
  EXPECT_EQ(catalogues[0].catalogue().body().size(), text.size());
  EXPECT_EQ(catalogues[0].catalogue().seat_id(), kSeat);
  EXPECT_EQ(Chunks(kSeat), text);
}

TEST_F(UplinkLink, NoticesAreCoalescedAndAHoleIsReportedAsAHole) {
  config.limits.notices_max = 4;
  StartLinked();
  for (int i = 0; i < 3; ++i) {
    agent->seat_observer().OnNotice(kSeat, "notifications/tools/list_changed", "{}");
  }
  for (int i = 0; i < 6; ++i) {
    agent->seat_observer().OnNotice(kSeat, "notifications/message",
                                    "{\"i\":" + std::to_string(i) + "}");
  }
  loop.RunReady();
  auto notices = Items(v1::AgentItem::kNotice);
  ASSERT_EQ(notices.size(), 5u);
  EXPECT_EQ(notices[0].notice().method(), "notifications/tools/list_changed");
  EXPECT_EQ(notices[0].notice().n(), 0u) << "one that says \"look again\" has no number";
  EXPECT_EQ(notices[1].notice().params().inline_(), "{\"i\":2}");
  EXPECT_EQ(notices[1].notice().n(), 3u);
  EXPECT_EQ(notices[1].notice().lost(), 2u);
  EXPECT_EQ(notices[4].notice().n(), 6u);
  EXPECT_EQ(notices[4].notice().lost(), 0u);
  EXPECT_EQ(agent->gauges().notices_lost, 2u);
}

TEST_F(UplinkLink, NoticesAreKeptUntilTheyAreAcknowledged) {
  welcome.add_features("notice_acks");
  StartAgent();
  ASSERT_FALSE(Items(v1::AgentItem::kHello).empty());
  EXPECT_EQ(Items(v1::AgentItem::kHello)[0].hello().features(0), "notice_acks");
  SendWelcome();
  const auto ack = [this](uint64_t n) {
    v1::ServerItem item;
    item.mutable_notice_ack()->set_seat_id(kSeat);
    item.mutable_notice_ack()->set_n(n);
    plane.Send(std::move(item));
    loop.RunReady();
  };
  const auto told = [this] {
    std::vector<std::string> texts;
    for (const v1::AgentItem& item : Items(v1::AgentItem::kNotice)) {
      const v1::Notice& notice = item.notice();
      texts.push_back(
          fmt::format("{}:{}{}", notice.n(), notice.params().inline_(),
                      notice.lost() > 0 ? fmt::format(" after {}", notice.lost()) : ""));
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  for (const char* text : {"a", "b", "c"}) {
    agent->seat_observer().OnNotice(kSeat, "notifications/message", text);
  }
  loop.RunReady();
  EXPECT_EQ(told(), (Texts{"1:a", "2:b", "3:c"}));
  ack(1);
  CutAndRedial();
  agent->seat_observer().OnNotice(kSeat, "notifications/message", "d");
  SendWelcome();
  EXPECT_EQ(told(), (Texts{"2:b", "3:c", "4:d"})) << "received is not kept";
  EXPECT_EQ(agent->gauges().notices, 0u);
  ack(4);
  CutAndRedial();
  SendWelcome();
  EXPECT_EQ(told(), Texts{});

  // A seat that goes and comes back counts on.
  agent->RemoveSeat(kSeat, "row removed");
  agent->AddSeat(std::make_unique<FakeSeat>(kSeat, seat));
  agent->seat_observer().OnNotice(kSeat, "notifications/message", "e");
  loop.RunReady();
  EXPECT_EQ(told(), (Texts{"5:e"}));
}

TEST_F(UplinkLink, NoticesBeyondTheBoundAreCountedForTheNextOne) {
  config.limits.notices_max = 2;
  welcome.add_features("notice_acks");
  StartLinked();
  for (int i = 0; i < 3; ++i) {
    agent->seat_observer().OnNotice(kSeat, "notifications/message", "x");
    loop.RunReady();
  }
  EXPECT_EQ(Items(v1::AgentItem::kNotice).size(), 3u) << "all were written";
  CutAndRedial();
  SendWelcome();
  const auto again = Items(v1::AgentItem::kNotice);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].notice().n(), 2u);
  EXPECT_EQ(again[0].notice().lost(), 1u) << "unless the control plane has it";
  EXPECT_EQ(again[1].notice().lost(), 0u);
}

TEST_F(UplinkLink, AControlPlaneThatAcknowledgesNoNoticesIsToldOnce) {
  welcome.add_features("notice_acks");
  StartLinked();
  agent->seat_observer().OnNotice(kSeat, "notifications/message", "a");
  loop.RunReady();
  plane.Cut();
  loop.RunReady();
  agent->seat_observer().OnNotice(kSeat, "notifications/message", "b");
  welcome.clear_features();  // an older build was put in its place
  ASSERT_TRUE(loop.RunUntil([&] { return plane.connected(); }, absl::Seconds(30)));
  loop.RunReady();
  SendWelcome();
  const auto told = Items(v1::AgentItem::kNotice);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].notice().params().inline_(), "b");
}

TEST_F(UplinkLink, NewsThatACutMayHaveLostAreToldAgain) {
  StartLinked();
  agent->seat_observer().OnNotice(kSeat, "notifications/resources/updated", R"({"uri":"a://"})");
  loop.RunReady();
  ASSERT_EQ(Items(v1::AgentItem::kNotice).size(), 1u);
  plane.confirm = false;
  agent->seat_observer().OnNotice(kSeat, "notifications/resources/updated", R"({"uri":"b://"})");
  agent->seat_observer().OnNotice(kSeat, "notifications/message", R"({"data":"once"})");
  loop.RunReady();
  CutAndRedial();
  SendWelcome();
  const auto again = Items(v1::AgentItem::kNotice);
  ASSERT_EQ(again.size(), 1u) << "what the control plane has is not told again";
  EXPECT_EQ(again[0].notice().params().inline_(), R"({"uri":"b://"})");
}

TEST_F(UplinkLink, RemovedSeatIsToldAndItsCallsEnd) {
  StartLinked();
  const std::string running = Begin('a');
  Send(MakeDispatch('b'));
  agent->RemoveSeat(kSeat, "row removed");
  loop.RunReady();
  ASSERT_EQ(Items(v1::AgentItem::kSeatGone).size(), 1u);
  EXPECT_EQ(OutcomeOf(running).class_(), v1::LOST);
  EXPECT_EQ(OutcomeOf(running).certainty(), v1::UNKNOWN);
  EXPECT_EQ(OutcomeOf(CallIdOf('b')).certainty(), v1::NOT_STARTED);
}

TEST_F(UplinkLink, KnowsIncarnationsOfWelcomeAndOfFormerRuns) {
  (*welcome.mutable_last_incarnation())[kSeat] = 9;
  StartLinked();
  EXPECT_EQ(agent->known_incarnation(kSeat), 9u);
  Kill();
  StartAgent();
  EXPECT_EQ(agent->known_incarnation(kSeat), 9u);
}

TEST_F(UplinkLink, CordonReachesTheSeat) {
  StartLinked();
  v1::ServerItem item;
  item.mutable_seat_control()->set_seat_id(kSeat);
  item.mutable_seat_control()->set_cordon(true);
  plane.Send(item);
  loop.RunReady();
  EXPECT_TRUE(seat.cordoned);
}

}  // namespace
}  // namespace callboard::tests
