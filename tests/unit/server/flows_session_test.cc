// Sessions: limits, suspension, ends, their own stream.
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

TEST_F(FlowsTest, EvictsTheLeastRecentlyUsedSession) {
  config.limits.sessions_max = 2;
  Restart();
  const std::string a = OpenSession();
  const std::string b = OpenSession();
  EXPECT_TRUE(plane->GetSession(a).ok());
  const std::string c = OpenSession();
  EXPECT_TRUE(plane->GetSession(a).ok());
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession(b).status()));
  EXPECT_TRUE(plane->GetSession(c).ok());
  EXPECT_EQ(plane->gauges().sessions, 2u);
}

TEST_F(FlowsTest, EvictsNoSessionThatIsInUseWhileOthersAreAbandoned) {
  config.limits.sessions_max = 20;
  Restart();
  std::vector<std::string> in_use;
  std::vector<std::unique_ptr<Listener>> streams;
  while (in_use.size() < 17) {
    in_use.push_back(OpenSession());
    streams.push_back(Listen(in_use.back(), 0));
  }
  std::vector<std::string> abandoned;
  while (abandoned.size() < 3) abandoned.push_back(OpenSession());
  OpenSession();
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession(abandoned[0]).status()));
  for (const auto& stream : streams) {
    for (const v1::ListenEvent& event : stream->events) EXPECT_FALSE(event.has_end());
  }
  // Whose stream has lasted is not older than who has come and gone meanwhile.
  streams[0]->Drop();
  loop.RunFor(absl::Seconds(2));
  const std::string visitor = OpenSession();
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession(abandoned[1]).status()));
  loop.RunFor(absl::Minutes(1));
  streams[1]->Drop();
  for (int i = 0; i < 4; ++i) OpenSession();
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession(visitor).status()));
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession(in_use[0]).status()));
  EXPECT_TRUE(plane->GetSession(in_use[1]).ok()) << "its stream has ended just now";
}

TEST_F(FlowsTest, IfAllSessionsAreInUseTheLeastRecentlyUsedGoes) {
  config.limits.sessions_max = 3;
  Restart();
  std::vector<std::string> sessions;
  std::vector<std::unique_ptr<Listener>> streams;
  for (size_t i = 0; i < 4; ++i) {
    sessions.push_back(OpenSession());
    streams.push_back(Listen(sessions.back(), 0));
  }
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession(sessions[0]).status()));
  EXPECT_EQ(streams[0]->events.back().end().reason(), "session_ended");
  for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(plane->GetSession(sessions[i]).ok());
}

TEST_F(FlowsTest, ASessionsIdOutlivesItsGraceButNotItsIdleTime) {
  const std::string session = OpenSession();
  loop.RunFor(absl::Minutes(10));
  EXPECT_TRUE(plane->GetSession(session).ok());
  loop.RunFor(absl::Hours(8) + absl::Seconds(2));
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession(session).status()));
}

TEST_F(FlowsTest, SuspensionCancelsWhatIsQueuedAndFreesTheLogs) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  agent->Queued(agent->TakeDispatch(), 1, 2);
  loop.RunReady();
  caller->Drop();
  loop.RunFor(absl::Seconds(59));
  EXPECT_EQ(plane->gauges().streams, 1u);
  loop.RunFor(absl::Seconds(3));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kCancel));
  EXPECT_EQ(plane->gauges().open_executions, 0u);
  EXPECT_EQ(plane->gauges().streams, 0u);
  EXPECT_TRUE(plane->GetSession(session).ok());
}

TEST_F(FlowsTest, AJobInTheQueueOutlivesItsSessionsGraceAndARestart) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Streamed(session, "1");
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Queued(call, 1, 2);
  auto other = Streamed(session, "2");
  agent->Queued(agent->TakeDispatch(), 1, 3);
  loop.RunReady();
  v1::CallRef ref;
  ref.set_call_id(call.call_id());
  ref.set_with_outcome(true);
  EXPECT_EQ(GetCall(ref)->phase(), v1::CALL_QUEUED) << "it is answered with a job";
  first->Drop();
  other->Drop();
  loop.RunFor(absl::Seconds(63));
  EXPECT_EQ(agent->TakeAll(v1::ServerItem::kCancel).size(), 1u) << "the one that is no job";
  EXPECT_EQ(GetCall(ref)->phase(), v1::CALL_QUEUED);

  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::QUEUED, 1)});
  EXPECT_TRUE(plane->GetSession(session).ok());
  loop.RunFor(absl::Seconds(63));
  EXPECT_FALSE(back->Take(v1::ServerItem::kCancel));
  back->Started(call, 2);
  back->Result(call, 3);
  loop.RunFor(absl::Seconds(1));
  const auto ended = GetCall(ref);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->phase(), v1::CALL_SUCCEEDED);
  EXPECT_EQ(ended->outcome().body().inline_(), R"({"ok":1})");
}

TEST_F(FlowsTest, NumbersOfASessionsOwnStreamGoOnAfterASuspension) {
  auto agent = Link();
  const std::string session = OpenSession("seat:" + kSeat);
  auto get = Listen(session, 0);
  for (const char* params : {R"({"say":1})", R"({"say":2})"}) {
    agent->Notice("notifications/custom", params);
  }
  loop.RunReady();
  EXPECT_EQ(get->events.back().stream_event().id().n(), 2u);
  get->Drop();
  loop.RunFor(absl::Seconds(63));
  EXPECT_EQ(plane->gauges().streams, 0u);
  auto other = Listen(session, 0);
  agent->Notice("notifications/custom", R"({"say":3})");
  loop.RunReady();
  EXPECT_EQ(other->events.back().stream_event().id().n(), 3u);
  // Who has seen the first is told what the suspension has cost, and misses nothing else.
  auto back = Listen(session, 0, 1);
  uint64_t lost = 0;
  for (const v1::ListenEvent& event : back->events) lost += event.gap().lost();
  EXPECT_EQ(lost, 1u);
  EXPECT_EQ(back->params(), std::vector<std::string>{R"({"say":3})"});
  // Who has seen all is told of no loss.
  auto last = Listen(session, 0, 3);
  for (const v1::ListenEvent& event : last->events) EXPECT_FALSE(event.has_gap());
}

TEST_F(FlowsTest, WhoListensWithoutAnIdMissesNothingThatNobodyHasHeard) {
  auto agent = Link();
  const std::string session = OpenSession("seat:" + kSeat);
  using Said = std::vector<std::string>;
  auto get = Listen(session, 0);
  agent->Notice("notifications/custom", R"({"say":1})");
  loop.RunReady();
  get->Drop();
  agent->Notice("notifications/custom", R"({"say":2})");
  loop.RunReady();
  auto other = Listen(session, 0);
  EXPECT_EQ(other->params(), Said{R"({"say":2})"});
  // One that takes over begins where the other stops.
  auto third = Listen(session, 0);
  EXPECT_EQ(other->events.back().end().reason(), "taken_over");
  EXPECT_EQ(third->params(), Said());
  agent->Notice("notifications/custom", R"({"say":3})");
  loop.RunReady();
  EXPECT_EQ(third->params(), Said{R"({"say":3})"});
}

TEST_F(FlowsTest, ARunningCallKeepsItsSessionFromBeingSuspended) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto request = Call(session);
  request.set_open_stream_after_ms(0);
  request.set_run_ms(300'000);
  auto caller = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  loop.RunReady();
  caller->Drop();
  loop.RunFor(absl::Seconds(200));
  agent->Result(call, 2);
  loop.RunFor(absl::Seconds(30));
  auto listener = Listen(session, 1, 0);
  EXPECT_EQ(listener->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, ClosingASessionCancelsItsCallsAndEndsItsStreams) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto get = Listen(session, 0);
  auto caller = Invoke(Call(session));
  agent->Started(agent->TakeDispatch());
  loop.RunReady();
  EXPECT_TRUE(CloseSession(session).ok());
  loop.RunReady();
  EXPECT_EQ(get->events.back().end().reason(), "session_ended");
  EXPECT_EQ(caller->outcome().reason(), v1::CANCELLED_SESSION_ENDED);
  EXPECT_TRUE(agent->Take(v1::ServerItem::kCancel));
  EXPECT_TRUE(absl::IsNotFound(CloseSession(session)));
}

TEST_F(FlowsTest, ASessionAboutASeatHearsItsNotices) {
  auto agent = Link();
  auto get = Listen(OpenSession("seat:" + kSeat), 0);
  auto facade = Listen(OpenSession(), 0);
  agent->Notice("notifications/custom", R"({"uri":"scene://"})");
  loop.RunReady();
  EXPECT_EQ(get->params(), std::vector<std::string>{R"({"uri":"scene://"})"});
  EXPECT_TRUE(facade->params().empty());
  GiveList(*agent, "d1");
  GiveList(*agent, "d2");
  loop.RunFor(absl::Milliseconds(300));
  ASSERT_TRUE(get->events.back().has_stream_event());
  EXPECT_EQ(get->events.back().stream_event().method(), "notifications/tools/list_changed");
}

TEST_F(FlowsTest, NotificationsGoToTheSeatOfTheSession) {
  auto agent = Link();
  v1::SendRequest send;
  send.set_session_id(OpenSession("seat:" + kSeat));
  send.mutable_notify()->set_method("notifications/roots/list_changed");
  EXPECT_TRUE(Send(send));
  loop.RunReady();
  const v1::Dispatch dispatch = agent->TakeDispatch();
  EXPECT_EQ(dispatch.kind(), v1::Dispatch::NOTIFICATION);
  EXPECT_EQ(dispatch.method(), "notifications/roots/list_changed");
  EXPECT_EQ(dispatch.backend_session(), "") << "it cannot be asked and has no session of its own";
  send.mutable_notify()->set_method("notifications/initialized");
  EXPECT_FALSE(Send(send));
}

TEST_F(FlowsTest, NotificationsOfAClientThatCanBeAskedGoToItsOwnSessionAtTheBackend) {
  auto agent = Link();
  v1::SendRequest send;
  send.set_session_id(OpenSession("seat:" + kSeat, R"({"roots":{"listChanged":true}})"));
  send.mutable_notify()->set_method("notifications/roots/list_changed");
  EXPECT_TRUE(Send(send));
  loop.RunReady();
  const v1::Dispatch notification = agent->TakeDispatch();
  EXPECT_EQ(notification.backend_session(), send.session_id());
  EXPECT_EQ(notification.client().capabilities(), R"({"roots":{"listChanged":true}})");
  // As its calls do.
  auto caller = Invoke(Call(send.session_id()));
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_EQ(call.backend_session(), notification.backend_session());
  EXPECT_EQ(call.client().SerializeAsString(), notification.client().SerializeAsString());
}

}  // namespace
}  // namespace callboard::server
