// What a restart of the control plane leaves of sessions, streams and calls.
#include "callboard/v1/store.pb.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "server/flows/store_key.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DurableTest : public FlowsTest {
 protected:
  // Two sessions that want to hear of res://a.
  std::pair<std::string, std::string> TwoSubscribed(FakeAgent& agent) {
    std::pair<std::string, std::string> sessions;
    for (std::string* session : {&sessions.first, &sessions.second}) {
      *session = OpenSession("seat:" + kSeat);
      auto caller = Invoke(Request(*session, "1", "resources/subscribe", R"({"uri":"res://a"})"));
      agent.Result(agent.TakeDispatch(), 1, "{}");
      loop.RunReady();
      EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
    }
    return sessions;
  }
  static v1::EventId Id(uint64_t stream, uint64_t term, uint64_t n) {
    v1::EventId id;
    id.set_stream(stream);
    id.set_term(term);
    id.set_n(n);
    return id;
  }
  static void Log(FakeAgent& agent, const v1::Dispatch& call, uint64_t n, const std::string& text) {
    v1::AgentItem item = FakeAgent::Event(call, n);
    item.mutable_call_event()->mutable_log()->set_inline_(R"({"level":"info","data":")" + text +
                                                          R"("})");
    agent.Say(std::move(item));
  }
  // A call with a stream that has said "a" and ended; then the control plane is killed.
  v1::Dispatch EndedWithLog(const std::string& session) {
    auto agent = Link();
    auto caller = Streamed(session);
    v1::Dispatch call = agent->TakeDispatch();
    Log(*agent, call, 1, "a");
    agent->Result(call, 2);
    loop.RunFor(absl::Seconds(1));
    caller->Drop();
    plane.reset();
    store.reset();
    return call;
  }
  v1::CallRef Ref(const std::string& call_id, const std::string& session = "") {
    v1::CallRef ref;
    ref.set_call_id(call_id);
    ref.set_session_id(session);
    ref.set_with_outcome(true);
    return ref;
  }
};

TEST_F(FlowsTest, StreamsThatReceiptsBringBackStayWithinTheirBound) {
  config.limits.streams_per_session_max = 3;
  Restart();
  auto agent = Link();
  const std::string session = OpenSession();
  auto get = Listen(session, 0);
  for (int i = 1; i <= 8; ++i) {
    auto caller = Streamed(session, std::to_string(i));
    agent->Result(agent->TakeDispatch(), 1);
    loop.RunFor(absl::Seconds(1));
    caller->Drop();
  }
  EXPECT_LE(plane->gauges().streams, 4u);
  Restart();
  EXPECT_LE(plane->gauges().streams, 4u);
  EXPECT_EQ(plane->gauges().ended_executions, 8u);
  EXPECT_EQ(Listen(session, 8)->outcome().class_(), v1::RESULT) << "the newest are kept";
}

TEST_F(DurableTest, ASessionGoesOnWithWhatItHasSetUp) {
  auto agent = Link();
  const std::string session = OpenSession("seat:" + kSeat);
  auto caller = Invoke(Request(session, "1", "logging/setLevel", R"({"level":"error"})"));
  agent->Result(agent->TakeDispatch(), 1, "{}");
  loop.RunReady();
  const uint64_t term = plane->term();
  Restart();
  EXPECT_GT(plane->term(), term);
  auto found = plane->GetSession(session);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->surface(), "seat:" + kSeat);
  auto back = Link("boot-1", 2);
  auto interest = back->Take(v1::ServerItem::kInterest);
  ASSERT_TRUE(interest);
  EXPECT_EQ(interest->interest().log_level(), "error");
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession("0123").status()));
}

TEST_F(DurableTest, WhatASessionWantsIsStoredBeforeItsClientReliesOnIt) {
  auto agent = Link();
  const std::string session = OpenSession("seat:" + kSeat);
  auto caller = Invoke(Request(session, "1", "resources/subscribe", R"({"uri":"res://a"})"));
  disk.delay = absl::Milliseconds(5);
  agent->Result(agent->TakeDispatch(), 1, "{}");
  loop.RunReady();
  EXPECT_TRUE(caller->outcomes().empty()) << "a kill could still lose it";
  loop.RunFor(absl::Milliseconds(6));
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  Restart();
  auto back = Link("boot-1", 2);
  const auto interest = back->Take(v1::ServerItem::kInterest);
  ASSERT_TRUE(interest);
  EXPECT_THAT(interest->interest().resource_uris(), ElementsAre("res://a"));
}

TEST_F(DurableTest, AnUnsubscribeThatOthersSubscriptionsAnswerIsStoredBeforeItsClientReliesOnIt) {
  auto agent = Link();
  const auto [stays, leaves] = TwoSubscribed(*agent);
  disk.delay = absl::Milliseconds(5);
  auto caller = Invoke(Request(leaves, "2", "resources/unsubscribe", R"({"uri":"res://a"})"));
  loop.RunReady();
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch)) << "the backend keeps the other's";
  EXPECT_TRUE(caller->outcomes().empty()) << "a kill could still lose it";
  loop.RunFor(absl::Milliseconds(6));
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  EXPECT_EQ(caller->outcome().body().inline_(), "{}");
  ASSERT_TRUE(caller->end);
  EXPECT_TRUE(absl::IsOutOfRange(*caller->end));

  Restart();
  auto back = Link("boot-1", 2);
  auto listener = Listen(leaves, 0);
  back->Notice("notifications/resources/updated", R"({"uri":"res://a"})");
  loop.RunReady();
  EXPECT_TRUE(listener->params().empty()) << "it has unsubscribed";
}

TEST_F(DurableTest, ACallThatComesBeforeItsAgentIsBackWaitsForIt) {
  auto agent = Link();
  const std::string session = OpenSession();
  loop.RunReady();
  Restart();
  loop.RunFor(absl::Seconds(3));
  auto caller = Invoke(Call(session, "1"));
  loop.RunFor(absl::Seconds(2));
  EXPECT_TRUE(caller->outcomes().empty()) << caller->outcome().message();
  auto back = Link("boot-1", 2);
  back->Result(back->TakeDispatch(), 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().body().inline_(), R"({"ok":1})");
}

TEST_F(DurableTest, ACallForASeatThatDoesNotComeBackIsRefusedAsAfterACut) {
  auto agent = Link();
  const std::string session = OpenSession();
  Restart();
  loop.RunFor(absl::Seconds(31));
  auto caller = Invoke(Call(session, "1"));
  loop.RunReady();
  EXPECT_EQ(caller->outcome().reason(), v1::SEAT_OFFLINE);
  EXPECT_EQ(caller->outcome().certainty(), v1::NOT_STARTED);
  EXPECT_THAT(caller->outcome().message(), HasSubstr("seat 'maya-a' is stale"));
  // And it is forgotten a day after it was last linked, however often the control plane restarts.
  loop.RunFor(absl::Hours(23));
  Restart();
  EXPECT_EQ(plane->gauges().seats, 1u);
  loop.RunFor(absl::Hours(1));
  EXPECT_EQ(plane->gauges().seats, 0u);
  loop.RunFor(absl::Seconds(1));
  Restart();
  EXPECT_EQ(plane->gauges().seats, 0u);
}

TEST_F(DurableTest, ASeatIsAfterARestartWhatItWas) {
  auto agent = Link();
  v1::AgentItem item;
  *item.mutable_seat_state() = FakeAgent::Seat(4);
  item.mutable_seat_state()->set_instructions("be kind");
  item.mutable_seat_state()->set_description_rest(R"({"_meta":{"k":2.0}})");
  item.mutable_seat_state()->set_server_info(R"({"name":"maya"})");
  item.mutable_seat_state()->set_capabilities(R"({"tools":{}})");
  (*item.mutable_seat_state()->mutable_labels())["shot"] = "sh010";
  agent->Say(std::move(item));
  loop.RunReady();
  const auto rows = [this] { return plane->ListInstances({}).instances(); };
  ASSERT_EQ(rows().size(), 1);
  const v1::InstanceRow before = rows()[0];
  Restart();
  ASSERT_EQ(rows().size(), 1);
  v1::InstanceRow after = rows()[0];
  EXPECT_EQ(after.status(), "reconnecting");
  EXPECT_EQ(after.advice(), "wait");
  for (const auto& row : {&before, const_cast<const v1::InstanceRow*>(&after)}) {
    EXPECT_EQ(row->name(), "maya-a");
    EXPECT_EQ(row->incarnation(), 4u);
    EXPECT_EQ(row->scene(), "shot_010.ma");
    EXPECT_EQ(row->instructions(), "be kind");
    EXPECT_EQ(row->description_rest(), R"({"_meta":{"k":2.0}})");
    EXPECT_EQ(row->server_info(), R"({"name":"maya"})");
    EXPECT_EQ(row->capabilities(), R"({"tools":{}})");
    EXPECT_EQ(row->labels().at("shot"), "sh010");
    EXPECT_EQ(row->agent_id(), before.agent_id());
    EXPECT_EQ(row->host(), before.host());
  }
  // Its agent is told what incarnation it had.
  auto back = Link("boot-1", 2, "journal-1", {}, 4);
  const auto welcome = back->Take(v1::ServerItem::kWelcome);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->welcome().last_incarnation().at(kSeat), 4u);
  EXPECT_NE(rows()[0].status(), "reconnecting");
}

TEST_F(DurableTest, ASeatThatItsAgentHasRemovedIsNotBackAfterARestart) {
  auto agent = Link();
  v1::AgentItem item;
  item.mutable_seat_gone()->set_seat_id(kSeat);
  agent->Say(std::move(item));
  loop.RunReady();
  Restart();
  EXPECT_EQ(plane->gauges().seats, 0u);
}

TEST_F(DurableTest, AFailingStoreDelaysNoUnsubscribe) {
  auto agent = Link();
  const auto [stays, leaves] = TwoSubscribed(*agent);
  disk.failing = true;
  store->OnDiskChanged();
  auto caller = Invoke(Request(leaves, "2", "resources/unsubscribe", R"({"uri":"res://a"})"));
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(DurableTest, StreamsAreReplayedAcrossTermsInOrderWithoutGapOrDuplicate) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  Log(*agent, call, 2, "a");
  Log(*agent, call, 3, "b");
  loop.RunReady();
  const uint64_t first_term = plane->term();
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 3)});
  auto verdict = back->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CONTINUE);
  EXPECT_EQ(verdict->verdict().have_n(), 3u);
  Log(*back, call, 4, "c");
  loop.RunReady();
  auto listener = ListenAfter(session, Id(1, first_term, 1));
  back->Result(call, 5);
  loop.RunReady();
  EXPECT_THAT(listener->params(),
              ElementsAre(HasSubstr(R"("data":"b")"), HasSubstr(R"("data":"c")")));
  EXPECT_EQ(listener->outcome().id().term(), plane->term());
  EXPECT_EQ(listener->outcome().id().n(), 2u);
  EXPECT_EQ(listener->outcome().client_request_id(), "1");
  EXPECT_EQ(listener->events.back().end().reason(), "finished");
  for (const v1::ListenEvent& event : listener->events) EXPECT_FALSE(event.has_gap());
  // And once more from the start, after yet another restart.
  Restart();
  auto again = ListenAfter(session, Id(1, first_term, 0));
  EXPECT_EQ(again->params().size(), 3u);
  EXPECT_EQ(again->outcome().body().inline_(), R"({"ok":1})");
}

TEST_F(DurableTest, ProgressDoesNotFallAfterAKillAndAnOrderlyEndBehindIt) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Progress(call, 2, R"({"progress":1})");
  agent->Progress(call, 3, R"({"progress":2})");
  loop.RunReady();
  ASSERT_EQ(caller->params().size(), 2u);
  const uint64_t term = plane->term();
  Restart();
  RestartInOrder();  // without its agent having come back
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 3)});
  auto listener = ListenAfter(session, Id(1, term, 2));
  back->Started(call);
  back->Progress(call, 2, R"({"progress":1})");
  back->Progress(call, 3, R"({"progress":2})");
  back->Progress(call, 4, R"({"progress":3})");
  loop.RunReady();
  EXPECT_THAT(listener->params(),
              ElementsAre(HasSubstr(R"("progress":2)"), HasSubstr(R"("progress":3)")));
}

// A call that may run twice has told progress, which is in no store.
class SteppedTest : public DurableTest {
 protected:
  SteppedTest() : agent(Link()), session(OpenSession()) {
    GiveList(*agent, "d1");
    auto request = Call(session, "1", "look");
    request.set_open_stream_after_ms(0);
    caller = Invoke(request);
    call = agent->TakeDispatch();
    agent->Started(call);
    agent->Progress(call, 2, R"({"progress":9})");
    loop.RunReady();
    EXPECT_EQ(caller->params().size(), 1u);
  }
  // The DCC is gone, and the call is sent again.
  v1::Dispatch Again(FakeAgent& from) {
    from.Finish(call, 3, v1::LOST, v1::DCC_EXITED, v1::UNKNOWN);
    loop.RunFor(absl::Seconds(1));
    const v1::Dispatch again = from.TakeDispatch();
    EXPECT_EQ(again.attempt(), 2u);
    return again;
  }

  std::unique_ptr<FakeAgent> agent;
  std::string session;
  std::unique_ptr<Caller> caller;
  v1::Dispatch call;
};

TEST_F(SteppedTest, ProgressOfAnotherAttemptDoesNotFallAfterAKill) {
  const v1::Dispatch again = Again(*agent);
  agent->Started(again);
  loop.RunReady();
  const uint64_t term = plane->term();
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(again, v1::CallState::RUNNING, 1)});
  auto listener = ListenAfter(session, Id(1, term, 1));
  back->Progress(again, 2, R"({"progress":1})");
  back->Progress(again, 3, R"({"progress":9})");
  back->Progress(again, 4, R"({"progress":10})");
  loop.RunFor(absl::Seconds(1));
  EXPECT_THAT(listener->params(), ElementsAre(HasSubstr(R"("progress":10)")));
}

TEST_F(DurableTest, NumbersOfStreamsAreNotUsedAgainAfterARestart) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunReady();
  Restart();
  auto back = Link("boot-1", 2);
  auto next = Streamed(session, "2");
  ASSERT_TRUE(next->accepted());
  EXPECT_GT(next->accepted()->id().stream(), 1u);
}

// How far the killed control plane had shown its first attempt nobody knows any more.
TEST_F(SteppedTest, ProgressOfAnAttemptAfterAKillIsNotToldAtAll) {
  const uint64_t term = plane->term();
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 2)});
  auto listener = ListenAfter(session, Id(1, term, 1));
  const v1::Dispatch again = Again(*back);
  back->Started(again);
  back->Progress(again, 2, R"({"progress":1})");
  back->Result(again, 3);
  loop.RunFor(absl::Seconds(1));
  EXPECT_THAT(listener->params(), IsEmpty());
  EXPECT_EQ(listener->outcome().class_(), v1::RESULT);
}

TEST_F(SteppedTest, NorIsThatOfAnAttemptThatTheStoreHasNotHeardOf) {
  loop.RunFor(absl::Seconds(1));
  disk.failing = true;
  store->OnDiskChanged();
  const v1::Dispatch again = Again(*agent);
  const uint64_t term = plane->term();
  plane.reset();
  disk.failing = false;
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(again, v1::CallState::RUNNING, 1)});
  auto listener = ListenAfter(session, Id(1, term, 1));
  back->Progress(again, 2, R"({"progress":1})");
  back->Result(again, 3);
  loop.RunFor(absl::Seconds(1));
  EXPECT_THAT(listener->params(), IsEmpty());
  EXPECT_EQ(listener->outcome().class_(), v1::RESULT);
}

// Opened while the store fails its number may be lost with a kill, and given to another stream.
TEST_F(DurableTest, AStreamThatAKillHasCostIsNotTakenForALaterOneOfItsNumber) {
  auto agent = Link();
  const std::string session = OpenSession();
  loop.RunFor(absl::Milliseconds(100));
  disk.failing = true;
  store->OnDiskChanged();
  auto lost = Invoke([&] {
    auto request = Call(session);
    request.set_open_stream_after_ms(20);
    return request;
  }());
  const v1::Dispatch call = agent->TakeDispatch();
  loop.RunFor(absl::Milliseconds(100));
  Log(*agent, call, 1, "of the lost one");
  loop.RunReady();
  ASSERT_TRUE(lost->accepted());
  const uint64_t term = plane->term();
  const uint64_t number = lost->accepted()->id().stream();
  disk.failing = false;
  Restart();
  auto back = Link("boot-1", 2);
  std::unique_ptr<Caller> next;
  for (uint64_t at = 0; at < number; ++at) next = Streamed(session, std::to_string(at + 2));
  ASSERT_EQ(next->accepted()->id().stream(), number);
  for (int restarts = 0; restarts < 2; ++restarts) {
    auto listener = ListenAfter(session, Id(number, term, 1));
    ASSERT_TRUE(listener->end);
    EXPECT_TRUE(absl::IsNotFound(*listener->end)) << *listener->end;
    EXPECT_TRUE(listener->events.empty());
    loop.RunFor(absl::Seconds(1));
    if (restarts == 0) Restart();
  }
}

TEST_F(DurableTest, NothingOfAStreamIsShownBeforeItIsDurableButProgress) {
  auto agent = Link();
  const std::string session = OpenSession();
  disk.delay = absl::Milliseconds(50);
  auto caller = Streamed(session);
  EXPECT_FALSE(caller->accepted());
  const v1::Dispatch call = agent->TakeDispatch();  // which waits for no disk
  loop.RunFor(absl::Milliseconds(50));
  EXPECT_TRUE(caller->accepted());
  agent->Started(call);
  agent->Progress(call, 2, R"({"progress":1})");
  loop.RunReady();
  EXPECT_EQ(caller->params().size(), 1u);
  Log(*agent, call, 3, "a");
  agent->Progress(call, 4, R"({"progress":2})");
  loop.RunFor(absl::Milliseconds(49));
  EXPECT_EQ(caller->params().size(), 1u);  // progress keeps its place
  for (const auto& item : agent->TakeAll(v1::ServerItem::kAck)) {
    EXPECT_LE(item.ack().entries(0).n(), 2u);
  }
  loop.RunFor(absl::Milliseconds(2));
  EXPECT_EQ(caller->params().size(), 3u);
  agent->Result(call, 5);
  loop.RunFor(absl::Milliseconds(49));
  EXPECT_TRUE(caller->outcomes().empty());
  loop.RunFor(absl::Milliseconds(2));
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

// The last event of the call that the agent has been told it may forget.
uint64_t Acknowledged(FakeAgent& agent, const v1::Dispatch& call) {
  uint64_t n = 0;
  for (const auto& item : agent.TakeAll(v1::ServerItem::kAck)) {
    for (const v1::AckEntry& entry : item.ack().entries()) {
      if (entry.call_id() == call.call_id()) n = std::max(n, entry.n());
    }
  }
  return n;
}

// A call whose events up to 5 have come, and whose client reads no more since the first.
class UnreadTest : public DurableTest {
 protected:
  v1::Dispatch SaysFiveUnread(FakeAgent& agent, Caller& caller) {
    v1::Dispatch call = agent.TakeDispatch();
    agent.Started(call);
    loop.RunReady();
    caller.pulling = false;
    for (uint64_t n = 2; n <= 5; ++n) Log(agent, call, n, "at work");
    loop.RunReady();
    return call;
  }
};

TEST_F(UnreadTest, WhatACancelledCallGoesOnToSayIsAcknowledgedOnceItsClientHasReadIt) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = SaysFiveUnread(*agent, *caller);
  EXPECT_LT(Acknowledged(*agent, call), 5u) << "the client has not read them all";
  EXPECT_TRUE(CancelRequest(session, "1"));
  loop.RunReady();
  EXPECT_LT(Acknowledged(*agent, call), 5u);
  caller->pulling = true;
  caller->Pull();
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::CANCELLED);
  EXPECT_EQ(Acknowledged(*agent, call), 5u) << "or the agent waits for credit for good";
}

TEST_F(UnreadTest, WhatACancelledCallGoesOnToSayIsAcknowledgedOnceItsClientHasGone) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = SaysFiveUnread(*agent, *caller);
  EXPECT_TRUE(CancelRequest(session, "1"));
  caller->Drop();
  loop.RunReady();
  EXPECT_EQ(Acknowledged(*agent, call), 5u);
}

TEST_F(UnreadTest, WhatACancelledCallGoesOnToSayIsAcknowledgedOnceItsSessionHasEnded) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = SaysFiveUnread(*agent, *caller);
  EXPECT_TRUE(CloseSession(session).ok());
  caller->Drop();
  loop.RunReady();
  EXPECT_EQ(Acknowledged(*agent, call), 5u);
  agent->Finish(call, 6, v1::CANCELLED, v1::CANCELLED_BY_CLIENT, v1::FINISHED);
  loop.RunFor(absl::Seconds(2));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kSettle));
}

TEST_F(DurableTest, ACallAnsweredWithoutAStreamWaitsForNoDisk) {
  auto agent = Link();
  const std::string session = OpenSession();
  disk.delay = absl::Seconds(5);
  auto caller = Invoke(Call(session));
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  loop.RunFor(absl::Seconds(5));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kSettle));
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kSettle));
}

TEST_F(DurableTest, WhatWasNotDurableComesAgainFromTheAgentOnce) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  const uint64_t term = plane->term();
  disk.delay = absl::Seconds(1);
  Log(*agent, call, 1, "a");
  loop.RunReady();
  EXPECT_TRUE(caller->params().empty());
  disk.delay = absl::ZeroDuration();
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 1)});
  EXPECT_EQ(back->Take(v1::ServerItem::kVerdict)->verdict().have_n(), 0u);
  Log(*back, call, 1, "a");
  back->Result(call, 2);
  loop.RunReady();
  auto listener = ListenAfter(session, Id(1, term, 0));
  EXPECT_EQ(listener->params().size(), 1u);
  EXPECT_EQ(listener->outcome().class_(), v1::RESULT);
}

TEST_F(DurableTest, ProgressThatWasAcknowledgedIsGoneAndItsValueDoesNotFall) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  for (uint64_t n = 1; n <= 3; ++n) {
    agent->Progress(call, n, R"({"progress":)" + std::to_string(n) + "}");
  }
  loop.RunReady();
  EXPECT_EQ(caller->params().size(), 3u);
  const uint64_t term = plane->term();
  Restart();
  // It has let 1 go, and has 2 to 4.
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 4)});
  auto listener = ListenAfter(session, Id(1, term, 3));
  for (uint64_t n = 2; n <= 5; ++n) {
    back->Progress(call, n, R"({"progress":)" + std::to_string(n) + "}");
  }
  back->Result(call, 6);
  loop.RunReady();
  EXPECT_THAT(listener->params(),
              ElementsAre(HasSubstr(R"("progress":4)"), HasSubstr(R"("progress":5)")));
  EXPECT_EQ(listener->outcome().class_(), v1::RESULT);
}

TEST_F(DurableTest, AfterAnOrderlyEndEveryEventIsToldOnce) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  for (uint64_t n = 2; n <= 4; ++n) {
    agent->Progress(call, n, R"({"progress":)" + std::to_string(n) + "}");
  }
  loop.RunReady();
  const uint64_t term = plane->term();
  RestartInOrder();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 6)});
  EXPECT_EQ(back->Take(v1::ServerItem::kVerdict)->verdict().have_n(), 4u);
  auto listener = ListenAfter(session, Id(1, term, 1));
  for (uint64_t n = 5; n <= 7; ++n) {
    back->Progress(call, n, R"({"progress":)" + std::to_string(n) + "}");
  }
  back->Result(call, 8);
  loop.RunReady();
  EXPECT_THAT(listener->params(),
              ElementsAre(HasSubstr(R"("progress":3)"), HasSubstr(R"("progress":4)"),
                          HasSubstr(R"("progress":5)"), HasSubstr(R"("progress":6)"),
                          HasSubstr(R"("progress":7)")));
  EXPECT_EQ(listener->outcome().class_(), v1::RESULT);
}

TEST_F(DurableTest, AfterAnOrderlyEndNothingNewIsShownBeforeTheStoreKnowsOfTheRestart) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Progress(call, 1, R"({"progress":1})");
  loop.RunReady();
  const uint64_t term = plane->term();
  bool done = false;
  plane->Drain(absl::Milliseconds(1), [&] { done = true; });
  loop.RunFor(absl::Milliseconds(5));
  ASSERT_TRUE(done);
  disk.delay = absl::Milliseconds(50);
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 2)});
  auto listener = ListenAfter(session, Id(1, term, 1));
  back->Progress(call, 2, R"({"progress":2})");
  loop.RunFor(absl::Milliseconds(49));
  EXPECT_TRUE(listener->params().empty());
  // Killed now, the next control plane still knows what was shown.
  Restart();
  auto again = Link("boot-1", 3, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 2)});
  auto second = ListenAfter(session, Id(1, term, 1));
  again->Progress(call, 2, R"({"progress":2})");
  loop.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(second->params().size(), 1u);
}

TEST_F(DurableTest, ACallThatTheAgentDoesNotHoldIsSentAgainUnderTheSameJournalOnly) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Streamed(session, "1");
  const v1::Dispatch call = agent->TakeDispatch();
  Restart();
  auto back = Link("boot-2", 1, "journal-1");
  const v1::Dispatch again = back->TakeDispatch();
  EXPECT_EQ(again.call_id(), call.call_id());
  EXPECT_EQ(again.attempt(), 1u);
  EXPECT_EQ(again.params().inline_(), call.params().inline_());
  Restart();
  auto other = Link("boot-3", 1, "journal-2");
  EXPECT_FALSE(other->Take(v1::ServerItem::kDispatch));
  auto listener = ListenAfter(session, Id(1, 0, 0));
  EXPECT_EQ(listener->outcome().reason(), v1::JOURNAL_LOST);
  EXPECT_EQ(listener->outcome().certainty(), v1::UNKNOWN);
}

TEST_F(DurableTest, LargeParamsAreNotStoredAndTheirCallIsNotSentAgain) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto request = Call(session);
  request.set_params(R"({"name":"bake","arguments":{"text":")" + std::string(100'000, 'x') +
                     R"("}})");
  request.set_open_stream_after_ms(0);
  auto caller = Invoke(request);
  Restart();
  auto back = Link("boot-2", 1, "journal-1");
  auto listener = ListenAfter(session, Id(1, 0, 0));
  EXPECT_EQ(listener->outcome().certainty(), v1::NOT_STARTED);
  EXPECT_EQ(listener->outcome().reason(), v1::CONTROL_PLANE_RESTARTED);
  EXPECT_THAT(listener->outcome().message(), HasSubstr("too large to be stored"));
}

TEST_F(DurableTest, CallWhoseLargeParamsAreGoneIsNotTriedAgain) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto request =
      Request(session, "1", "resources/read", R"({"uri":")" + std::string(100'000, 'x') + R"("})");
  request.set_open_stream_after_ms(0);
  auto caller = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_TRUE(call.idempotent());
  agent->Started(call);
  loop.RunFor(absl::Seconds(1));
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 1)});
  back->Finish(call, 2, v1::LOST, v1::DCC_EXITED, v1::UNKNOWN);
  loop.RunFor(absl::Seconds(10));
  auto listener = ListenAfter(session, Id(1, 0, 0));
  EXPECT_EQ(listener->outcome().reason(), v1::DCC_EXITED);
  EXPECT_EQ(listener->outcome().certainty(), v1::UNKNOWN);
}

TEST_F(DurableTest, AnAnswerTooLargeToBeStoredEndsItsAskAfterARestart) {
  auto agent = Link();
  const std::string session = OpenSession("facade", R"({"elicitation":{}})");
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Ask(call, 1);
  loop.RunReady();
  ASSERT_TRUE(caller->events.back().has_ask());
  v1::SendRequest send;
  send.set_session_id(session);
  send.mutable_answer()->set_ask_id(caller->events.back().ask().ask_id());
  send.mutable_answer()->set_result('"' + std::string(2 << 20, 'x') + '"');
  agent->Cut();  // it does not reach the agent
  loop.RunReady();
  EXPECT_TRUE(Send(send));
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 1)});
  const auto answer = back->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer) << "or the tool waits for all its budget";
  EXPECT_EQ(answer->answer().ask_n(), 1u);
  EXPECT_THAT(answer->answer().error().inline_(), HasSubstr("too large to be kept"));
}

TEST_F(DurableTest, BudgetsEndACallWhoseAgentNeverComesBack) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto request = Call(session);
  request.set_open_stream_after_ms(0);
  request.set_queue_ms(20'000);
  request.set_run_ms(10'000);
  auto caller = Invoke(request);
  loop.RunFor(absl::Seconds(5));
  Restart();
  auto listener = ListenAfter(session, Id(1, 0, 0));
  loop.RunFor(absl::Seconds(34));
  EXPECT_TRUE(listener->outcomes().empty());
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(listener->outcome().reason(), v1::HARD_TIMER);
  EXPECT_THAT(listener->outcome().diagnostics(), HasSubstr(R"("call_age_ms":40000)"));
  EXPECT_EQ(plane->gauges().open_executions, 0u);
  EXPECT_EQ(plane->gauges().requests, 0u);
}

TEST_F(DurableTest, AnAnswerAndACancelThatWereAcceptedSurvive) {
  auto agent = Link();
  const std::string session = OpenSession("facade", R"({"elicitation":{}})");
  auto asking = Streamed(session, "1");
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Ask(call, 1);
  auto cancelled = Invoke(Call(session, "2"));
  const v1::Dispatch other = agent->TakeDispatch();
  agent->Started(other);
  loop.RunReady();
  ASSERT_TRUE(asking->events.back().has_ask());
  v1::SendRequest send;
  send.set_session_id(session);
  send.mutable_answer()->set_ask_id(asking->events.back().ask().ask_id());
  send.mutable_answer()->set_result(R"({"action":"accept"})");
  agent->Cut();  // neither reaches the agent
  loop.RunReady();
  EXPECT_TRUE(Send(send));
  EXPECT_TRUE(CancelRequest(session, "2"));
  Restart();
  auto back = Link("boot-1", 2, "journal-1",
                   {FakeAgent::State(call, v1::CallState::RUNNING, 1),
                    FakeAgent::State(other, v1::CallState::RUNNING, 1)});
  auto answer = back->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answer().ask_n(), 1u);
  EXPECT_EQ(answer->answer().result().inline_(), R"({"action":"accept"})");
  bool is_cancelled = false;
  for (const auto& verdict : back->TakeAll(v1::ServerItem::kVerdict)) {
    if (verdict.verdict().call_id() != other.call_id()) continue;
    is_cancelled = verdict.verdict().decision() == v1::Verdict::CANCEL;
  }
  EXPECT_TRUE(is_cancelled);
}

TEST_F(DurableTest, ReceiptsAndOutcomesOutliveARestart) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Result(call, 2);
  loop.RunFor(absl::Milliseconds(100));
  Restart();
  auto receipt = GetCall(Ref(call.call_id(), session));
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->phase(), v1::CALL_SUCCEEDED);
  EXPECT_EQ(receipt->tool(), "bake");
  EXPECT_EQ(receipt->principal(), "anna");
  EXPECT_EQ(receipt->outcome().body().inline_(), R"({"ok":1})");
  // Of the same principal, and of nobody else.
  EXPECT_TRUE(GetCall(Ref(call.call_id(), OpenSession())).ok());
  v1::OpenSessionRequest other;
  other.set_principal("bert");
  std::string berts;
  plane->OpenSession(other,
                     [&](absl::StatusOr<v1::Session> opened) { berts = opened->session_id(); });
  loop.RunReady();
  EXPECT_TRUE(absl::IsNotFound(GetCall(Ref(call.call_id(), berts)).status()));
  loop.RunFor(absl::Hours(25));
  EXPECT_TRUE(absl::IsNotFound(GetCall(Ref(call.call_id())).status()));
  for (const auto& [key, value] : disk.records) {
    EXPECT_FALSE(key.starts_with("receipts/") || key.starts_with("call/")) << key;
  }
}

TEST_F(DurableTest, AnOpenCallThatSomebodyAsksForOutlivesARestartWithItsOutcome) {
  auto agent = Link();
  v1::InvokeRequest request = Call("");
  request.mutable_client()->set_revision("2026-07-28");
  auto caller = Invoke(std::move(request));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  loop.RunReady();
  std::string durable_at_reply = "not asked";
  plane->GetCall(Ref(call.call_id()), [&](const absl::StatusOr<v1::Call>& open) {
    ASSERT_TRUE(open.ok()) << open.status();
    EXPECT_EQ(open->phase(), v1::CALL_WAITING);
    durable_at_reply = "missing";
    for (const auto& [key, value] : disk.records) {
      const auto parsed = StoreKey::Parse(key);
      if (parsed && parsed->kind == StoreKey::Kind::kCall) durable_at_reply = "there";
    }
  });
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(durable_at_reply, "there");
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 1)});
  EXPECT_EQ(GetCall(Ref(call.call_id()))->phase(), v1::CALL_WAITING);
  back->Result(call, 2);
  loop.RunFor(absl::Seconds(1));
  const auto ended = GetCall(Ref(call.call_id()));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->phase(), v1::CALL_SUCCEEDED);
  EXPECT_EQ(ended->outcome().body().inline_(), R"({"ok":1})");
}

TEST_F(DurableTest, WhileTheStoreFailsNoOpenCallIsKeptAsAJobButWhatIsKeptIsFound) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto before = Invoke(Call(session, "1"));
  const v1::Dispatch kept = agent->TakeDispatch();
  auto meanwhile = Invoke(Call(session, "2"));
  const v1::Dispatch other = agent->TakeDispatch();
  EXPECT_TRUE(GetCall(Ref(kept.call_id())).ok());
  disk.failing = true;
  store->OnDiskChanged();
  EXPECT_TRUE(GetCall(Ref(kept.call_id())).ok());
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = GetCall(Ref(other.call_id())).status();
    EXPECT_TRUE(absl::IsUnavailable(refused));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("(the disk is full)"));
  }
  disk.failing = false;
  store->OnDiskChanged();
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(GetCall(Ref(other.call_id()))->phase(), v1::CALL_SENDING);
}

TEST_F(DurableTest, ACallThatEndedJustBeforeTheKillIsNotRunOrEndedAgain) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Result(call, 1);
  loop.RunReady();
  EXPECT_EQ(caller->outcomes().size(), 1u);
  Restart();  // before its receipt was written
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::FINISHED, 1)});
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch));
  auto listener = ListenAfter(session, Id(1, 0, 0));
  EXPECT_EQ(listener->outcomes().size(), 1u);
  EXPECT_EQ(GetCall(Ref(call.call_id()))->phase(), v1::CALL_SUCCEEDED);
}

TEST_F(DurableTest, ALargeResultIsFetchedFromTheAgentAfterARestart) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  const std::string piece(64 << 10, 'p');
  agent->BigResult(call, 1, 2 * piece.size());
  loop.RunFor(absl::Milliseconds(200));
  Restart();
  auto listener = ListenAfter(session, Id(1, 0, 0));
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::FINISHED, 1)});
  auto verdict = back->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CONTINUE);
  EXPECT_EQ(verdict->verdict().have_n(), 0u);
  back->BigResult(call, 1, 2 * piece.size());
  back->Chunk(call, 1, 0, piece);
  back->Chunk(call, 1, piece.size(), piece);
  loop.RunReady();
  EXPECT_EQ(listener->body().size(), 2 * piece.size());
  EXPECT_EQ(listener->events.back().end().reason(), "finished");
}

TEST_F(DurableTest, WhileTheStoreFailsRunningCallsGoOnAndNothingIsSettled) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  disk.failing = true;
  store->OnDiskChanged();
  Log(*agent, call, 1, "a");
  agent->Result(call, 2);
  auto quick = Invoke(Call(session, "2"));
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunReady();
  EXPECT_EQ(caller->params().size(), 1u);
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  EXPECT_EQ(quick->outcome().class_(), v1::RESULT);
  EXPECT_THAT(plane->store_status().message(), testing::Eq("the disk is full"));
  absl::Status refused;
  plane->OpenSession({}, [&](absl::StatusOr<v1::Session> opened) { refused = opened.status(); });
  loop.RunReady();
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the disk is full"));
  auto job = Streamed(session, "3");
  EXPECT_EQ(job->outcome().reason(), v1::STORE_UNAVAILABLE);
  EXPECT_THAT(job->outcome().message(), HasSubstr("the disk is full"));
  loop.RunFor(absl::Seconds(70));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kSettle));
  disk.failing = false;
  store->OnDiskChanged();
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(agent->TakeAll(v1::ServerItem::kSettle).size(), 1u);
  EXPECT_FALSE(OpenSession().empty());
}

TEST_F(DurableTest, WhatHasLeftMemoryIsReadFromTheStore) {
  config.limits.replay_events_max = 2;
  Restart();
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  caller->Drop();
  std::vector<std::string> expected;
  for (uint64_t n = 1; n <= 100; ++n) {
    agent->Progress(call, n, R"({"progress":)" + std::to_string(n) + "}");
    expected.push_back(R"({"progress":)" + std::to_string(n) + R"(,"progressToken":"tok"})");
  }
  agent->Result(call, 101);
  loop.RunReady();
  EXPECT_LT(plane->gauges().replay_bytes, 1'000u);
  disk.delay = absl::Milliseconds(3);  // reading takes time, too
  auto listener = ListenAfter(session, Id(1, plane->term(), 0));
  EXPECT_TRUE(listener->params().empty());
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(listener->params(), expected);
  EXPECT_EQ(listener->outcomes().size(), 1u);
}

TEST_F(DurableTest, BeyondTheDiskBoundTheOldestGoAndAGapTellsIt) {
  config.limits.replay_events_max = 2;
  config.limits.replay_disk_bytes_max = 200'000;
  Restart();
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  caller->Drop();
  const std::string filler(1'000, 'x');
  for (uint64_t n = 1; n <= 300; ++n) Log(*agent, call, n, std::to_string(n) + filler);
  loop.RunReady();
  const uint64_t term = plane->term();
  for (int round = 0; round < 2; ++round) {
    auto listener = ListenAfter(session, Id(1, term, 0));
    uint64_t lost = 0;
    for (const v1::ListenEvent& event : listener->events) lost += event.gap().lost();
    EXPECT_GT(lost, 50u);
    EXPECT_EQ(lost + listener->params().size(), 300u);
    EXPECT_THAT(listener->params().back(), HasSubstr(R"("data":"300)"));
    Restart();
  }
}

// What a reader takes need not reach its client: the connection may be dead already.
TEST_F(DurableTest, WhatWasTakenAndKeptNowhereIsToldAsAGapBesideWhatIsStored) {
  config.limits.replay_events_max = 2;
  Restart();
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  uint64_t n = 0;
  for (; n < 6; ++n) agent->Progress(call, n + 1, R"({"progress":)" + std::to_string(n) + "}");
  loop.RunReady();
  ASSERT_EQ(caller->params().size(), 6u);
  for (; n < 8; ++n) Log(*agent, call, n + 1, std::to_string(n));
  loop.RunReady();
  caller->Drop();
  for (; n < 10; ++n) Log(*agent, call, n + 1, std::to_string(n));
  loop.RunReady();
  for (const int wait_ms : {0, 3}) {  // a store that answers at once, and one that does not
    disk.delay = absl::Milliseconds(wait_ms);
    auto listener = ListenAfter(session, Id(1, plane->term(), 1));
    loop.RunFor(absl::Seconds(1));
    uint64_t lost = 0;
    for (const v1::ListenEvent& event : listener->events) lost += event.gap().lost();
    EXPECT_GT(lost, 0u);
    EXPECT_EQ(1 + lost + listener->params().size(), 10u);
    EXPECT_TRUE(listener->events[1].has_gap()) << "told before what comes after it";
    listener->Drop();
  }
}

TEST_F(DurableTest, SessionsAreToldOnceMoreThatListsAndResourcesMayHaveChanged) {
  auto agent = Link();
  const std::string session = OpenSession("seat:" + kSeat);
  auto caller = Invoke(Request(session, "1", "resources/subscribe", R"({"uri":"scene://a"})"));
  agent->Result(agent->TakeDispatch(), 1, "{}");
  auto get = Listen(session, 0);
  const uint64_t term = plane->term();
  loop.RunReady();
  Restart();
  auto again = ListenAfter(session, Id(0, term, 0));
  FakeAgent back(loop, "boot-1", 2);
  plane->AttachAgent(back.MakeLink(), {"ipv4:127.0.0.1:1", "", ""});
  std::vector<v1::AgentItem> opening(3);
  *opening[0].mutable_hello() = back.Hello();
  *opening[1].mutable_seat_state() = FakeAgent::Seat();
  opening[1].mutable_seat_state()->set_capabilities(R"({"tools":{"listChanged":true}})");
  opening[2].mutable_inventory_done();
  back.Say(std::move(opening));
  loop.RunReady();
  std::vector<std::string> methods;
  for (const v1::ListenEvent& event : again->events) {
    if (event.has_stream_event()) methods.push_back(event.stream_event().method());
  }
  EXPECT_THAT(methods,
              ElementsAre("notifications/tools/list_changed", "notifications/resources/updated"));
}

// What it has when its agent is back may be something else than what the session would have found.
TEST_F(DurableTest, ASessionOpenedBeforeItsAgentIsBackIsToldThatListsMayHaveChanged) {
  {
    auto agent = Link();
    loop.RunReady();
  }
  loop.RunFor(absl::Milliseconds(100));
  Restart();
  const std::string session = OpenSession("seat:" + kSeat);
  auto get = Listen(session, 0);
  FakeAgent back(loop, "boot-1", 2);
  plane->AttachAgent(back.MakeLink(), {"ipv4:127.0.0.1:1", "", ""});
  std::vector<v1::AgentItem> opening(3);
  *opening[0].mutable_hello() = back.Hello();
  *opening[1].mutable_seat_state() = FakeAgent::Seat();
  opening[1].mutable_seat_state()->set_capabilities(R"({"tools":{"listChanged":true}})");
  opening[1].mutable_seat_state()->set_catalogue_digest("another list");
  opening[2].mutable_inventory_done();
  back.Say(std::move(opening));
  loop.RunReady();
  ASSERT_FALSE(get->events.empty());
  EXPECT_EQ(get->events.back().stream_event().method(), "notifications/tools/list_changed");
}

TEST_F(DurableTest, SuspensionErasesTheLogsAndKeepsTheId) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  Log(*agent, call, 1, "a");
  agent->Result(call, 2);
  loop.RunReady();
  caller->Drop();
  loop.RunFor(absl::Seconds(63));
  for (const auto& [key, value] : disk.records) {
    EXPECT_TRUE(StoreKey::Parse(key)->kind != StoreKey::Kind::kEvent &&
                StoreKey::Parse(key)->kind != StoreKey::Kind::kStream)
        << key;
  }
  Restart();
  EXPECT_TRUE(plane->GetSession(session).ok());
}

// Streams and outcomes of calls had keys of their own, by session and number.
TEST_F(DurableTest, WhatAFormerBuildHasStoredIsFoundUnderItsNewKeys) {
  const std::string session = OpenSession();
  const uint64_t term = plane->term();
  const v1::Dispatch call = EndedWithLog(session);
  std::map<std::string, std::string> former;
  for (auto& [name, value] : disk.records) {
    const auto key = StoreKey::Parse(name);
    v1::EventRecord event;
    if (!key->call) {
      former[name] = value;
    } else if (key->kind == StoreKey::Kind::kCall) {
      v1::CallRecord record;
      ASSERT_TRUE(record.ParseFromString(value));
      event = record.ended().event();
      former["outcome/" + key->call->hex()] = event.outcome().SerializeAsString();
    } else if (key->kind == StoreKey::Kind::kEvent) {
      ASSERT_TRUE(event.ParseFromString(value));
    }
    if (!key->call) continue;
    const v1::EventId& id = event.has_outcome() ? event.outcome().id() : event.stream_event().id();
    event.clear_session_id();
    former[fmt::format("event/{}/{:016x}/{:016x}.{:016x}", session, 1, id.term(), id.n())] =
        event.SerializeAsString();
  }
  v1::StreamRecord stream;
  stream.set_call_id(call.call_id());
  former[fmt::format("stream/{}/{:016x}", session, 1)] = stream.SerializeAsString();
  disk.records = former;
  Restart();
  for (const bool once_more : {false, true}) {
    auto listener = ListenAfter(session, Id(1, term, 0));
    EXPECT_THAT(listener->params(), ElementsAre(HasSubstr("\"a\"")));
    EXPECT_EQ(listener->outcome().body().inline_(), R"({"ok":1})");
    EXPECT_EQ(GetCall(Ref(call.call_id()))->outcome().body().inline_(), R"({"ok":1})");
    loop.RunFor(absl::Seconds(1));
    for (const auto& [name, value] : disk.records) EXPECT_FALSE(StoreKey::Parse(name)->former);
    if (!once_more) Restart();
  }
}

TEST_F(DurableTest, AnOutcomeThatAFormerBuildHasStoredAmongTheEventsIsFound) {
  const std::string session = OpenSession();
  const uint64_t term = plane->term();
  const v1::Dispatch call = EndedWithLog(session);
  const CallId id = *CallId::From(call.call_id());
  v1::CallRecord record;
  ASSERT_TRUE(record.ParseFromString(disk.records.at(StoreKey::OfCall(id))));
  disk.records.erase(StoreKey::OfCall(id));
  v1::EventRecord& event = *record.mutable_ended()->mutable_event();
  disk.records[StoreKey::OfEvent(StoreKey::EventsOf(session, id), {term, 2})] =
      event.SerializeAsString();
  event.mutable_outcome()->clear_id();
  disk.records[StoreKey::OfOutcome(id)] = event.outcome().SerializeAsString();
  Restart();
  auto listener = ListenAfter(session, Id(1, term, 0));
  EXPECT_THAT(listener->params(), ElementsAre(HasSubstr("\"a\"")));
  EXPECT_EQ(listener->outcome().body().inline_(), R"({"ok":1})");
  EXPECT_EQ(GetCall(Ref(call.call_id()))->outcome().body().inline_(), R"({"ok":1})");
  loop.RunFor(absl::Hours(25));
  for (const auto& [key, value] : disk.records) EXPECT_FALSE(key.starts_with("call/")) << key;
}

TEST_F(DurableTest, WhatASuspensionHasCostIsToldInALaterTerm) {
  auto agent = Link();
  const std::string session = OpenSession("seat:" + kSeat);
  auto get = Listen(session, 0);
  agent->Notice("notifications/custom", R"({"say":1})");
  agent->Notice("notifications/custom", R"({"say":2})");
  loop.RunReady();
  const uint64_t term = plane->term();
  get->Drop();
  loop.RunFor(absl::Seconds(63));
  Restart();
  auto back = Link("boot-1", 2);
  auto again = ListenAfter(session, Id(0, term, 1));
  back->Notice("notifications/custom", R"({"say":3})");
  loop.RunReady();
  ASSERT_EQ(again->events.size(), 4u);
  EXPECT_TRUE(again->events[1].has_gap());
  EXPECT_EQ(again->params(), std::vector<std::string>{R"({"say":3})"});
}

TEST_F(DurableTest, ASessionThatWasClosedIsNotBackAfterARestart) {
  const std::string session = OpenSession();
  disk.delay = absl::Milliseconds(5);
  v1::SessionRef ref;
  ref.set_session_id(session);
  bool closed = false;
  plane->CloseSession(
      ref, [&](const absl::StatusOr<v1::CloseSessionResponse>& reply) { closed = reply.ok(); });
  loop.RunReady();
  EXPECT_FALSE(closed) << "a kill could bring it back still";
  loop.RunFor(absl::Milliseconds(6));
  EXPECT_TRUE(closed);
  Restart();
  EXPECT_TRUE(absl::IsNotFound(plane->GetSession(session).status()));
}

TEST_F(DurableTest, NothingStaysOfASessionThatHasEnded) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto get = Listen(session, 0);
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  Log(*agent, call, 1, "a");
  agent->Result(call, 2);
  loop.RunReady();
  EXPECT_TRUE(CloseSession(session).ok());
  loop.RunFor(absl::Seconds(3));
  for (const auto& [key, value] : disk.records) {
    EXPECT_TRUE(key.starts_with("receipts/") || key.starts_with("seat/") ||
                key == StoreKey::OfCall(*CallId::From(call.call_id())))
        << key << " beside the receipt, and the outcome that belongs to it";
  }
}

}  // namespace
}  // namespace callboard::server
