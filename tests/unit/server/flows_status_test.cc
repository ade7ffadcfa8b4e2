// States of a call on a stream that is resumed: told to readers who want them, as they change.
#include <string>
#include <vector>

#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

class StatesTest : public FlowsTest {
 protected:
  std::unique_ptr<Listener> ListenForStates(v1::EventId after) {
    v1::ListenRequest request;
    request.set_session_id(session);
    request.set_stream(after.stream());
    *request.mutable_after() = std::move(after);
    request.set_with_status(true);
    auto listener = std::make_unique<Listener>(plane->Listen(std::move(request)));
    loop.RunReady();
    return listener;
  }
  static std::vector<v1::CallPhase> Phases(const Listener& listener) {
    std::vector<v1::CallPhase> phases;
    for (const v1::ListenEvent& event : listener.events) {
      if (event.has_status()) phases.push_back(event.status().phase());
    }
    return phases;
  }
  using Told = std::vector<v1::CallPhase>;

  std::unique_ptr<FakeAgent> agent = Link();
  const std::string session = OpenSession();
  std::unique_ptr<Caller> caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
};

TEST_F(StatesTest, AResumedStreamTellsThePresentStateAndThoseThatFollow) {
  loop.RunFor(absl::Seconds(2));
  caller->Drop();
  agent->Queued(call, 1, 3);
  loop.RunFor(absl::Seconds(2));
  auto listener = ListenForStates(caller->accepted()->id());
  EXPECT_EQ(Phases(*listener), Told{v1::CALL_QUEUED});
  EXPECT_EQ(listener->events.back().status().ahead(), 3u);
  EXPECT_EQ(listener->events.back().status().attempt(), 1u);
  loop.RunFor(absl::Seconds(2));
  agent->Started(call, 2);
  loop.RunReady();
  EXPECT_EQ(Phases(*listener), (Told{v1::CALL_QUEUED, v1::CALL_WAITING}));
  agent->Cut();
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(Phases(*listener).back(), v1::CALL_CONNECTING);
}

TEST_F(StatesTest, AreToldAtMostOnceASecondTheNewestOneAndNoneBehindTheOutcome) {
  loop.RunFor(absl::Seconds(2));
  caller->Drop();
  auto listener = ListenForStates(caller->accepted()->id());
  EXPECT_EQ(Phases(*listener), Told{v1::CALL_SENDING});
  for (uint64_t n = 1; n <= 9; ++n) agent->Queued(call, n, static_cast<uint32_t>(10 - n));
  loop.RunFor(absl::Milliseconds(900));
  EXPECT_EQ(Phases(*listener), Told{v1::CALL_SENDING});
  loop.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(Phases(*listener), (Told{v1::CALL_SENDING, v1::CALL_QUEUED}));
  EXPECT_EQ(listener->events.back().status().ahead(), 1u);
  agent->Started(call, 10);
  agent->Result(call, 11);
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(listener->outcome().class_(), v1::RESULT);
  EXPECT_EQ(Phases(*listener), (Told{v1::CALL_SENDING, v1::CALL_QUEUED}))
      << "the outcome says the last one";
}

TEST_F(StatesTest, WhoComesBackWithinASecondHearsThePresentOneWhenItIsOver) {
  caller->Drop();
  auto listener = ListenForStates(caller->accepted()->id());
  EXPECT_TRUE(Phases(*listener).empty());
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(Phases(*listener), Told{v1::CALL_SENDING});
}

TEST_F(StatesTest, AreToldBehindWhatIsReplayed) {
  caller->Drop();
  agent->Started(call);
  agent->Progress(call, 2, R"({"progress":1})");
  loop.RunFor(absl::Seconds(2));
  auto listener = ListenForStates(caller->accepted()->id());
  ASSERT_EQ(listener->events.size(), 4u);
  EXPECT_TRUE(listener->events[0].has_replaying());
  EXPECT_TRUE(listener->events[1].has_stream_event());
  EXPECT_TRUE(listener->events[2].has_live());
  EXPECT_EQ(listener->events[3].status().phase(), v1::CALL_WAITING);
}

TEST_F(StatesTest, OutliveAKillOfTheControlPlane) {
  agent->Started(call);
  loop.RunFor(absl::Seconds(2));
  const v1::EventId from = caller->accepted()->id();
  Restart();
  auto listener = ListenForStates(from);
  EXPECT_EQ(Phases(*listener), Told{v1::CALL_CONNECTING});
  loop.RunFor(absl::Seconds(1));
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 1)});
  EXPECT_EQ(Phases(*listener), (Told{v1::CALL_CONNECTING, v1::CALL_WAITING}));
}

TEST_F(StatesTest, AreForThoseAloneWhoWantThemAndOfACallAlone) {
  loop.RunFor(absl::Seconds(2));
  caller->Drop();
  auto listener = ListenAfter(session, caller->accepted()->id());
  v1::EventId own;
  own.set_term(plane->term());
  auto of_session = ListenForStates(own);
  agent->Queued(call, 1, 3);
  agent->Started(call, 2);
  loop.RunFor(absl::Seconds(3));
  EXPECT_TRUE(Phases(*listener).empty());
  EXPECT_TRUE(Phases(*of_session).empty());
}

}  // namespace
}  // namespace callboard::server
