// Tests of what a backend asks the client of a session while none of its calls is the cause.
#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {
namespace {

class SessionAsksOfASeat : public SeatFixture {
 protected:
  SessionAsksOfASeat() {
    has_sessions = true;
    Begin({});
  }
  // A client "s1" of the control plane "p1" has had one call, which is over.
  void Begin(const SeatLimits& limits) {
    MakeSeat(limits);
    BringUp();
    Submit(Client("A"));
    own = backend->others.at(0);
    first_exchange = own->Last("tools/call").exchange;
    own->Answer(first_exchange, R"({"content":[]})");
    loop.RunReady();
    told.clear();
  }
  CallSpec Client(std::string id) {
    CallSpec spec = Tool(std::move(id));
    spec.session_id = spec.backend_session = "s1";
    spec.control_plane = "p1";
    spec.client_capabilities = R"({"roots":{}})";
    return spec;
  }
  void AskRoots(std::string_view raw_id, uint64_t exchange = 0) {
    own->Say(core::MakeRequest(raw_id, "roots/list", "{}"), exchange);
    loop.RunReady();
  }

  PlayedBackend* own = nullptr;
  uint64_t first_exchange = 0;
};

TEST_F(SessionAsksOfASeat, WhoseMethodsNameIsTooLongForAnItemIsRefusedAtOnce) {
  const std::string name(300 << 10, 'm');
  own->Say(core::MakeRequest("7", name, "{}"));
  own->Say(core::MakeNotification("notifications/" + name, "{}"));
  loop.RunReady();
  EXPECT_EQ(told, Told());
  EXPECT_NE(
      own->sent.back().text.find("the method's name has 307200 bytes; at most 1024 are taken"),
      std::string::npos);
  AskRoots("8");
  EXPECT_EQ(told, Told{"session s1 at p1 is asked roots/list {} (1)"});
}

TEST_F(SessionAsksOfASeat, ReachTheClientAfterItsCallsAreOver) {
  AskRoots("\"r-1\"");
  EXPECT_EQ(told, Told{"session s1 at p1 is asked roots/list {} (1)"});
  seat->Answer(1, false, Payload(std::string(R"({"roots":[]})")));
  EXPECT_EQ(own->sent.back().text, R"({"jsonrpc":"2.0","id":"r-1","result":{"roots":[]}})");
  const size_t sent = own->sent.size();
  seat->Answer(1, false, Payload(std::string("{}")));
  loop.RunFor(absl::Minutes(6));
  EXPECT_EQ(own->sent.size(), sent) << "it is answered once";
  EXPECT_EQ(seat->open_asks(), 0u);
}

TEST_F(SessionAsksOfASeat, GoWithACallOfTheClientWhileOneRuns) {
  Submit(Client("B"));
  AskRoots("1");
  EXPECT_EQ(told.back(), "B ask 1 roots/list");
}

TEST_F(SessionAsksOfASeat, FollowANotificationOfTheClient) {
  CallSpec changed = Client("N");
  changed.notification = true;
  changed.lane = v1::FREE;
  changed.method = "notifications/roots/list_changed";
  changed.params = Payload();
  Submit(std::move(changed));
  told.clear();
  AskRoots("1");
  EXPECT_EQ(told, Told{"session s1 at p1 is asked roots/list {} (1)"});
}

TEST_F(SessionAsksOfASeat, GoToTheControlPlaneOfTheNewestCall) {
  CallSpec call = Client("B");
  call.control_plane = "p2";
  Submit(std::move(call));
  own->Answer(own->Last("tools/call").exchange, "{}");
  loop.RunReady();
  AskRoots("1");
  EXPECT_EQ(told.back(), "session s1 at p2 is asked roots/list {} (1)");
}

TEST_F(SessionAsksOfASeat, InTheAnswerToACallThatIsCancelledAreRefused) {
  Submit(Client("B"));
  const uint64_t exchange = own->Last("tools/call").exchange;
  seat->Cancel("B", v1::Cancel::CLIENT);
  loop.RunReady();
  told.clear();
  AskRoots("4", exchange);
  EXPECT_EQ(told, Told{});
  EXPECT_NE(own->sent.back().text.find(R"("id":4,"error":{"code":-32601)"), std::string::npos)
      << own->sent.back().text;
}

TEST_F(SessionAsksOfASeat, AreAnsweredByTheSeatWhenNobodyElseDoes) {
  AskRoots("2");
  told.clear();
  loop.RunFor(absl::Minutes(5) + absl::Seconds(9));
  EXPECT_EQ(seat->open_asks(), 1u) << "the control plane has its say first";
  loop.RunFor(absl::Seconds(1));
  EXPECT_NE(own->sent.back().text.find(R"("id":2,"error":{"code":-32000)"), std::string::npos)
      << own->sent.back().text;
  EXPECT_EQ(told, Told{R"(ask 1 is over {"reason":"the client has not answered within 5m"})"});
}

TEST_F(SessionAsksOfASeat, ThatAreTakenBackAreToldAndNotAnswered) {
  AskRoots("2");
  own->Say(core::MakeNotification("notifications/cancelled", R"({"requestId":2,"reason":"x"})"));
  loop.RunReady();
  EXPECT_EQ(told.back(), R"(ask 1 is over {"reason":"x"})");
  const size_t sent = own->sent.size();
  seat->Answer(1, false, Payload(std::string("{}")));
  EXPECT_EQ(own->sent.size(), sent);
}

TEST_F(SessionAsksOfASeat, EndWithTheProcess) {
  AskRoots("2");
  backend->Die(9);
  loop.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(told.back(), R"(ask 1 is over {"reason":"the application has ended its session"})");
  EXPECT_EQ(seat->open_asks(), 0u);
}

TEST_F(SessionAsksOfASeat, EndWithTheUnusedSession) {
  SeatLimits limits;
  limits.client_sessions.idle = absl::Minutes(1);
  Begin(limits);
  AskRoots("2");
  loop.RunFor(absl::Minutes(2));
  EXPECT_EQ(told.back(), R"(ask 1 is over {"reason":"the application has ended its session"})");
}

TEST_F(SessionAsksOfASeat, BeyondTheBoundAreRefused) {
  SeatLimits limits;
  limits.asks_max = 1;
  Begin(limits);
  AskRoots("1");
  AskRoots("2");
  EXPECT_NE(own->sent.back().text.find(R"("id":2,"error":{"code":-32000)"), std::string::npos)
      << own->sent.back().text;
}

TEST_F(SessionAsksOfASeat, PingIsAnsweredHere) {
  own->Say(core::MakeRequest("3", "ping", ""));
  loop.RunReady();
  EXPECT_EQ(own->sent.back().text, R"({"jsonrpc":"2.0","id":3,"result":{}})");
  EXPECT_EQ(told, Told{});
}

}  // namespace
}  // namespace callboard::agent
