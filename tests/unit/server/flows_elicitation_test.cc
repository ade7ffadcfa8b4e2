// Elicitations that go on outside the client: who hears of their end.
#include "core/mcp/elicitation.h"
#include "server/domain/elicitation_table.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

constexpr char kOffers[] = R"({"elicitation":{"form":{},"url":{}}})";
constexpr char kUrl[] =
    R"({"mode":"url","elicitationId":"e1","url":"https://licence.example","message":"Sign in"})";
constexpr char kDone[] = R"({"elicitationId":"e1"})";

class Elicited : public FlowsTest {
 protected:
  Elicited() : agent(Link()) {}

  std::string Open() { return OpenSession("seat:" + kSeat, kOffers); }
  v1::Dispatch Started(const std::string& session, std::unique_ptr<Caller>* caller) {
    *caller = Invoke(Call(session));
    const v1::Dispatch call = agent->TakeDispatch();
    agent->Started(call);
    return call;
  }
  void AskForUrl(const v1::Dispatch& call, uint64_t n) {
    v1::AgentItem ask = FakeAgent::Event(call, n);
    ask.mutable_call_event()->mutable_ask()->set_method("elicitation/create");
    ask.mutable_call_event()->mutable_ask()->mutable_params()->set_inline_(kUrl);
    agent->Say(std::move(ask));
    loop.RunReady();
  }
  void Notice() {
    agent->Notice(std::string(core::kElicitationComplete), kDone);
    loop.RunReady();
  }
  static std::vector<std::string> Heard(const Listener& listener) {
    std::vector<std::string> heard;
    for (const v1::ListenEvent& event : listener.events) {
      if (event.has_stream_event()) {
        heard.push_back(event.stream_event().method() + " " + event.stream_event().params());
      }
    }
    return heard;
  }
  static std::vector<std::string> Told() {
    return {std::string(core::kElicitationComplete) + " " + kDone};
  }

  std::unique_ptr<FakeAgent> agent;
};

// Two clients that listen; a call of one runs.
class ElicitedOfTwo : public Elicited {
 protected:
  const std::string session = Open();
  std::unique_ptr<Listener> own = Listen(session, 0);
  std::unique_ptr<Listener> other = Listen(Open(), 0);
  std::unique_ptr<Caller> caller;
  const v1::Dispatch call = Started(session, &caller);
};

TEST_F(ElicitedOfTwo, TheirEndIsToldOnTheStreamOfTheCallThatAsked) {
  AskForUrl(call, 2);
  Notice();
  ASSERT_TRUE(caller->events.back().has_stream_event());
  EXPECT_EQ(caller->events.back().stream_event().method(), core::kElicitationComplete);
  EXPECT_EQ(caller->params(), std::vector<std::string>{kDone});
  EXPECT_TRUE(Heard(*own).empty());
  EXPECT_TRUE(Heard(*other).empty()) << "it is nobody else's";
}

TEST_F(ElicitedOfTwo, TheirEndIsToldToTheSessionOnceTheCallIsOver) {
  AskForUrl(call, 2);
  agent->Result(call, 3);
  loop.RunReady();
  Notice();
  EXPECT_EQ(Heard(*own), Told());
  EXPECT_TRUE(Heard(*other).empty());
  Notice();
  EXPECT_EQ(Heard(*own).size(), 1u) << "an elicitation is complete once";
}

TEST_F(ElicitedOfTwo, ThoseOfAnErrorAreToldToTheClientThatGotIt) {
  v1::AgentItem end = FakeAgent::Event(call, 2);
  v1::Outcome& outcome = *end.mutable_call_event()->mutable_outcome();
  outcome.set_class_(v1::RPC_ERROR);
  outcome.set_certainty(v1::FINISHED);
  outcome.mutable_body()->set_inline_(
      std::string(R"({"code":-32042,"message":"sign in first","data":{"elicitations":[)") + kUrl +
      "]}}");
  agent->Say(std::move(end));
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RPC_ERROR);
  Notice();
  EXPECT_EQ(Heard(*own), Told());
  EXPECT_TRUE(Heard(*other).empty());
}

TEST_F(ElicitedOfTwo, AfterAKillTheirEndIsStillToldToWhoWasAsked) {
  AskForUrl(call, 2);
  agent->Result(call, 3);
  loop.RunFor(absl::Seconds(1));
  Restart();
  agent = Link("boot-1", 2);
  own = Listen(session, 0);
  Notice();
  EXPECT_EQ(Heard(*own), Told());
  Restart();
  agent = Link("boot-1", 3);
  own = Listen(session, 0);
  Notice();
  EXPECT_TRUE(Heard(*own).empty()) << "an elicitation is complete once";
}

TEST_F(Elicited, EndsThatComeWithTheirCallNeedNoMemoryOfTheirIds) {
  const std::string session = Open();
  std::unique_ptr<Caller> caller;
  const v1::Dispatch call = Started(session, &caller);
  agent->Progress(call, 2, R"({"progress":1})");
  v1::AgentItem told = FakeAgent::Event(call, 3);
  v1::MethodEvent& event = *told.mutable_call_event()->mutable_notification();
  event.set_method(std::string(core::kElicitationComplete));
  event.mutable_params()->set_inline_(kDone);
  agent->Say(std::move(told));
  loop.RunReady();
  EXPECT_EQ(caller->params().back(), kDone);
}

TEST_F(Elicited, EndsOfThoseThatNobodyStartedReachNobody) {
  auto one = Listen(Open(), 0);
  Notice();
  const std::string session = Open();
  std::unique_ptr<Caller> caller;
  AskForUrl(Started(session, &caller), 2);
  ASSERT_TRUE(CloseSession(session).ok());
  Notice();
  EXPECT_TRUE(Heard(*one).empty());
}

CallId SomeCall() { return *CallId::From("0123456789abcdef"); }

TEST(ElicitationTable, ForgetsTheOldestOfASessionThatHasTooMany) {
  ElicitationTable table;
  table.Add("seat", "other", {"s2", SomeCall()});
  for (size_t i = 0; i <= ElicitationTable::kPerSession; ++i) {
    table.Add("seat", std::to_string(i), {"s1", SomeCall()});
  }
  EXPECT_EQ(table.size(), ElicitationTable::kPerSession + 1);
  EXPECT_FALSE(table.Take("seat", "0"));
  EXPECT_FALSE(table.Take("another", "1"));
  EXPECT_EQ(table.Take("seat", "1")->session_id, "s1");
  EXPECT_EQ(table.Take("seat", "other")->session_id, "s2");
  table.RemoveSession("s1");
  EXPECT_EQ(table.size(), 0u);
}

TEST(ElicitationTable, IsBoundedOverAllSessions) {
  ElicitationTable table;
  for (size_t i = 0; i <= ElicitationTable::kAll; ++i) {
    table.Add("seat", std::to_string(i), {"s" + std::to_string(i), SomeCall()});
  }
  EXPECT_EQ(table.size(), ElicitationTable::kAll);
  EXPECT_FALSE(table.Take("seat", "0"));
}

}  // namespace
}  // namespace callboard::server
