// One agent and several control planes: whose calls, which addresses, one wish for each seat.
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

class UplinkPlanes : public AgentTest {
 protected:
  static constexpr char kFirst[] = "plane-1:9766";
  static constexpr char kSecond[] = "plane-2:9766";

  UplinkPlanes() {
    config.control_planes = {kFirst, kSecond};
    dialer.planes[kSecond] = &other;
    other_welcome = welcome;
    other_welcome.set_control_plane_id("plane-2");
    other_welcome.set_term(2);
  }
  ~UplinkPlanes() override { agent.reset(); }  // before its planes

  // Both are dialled, and the first has welcomed the agent.
  void StartFirst() {
    StartLinked();
    loop.RunFor(absl::Milliseconds(200));
  }
  void StartBoth() {
    StartFirst();
    SendWelcome(other, other_welcome);
    plane.items.clear();
    other.items.clear();
  }
  v1::Dispatch OfOther(char letter) {
    v1::Dispatch dispatch = MakeDispatch(letter);
    dispatch.set_owner_term(2);
    return dispatch;
  }
  // The plane's process is gone: its link ends and nobody answers at its address.
  void KillFirst() {
    dialer.planes.erase(kFirst);
    plane.Cut();
    loop.RunReady();
  }
  // It is there again, as a process of a later start.
  void RestartFirst(uint64_t term) {
    dialer.planes[kFirst] = &plane;
    const int dials = plane.dials;
    ASSERT_TRUE(loop.RunUntil([&] { return plane.dials > dials; }, absl::Seconds(30)));
    loop.RunReady();
    welcome.set_term(term);
    SendWelcome();
  }
  v1::Hello HelloAt(const FakePlane& at) const {
    const auto hello = Items(at, v1::AgentItem::kHello);
    return hello.empty() ? v1::Hello() : hello.front().hello();
  }
  void SendAlternates(FakePlane& from, v1::Welcome said, std::vector<std::string> addresses) {
    said.clear_alternates();
    for (std::string& address : addresses) said.add_alternates(std::move(address));
    SendWelcome(from, said);
  }
  void Refuse(FakePlane& from, const std::string& control_plane_id) {
    v1::ServerItem item;
    item.mutable_refused()->set_code(v1::Refused::ALREADY_LINKED);
    item.mutable_refused()->set_control_plane_id(control_plane_id);
    from.Send(std::move(item));
    loop.RunReady();
  }

  FakePlane other{loop};
  v1::Welcome other_welcome;
};

TEST_F(UplinkPlanes, EachIsToldOfTheSeatsAndOfTheOtherLink) {
  StartAgent();
  EXPECT_EQ(HelloAt(plane).linked_planes_size(), 0);
  EXPECT_EQ(other.dials, 0) << "the first may lead there too";
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_EQ(HelloAt(other).linked_planes_size(), 0);
  EXPECT_EQ(Items(other, v1::AgentItem::kSeatState).size(), 1u);
  SendWelcome();
  // What was being opened began anew, because it may have led to the same control plane.
  ASSERT_EQ(HelloAt(other).linked_planes_size(), 1);
  EXPECT_EQ(HelloAt(other).linked_planes(0), "plane-1");
  EXPECT_EQ(HelloAt(other).boot_id(), HelloAt(plane).boot_id());
  EXPECT_GT(HelloAt(other).link_epoch(), HelloAt(plane).link_epoch());
  SendWelcome(other, other_welcome);
  EXPECT_EQ(agent->gauges().links, 2u);
  plane.items.clear();
  other.items.clear();
  agent->seat_observer().OnSeatChanged(kSeat);
  loop.RunReady();
  EXPECT_EQ(Items(plane, v1::AgentItem::kSeatState).size(), 1u);
  EXPECT_EQ(Items(other, v1::AgentItem::kSeatState).size(), 1u);
  agent->seat_observer().OnNotice(kSeat, "notifications/message", "{}");
  loop.RunReady();
  EXPECT_EQ(Items(plane, v1::AgentItem::kNotice).size(), 1u);
  EXPECT_EQ(Items(other, v1::AgentItem::kNotice).size(), 1u);
}

TEST_F(UplinkPlanes, CallsOfBothRunAtOnceAndTheirEventsGoToTheirOwners) {
  StartBoth();
  const std::string first = Begin('a');
  const std::string second = Begin(other, OfOther('b'));
  agent->call_observer().OnProgress(first, R"({"progress":1})");
  agent->call_observer().OnProgress(second, R"({"progress":2})");
  End(second, agent::Payload("of the other"));
  End(first, agent::Payload("of the first"));
  EXPECT_EQ(Numbers(plane, first), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(Numbers(other, second), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(OutcomeOf(plane, first).body().inline_(), "of the first");
  EXPECT_EQ(OutcomeOf(other, second).body().inline_(), "of the other");
  EXPECT_TRUE(Events(plane, second).empty());
  EXPECT_TRUE(Events(other, first).empty());
  SendSettle(first);
  SendSettle(other, second, 2);
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkPlanes, CommandsOfAControlPlaneThatDoesNotOwnTheCallAreIgnored) {
  StartBoth();
  const std::string call_id = Begin('a');
  SendCancel(other, call_id, 9);
  EXPECT_TRUE(seat.cancelled.empty());
  SendSettle(other, call_id, 9);
  SendVerdict(other, call_id, v1::Verdict::SETTLE, 0, 0, 1);
  v1::Dispatch same = MakeDispatch('a');
  Send(other, same);
  EXPECT_EQ(seat.submitted.size(), 1u);
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(OutcomeOf(plane, call_id).class_(), v1::RESULT);
  EXPECT_TRUE(Events(other, call_id).empty());
  SendSettle(other, call_id, 9);
  EXPECT_EQ(agent->gauges().calls, 1u);
}

TEST_F(UplinkPlanes, WhenOneDiesItsCallsRunOnAndTheOtherIsToldWhichTheyAre) {
  StartBoth();
  const std::string orphan = Begin('a');
  const std::string own = Begin(other, OfOther('b'));
  other.items.clear();
  KillFirst();
  const auto states = Items(other, v1::AgentItem::kCallState);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].call_state().call_id(), orphan);
  EXPECT_EQ(states[0].call_state().owner_plane(), "plane-1");
  EXPECT_EQ(states[0].call_state().phase(), v1::CallState::RUNNING);
  EXPECT_EQ(states[0].call_state().last_n(), 1u);
  EXPECT_TRUE(seat.cancelled.empty());

  // The other gives no verdict: the outcome waits, and its own calls go on.
  End(orphan, agent::Payload("kept"));
  End(own, agent::Payload("{}"));
  loop.RunFor(absl::Minutes(5));
  EXPECT_TRUE(Events(other, orphan).empty());
  EXPECT_EQ(OutcomeOf(other, own).class_(), v1::RESULT);

  RestartFirst(5);
  EXPECT_TRUE(Events(plane, orphan).empty()) << "without a verdict nothing is said";
  SendVerdict(plane, orphan, v1::Verdict::CONTINUE, 1, 0, 5);
  EXPECT_EQ(Numbers(plane, orphan), (std::vector<uint64_t>{2}));
  EXPECT_EQ(OutcomeOf(plane, orphan).body().inline_(), "kept");
}

TEST_F(UplinkPlanes, OutcomeStaysInTheJournalThroughARestartOfTheAgentUntilItsOwnerAsks) {
  StartBoth();
  const std::string call_id = Begin('a');
  KillFirst();
  End(call_id, agent::Payload("kept"));
  Kill();
  StartAgent();
  loop.RunFor(absl::Milliseconds(200));
  SendWelcome(other, other_welcome);
  const auto states = Items(other, v1::AgentItem::kCallState);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].call_state().owner_plane(), "plane-1");
  EXPECT_EQ(states[0].call_state().phase(), v1::CallState::FINISHED);
  RestartFirst(5);
  SendVerdict(plane, call_id, v1::Verdict::CONTINUE, 1, 0, 5);
  EXPECT_EQ(OutcomeOf(plane, call_id).body().inline_(), "kept");
  SendSettle(plane, call_id, 5);
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkPlanes, VerdictWithAHigherTermTakesACallOver) {
  StartBoth();
  const std::string call_id = Begin('a');
  agent->call_observer().OnLog(call_id, "\"one\"");
  loop.RunReady();
  KillFirst();
  // An equal term of another control plane is no take-over, and a lower one never was.
  SendVerdict(other, call_id, v1::Verdict::CONTINUE, 0, 0, 1);
  EXPECT_TRUE(Events(other, call_id).empty());
  SendVerdict(other, call_id, v1::Verdict::CONTINUE, 1, 0, 7);
  EXPECT_EQ(Numbers(other, call_id), (std::vector<uint64_t>{2}));
  RestartFirst(6);
  plane.items.clear();
  SendVerdict(plane, call_id, v1::Verdict::CANCEL, 0, 0, 6);
  SendCancel(plane, call_id, 6);
  SendSettle(plane, call_id, 6);
  EXPECT_TRUE(seat.cancelled.empty()) << "the former owner is fenced";
  End(call_id, agent::Payload("{}"));
  EXPECT_EQ(Numbers(other, call_id), (std::vector<uint64_t>{2, 3}));
  EXPECT_TRUE(Events(plane, call_id).empty());

  // The new owner is what the inventories name from now on.
  plane.Cut();
  loop.RunFor(absl::Seconds(20));
  const auto states = Items(plane, v1::AgentItem::kCallState);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].call_state().owner_plane(), "plane-2");
  EXPECT_EQ(states[0].call_state().last_n(), 3u);
  SendSettle(other, call_id, 7);
  EXPECT_EQ(agent->gauges().calls, 0u);
}

TEST_F(UplinkPlanes, TakeOverWhileTheFormerOwnerIsStillLinkedMovesTheEvents) {
  StartBoth();
  const std::string call_id = Begin('a');
  End(call_id, InSpool(Text(200'000)));
  EXPECT_EQ(Chunks(call_id).size(), 65'536u) << "the window of the first is full";
  SendVerdict(other, call_id, v1::Verdict::CONTINUE, 1, 0, 7);
  const size_t items = plane.items.size();
  SendAck(call_id, 1, 65'536, 1 << 20);
  EXPECT_EQ(plane.items.size(), items);
  size_t bytes = 0;
  for (const auto& item : Items(other, v1::AgentItem::kChunk)) bytes += item.chunk().bytes().size();
  EXPECT_EQ(bytes, 65'536u);
}

TEST_F(UplinkPlanes, AlternatesOfAWelcomeAreLinkedUntilNobodyNamesThem) {
  config.control_planes = {kFirst};
  StartAgent();
  EXPECT_EQ(other.dials, 0);
  SendAlternates(plane, welcome, {kSecond, kSecond, ""});
  EXPECT_EQ(other.dials, 1);
  SendWelcome(other, other_welcome);
  EXPECT_EQ(agent->gauges().links, 2u);
  // The first is gone; what it named stays.
  KillFirst();
  loop.RunFor(absl::Minutes(1));
  EXPECT_TRUE(other.connected());
  // It is back and names none: the other is kept while it is linked, and then forgotten.
  dialer.planes[kFirst] = &plane;
  const int dials = plane.dials;
  ASSERT_TRUE(loop.RunUntil([&] { return plane.dials > dials; }, absl::Seconds(30)));
  loop.RunReady();
  SendAlternates(plane, welcome, {});
  EXPECT_EQ(agent->gauges().links, 2u);
  other.Cut();
  loop.RunReady();
  EXPECT_EQ(agent->gauges().links, 1u);
  const int other_dials = other.dials;
  loop.RunFor(absl::Minutes(5));
  EXPECT_EQ(other.dials, other_dials);
}

TEST_F(UplinkPlanes, GoAwayWithAlternatesAttachesElsewhere) {
  config.control_planes = {kFirst};
  StartLinked();
  const std::string call_id = Begin('a');
  v1::ServerItem item;
  item.mutable_go_away()->set_grace_ms(1'000);
  item.mutable_go_away()->add_alternates(kSecond);
  dialer.planes.erase(kFirst);
  plane.Send(std::move(item));
  loop.RunReady();
  EXPECT_EQ(other.dials, 1);
  SendWelcome(other, other_welcome);
  loop.RunFor(absl::Seconds(1));
  EXPECT_FALSE(plane.connected());
  EXPECT_TRUE(agent->gauges().linked);
  EXPECT_FALSE(Items(other, v1::AgentItem::kCallState).empty()) << "its call runs on";
  const std::string second = Begin(other, OfOther('b'));
  End(second, agent::Payload("{}"));
  EXPECT_EQ(OutcomeOf(other, second).class_(), v1::RESULT);
}

TEST_F(UplinkPlanes, SecondAddressOfOneControlPlaneIsAnotherWayToItsLink) {
  StartFirst();
  ASSERT_EQ(HelloAt(other).linked_planes(0), "plane-1");
  Refuse(other, "plane-1");
  EXPECT_EQ(agent->gauges().links, 1u);
  EXPECT_TRUE(plane.connected());
  const int dials = other.dials;
  loop.RunFor(absl::Minutes(5));
  EXPECT_EQ(other.dials, dials);
  // The first way is closed: the second is taken, by the same link.
  KillFirst();
  ASSERT_TRUE(loop.RunUntil([&] { return other.dials > dials; }, absl::Seconds(10)));
  loop.RunReady();
  EXPECT_EQ(HelloAt(other).linked_planes_size(), 0);
  SendWelcome(other, welcome);
  EXPECT_EQ(agent->gauges().links, 1u);
  EXPECT_TRUE(agent->gauges().linked);
}

TEST_F(UplinkPlanes, AddressesPartWhenTheirControlPlaneIsNoLongerTheSame) {
  StartFirst();
  Refuse(other, "plane-1");
  ASSERT_EQ(agent->gauges().links, 1u);
  const int dials = other.dials;
  CutAndRedial();
  v1::Welcome changed = welcome;
  changed.set_control_plane_id("plane-3");
  SendWelcome(plane, changed);
  EXPECT_EQ(agent->gauges().links, 2u);
  EXPECT_EQ(other.dials, dials + 1);
  ASSERT_EQ(HelloAt(other).linked_planes_size(), 1);
  EXPECT_EQ(HelloAt(other).linked_planes(0), "plane-3");
}

TEST_F(UplinkPlanes, ControlPlaneThatLetsASecondLinkInHasOneLinkAllTheSame) {
  StartFirst();
  SendWelcome(other, welcome);  // of a build that does not know linked_planes
  plane.Cut();                  // the newer link wins
  loop.RunReady();
  EXPECT_EQ(agent->gauges().links, 1u);
  EXPECT_TRUE(other.connected());
  const int dials = plane.dials;
  loop.RunFor(absl::Minutes(5));
  EXPECT_EQ(plane.dials, dials);
}

TEST_F(UplinkPlanes, AddressesAreBounded) {
  config.control_planes = {kFirst};
  StartAgent();
  std::vector<std::string> many;
  for (int i = 0; i < 100; ++i) many.push_back(fmt::format("plane-{}:1", 100 + i));
  SendAlternates(plane, welcome, many);
  EXPECT_EQ(agent->gauges().links, 16u);
  loop.RunFor(absl::Minutes(1));
  EXPECT_EQ(agent->gauges().links, 16u);
}

TEST_F(UplinkPlanes, WishesOfAllAreOneForTheSeat) {
  StartBoth();
  auto wish = [this](FakePlane& from, const std::string& level, const std::string& uri) {
    v1::ServerItem item;
    item.mutable_interest()->set_seat_id(kSeat);
    item.mutable_interest()->set_version(1);
    item.mutable_interest()->set_log_level(level);
    item.mutable_interest()->add_resource_uris(uri);
    from.Send(std::move(item));
    loop.RunReady();
  };
  wish(plane, "warning", "scene://a");
  wish(other, "info", "scene://b");
  EXPECT_EQ(seat.interest.log_level(), "info");
  ASSERT_EQ(seat.interest.resource_uris_size(), 2);
  EXPECT_EQ(seat.interest.resource_uris(1), "scene://b");
  // A new start of the other: its sessions are gone.
  other.Cut();
  const int dials = other.dials;
  ASSERT_TRUE(loop.RunUntil([&] { return other.dials > dials; }, absl::Seconds(30)));
  loop.RunReady();
  other_welcome.set_term(9);
  SendWelcome(other, other_welcome);
  EXPECT_EQ(seat.interest.log_level(), "warning");
  EXPECT_EQ(seat.interest.resource_uris_size(), 1);
}

TEST_F(UplinkPlanes, StopWritesToAllAndThenIsDone) {
  StartBoth();
  const std::string first = Begin('a');
  const std::string second = Begin(other, OfOther('b'));
  agent->call_observer().OnEnd(first, MakeEnd(agent::Payload("{}")));
  agent->call_observer().OnEnd(second, MakeEnd(agent::Payload("{}")));
  bool stopped = false;
  agent->Stop(absl::Seconds(2), [&] { stopped = true; });
  loop.RunReady();
  EXPECT_TRUE(stopped);
  EXPECT_EQ(OutcomeOf(plane, first).class_(), v1::RESULT);
  EXPECT_EQ(OutcomeOf(other, second).class_(), v1::RESULT);
}

}  // namespace
}  // namespace callboard::tests
