// How agents link: opening, refusals, fencing, liveness.
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

TEST_F(FlowsTest, WelcomesAnAgentWhoseInventoryIsDone) {
  auto agent = Link();
  auto welcome = agent->Take(v1::ServerItem::kWelcome);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->welcome().protocol(), 1u);
  EXPECT_EQ(welcome->welcome().cluster_id(), "c1a57e7");
  EXPECT_EQ(welcome->welcome().term(), plane->term());
  EXPECT_EQ(plane->gauges().agents, 1u);
  EXPECT_EQ(plane->gauges().seats, 1u);
}

TEST_F(FlowsTest, RefusesAnythingBeforeHello) {
  FakeAgent agent(loop);
  plane->AttachAgent(agent.MakeLink(), {});
  v1::AgentItem item;
  item.mutable_heartbeat();
  agent.Say(std::move(item));
  loop.RunReady();
  auto refused = agent.Take(v1::ServerItem::kRefused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->refused().code(), v1::Refused::BAD_OPENING);
  EXPECT_TRUE(agent.closed);
}

TEST_F(FlowsTest, RefusesAProtocolItDoesNotSpeakAndNamesTheOneItWants) {
  FakeAgent agent(loop);
  plane->AttachAgent(agent.MakeLink(), {});
  v1::AgentItem item;
  *item.mutable_hello() = agent.Hello();
  item.mutable_hello()->set_protocol_min(8);
  item.mutable_hello()->set_protocol_max(9);
  agent.Say(std::move(item));
  loop.RunReady();
  auto refused = agent.Take(v1::ServerItem::kRefused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->refused().code(), v1::Refused::PROTOCOL_TOO_NEW);
  EXPECT_EQ(refused->refused().wanted_protocol_max(), 1u);
  EXPECT_TRUE(refused->refused().permanent());
}

TEST_F(FlowsTest, RefusesAnIdentityThatTheCertificateDoesNotBear) {
  FakeAgent agent(loop);
  plane->AttachAgent(agent.MakeLink(), {"ipv4:10.0.0.1:1", "agent-of-certificate", ""});
  agent.Open();
  loop.RunReady();
  auto refused = agent.Take(v1::ServerItem::kRefused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->refused().code(), v1::Refused::UNAUTHENTICATED);
}

TEST_F(FlowsTest, IgnoresWhatAnAgentSaysOfTheSeatsOfAnother) {
  auto owner = Link();
  const std::string session = OpenSession("seat:" + kSeat);
  auto listener = Listen(session, 0);
  FakeAgent other(loop);
  plane->AttachAgent(other.MakeLink(), {});
  std::vector<v1::AgentItem> said(5);
  *said[0].mutable_hello() = other.Hello();
  said[0].mutable_hello()->set_agent_id("agent-2");
  said[1].mutable_inventory_done();
  *said[2].mutable_seat_state() = FakeAgent::Seat(9);
  said[3].mutable_notice()->set_seat_id(kSeat);
  said[3].mutable_notice()->set_method("notifications/message");
  said[4].mutable_seat_gone()->set_seat_id(kSeat);
  other.Say(std::move(said));
  loop.RunReady();
  EXPECT_EQ(plane->gauges().agents, 2u);
  EXPECT_EQ(plane->gauges().seats, 1u);
  EXPECT_TRUE(listener->params().empty());
  v1::ListInstancesRequest request;
  request.mutable_target()->set_instance(kSeat);
  const v1::ListInstancesResponse rows = plane->ListInstances(request);
  ASSERT_EQ(rows.instances_size(), 1);
  EXPECT_EQ(rows.instances(0).incarnation(), 1u);
}

TEST_F(FlowsTest, IgnoresWhatAnAgentSaysOfTheCallsOfAnother) {
  auto owner = Link();
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = owner->TakeDispatch();
  owner->Queued(call, 1, 1);
  loop.RunReady();
  plane->Send(CancelOf(session, "1"), [](const absl::StatusOr<v1::SendResponse>&) {});
  ASSERT_TRUE(caller->outcomes().empty()) << "the agent is asked what became of it";

  FakeAgent other(loop);
  plane->AttachAgent(other.MakeLink(), {});
  std::vector<v1::AgentItem> opening(3);
  *opening[0].mutable_hello() = other.Hello();
  opening[0].mutable_hello()->set_agent_id("agent-2");
  *opening[1].mutable_call_state() = FakeAgent::State(call, v1::CallState::RUNNING, 1);
  opening[2].mutable_inventory_done();
  other.Say(std::move(opening));
  other.Result(call, 2, R"({"forged":1})");
  other.Chunk(call, 2, 0, "forged");
  v1::AgentItem ack;
  ack.mutable_cancel_ack()->set_call_id(call.call_id());
  ack.mutable_cancel_ack()->set_effect(v1::CancelAck::DROPPED);
  other.Say(std::move(ack));
  loop.RunReady();
  EXPECT_EQ(plane->gauges().agents, 2u);
  EXPECT_FALSE(other.Take(v1::ServerItem::kVerdict));
  EXPECT_TRUE(caller->outcomes().empty());
  EXPECT_EQ(plane->gauges().ignored_items, 4u);

  owner->Result(call, 2);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().body().inline_(), R"({"ok":1})");
  other.Result(call, 3);
  loop.RunFor(absl::Seconds(1));
  EXPECT_FALSE(other.Take(v1::ServerItem::kSettle)) << "its receipt belongs to another agent too";
  EXPECT_EQ(plane->gauges().ignored_items, 5u);
}

TEST_F(FlowsTest, RefusesAnOpeningThatTakesTooLong) {
  FakeAgent agent(loop);
  plane->AttachAgent(agent.MakeLink(), {});
  loop.RunFor(absl::Seconds(6));
  auto refused = agent.Take(v1::ServerItem::kRefused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->refused().code(), v1::Refused::BAD_OPENING);
}

TEST_F(FlowsTest, NewerEpochOfTheSameBootWinsAtOnce) {
  auto old = Link();
  auto fresh = Link("boot-1", 2);
  EXPECT_TRUE(fresh->Take(v1::ServerItem::kWelcome));
  EXPECT_TRUE(old->closed);
  EXPECT_EQ(plane->gauges().agents, 1u);
}

TEST_F(FlowsTest, RefusesASecondLinkOfAProcessThatIsLinkedByAnotherAddress) {
  auto first = Link();
  FakeAgent second(loop, "boot-1", 2);
  plane->AttachAgent(second.MakeLink(), {});
  v1::AgentItem hello;
  *hello.mutable_hello() = second.Hello();
  hello.mutable_hello()->add_linked_planes("plane-of-others");
  hello.mutable_hello()->add_linked_planes("plane-1");
  second.Say(std::move(hello));
  loop.RunReady();
  auto refused = second.Take(v1::ServerItem::kRefused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->refused().code(), v1::Refused::ALREADY_LINKED);
  EXPECT_EQ(refused->refused().control_plane_id(), "plane-1");
  EXPECT_FALSE(refused->refused().permanent());
  EXPECT_FALSE(first->closed);
}

TEST_F(FlowsTest, NamesTheOtherControlPlanesInWelcomeAndGoAway) {
  config.alternates = {"10.0.0.2:9766", "10.0.0.3:9766"};
  Restart();
  auto agent = Link();
  auto welcome = agent->Take(v1::ServerItem::kWelcome);
  ASSERT_TRUE(welcome);
  ASSERT_EQ(welcome->welcome().alternates_size(), 2);
  EXPECT_EQ(welcome->welcome().alternates(1), "10.0.0.3:9766");
  plane->Drain(absl::Seconds(5), [] {});
  loop.RunReady();
  auto away = agent->Take(v1::ServerItem::kGoAway);
  ASSERT_TRUE(away);
  ASSERT_EQ(away->go_away().alternates_size(), 2);
  EXPECT_EQ(away->go_away().alternates(0), "10.0.0.2:9766");
}

TEST_F(FlowsTest, RefusesAClonedIdentityWhileTheOwnerAnswers) {
  auto owner = Link();
  auto clone = Link("boot-2");
  auto refused = clone->Take(v1::ServerItem::kRefused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->refused().code(), v1::Refused::IDENTITY_IN_USE);
  EXPECT_NE(refused->refused().message().find("ws-17 pid 4711"), std::string::npos);
  EXPECT_FALSE(owner->closed);
}

TEST_F(FlowsTest, NewBootWinsWhenTheOldLinkDoesNotAnswer) {
  auto owner = Link();
  owner->answer_pings = false;
  auto fresh = Link("boot-2");
  EXPECT_FALSE(fresh->Take(v1::ServerItem::kWelcome));
  loop.RunFor(absl::Seconds(2));
  EXPECT_TRUE(fresh->Take(v1::ServerItem::kWelcome));
  EXPECT_TRUE(owner->closed);
}

TEST_F(FlowsTest, GivesUpALinkOnWhichNothingComes) {
  auto agent = Link();
  agent->answer_pings = false;
  loop.RunFor(absl::Seconds(14));
  EXPECT_FALSE(agent->closed);
  loop.RunFor(absl::Seconds(2));
  EXPECT_TRUE(agent->closed);
  EXPECT_EQ(plane->gauges().agents, 0u);
}

TEST_F(FlowsTest, DestroyingThePlaneEndsSourcesAndLinks) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  plane.reset();
  loop.RunReady();
  EXPECT_TRUE(agent->closed);
  ASSERT_TRUE(caller->end);
  // Without a stream nobody can say later whether it ran.
  EXPECT_EQ(caller->end->code(), absl::StatusCode::kAborted);
}

TEST_F(FlowsTest, DrainRefusesTheNewAndWaitsForTheOld) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto get = Listen(session, 0);
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  bool done = false;
  plane->Drain(absl::Seconds(30), [&] { done = true; });
  loop.RunReady();
  EXPECT_TRUE(agent->Take(v1::ServerItem::kGoAway));
  ASSERT_FALSE(get->events.empty());
  EXPECT_EQ(get->events.back().end().reason(), "drain");
  EXPECT_EQ(Invoke(Call(session, "2"))->outcome().reason(), v1::DRAINING);
  EXPECT_FALSE(done);
  // The next control plane may be there at any moment.
  auto other = Link("boot-1", 2);
  auto refused = other->Take(v1::ServerItem::kRefused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->refused().code(), v1::Refused::DRAINING);
  EXPECT_EQ(refused->refused().retry_after_ms(), 1000u);
  agent->Result(call, 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace callboard::server
