// What backends ask clients outside their calls: on which stream, and how each ends.
#include "core/mcp/elicitation.h"
#include "core/mcp/json.h"
#include "gmock/gmock.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kOffers[] = R"({"roots":{},"elicitation":{"form":{},"url":{}}})";

class SessionAsksTest : public FlowsTest {
 protected:
  SessionAsksTest() { agent = Attach(1); }

  std::unique_ptr<FakeAgent> Attach(uint64_t epoch) {
    auto linked = std::make_unique<FakeAgent>(loop, "boot-1", epoch);
    linked->features = {"session_asks"};
    plane->AttachAgent(linked->MakeLink(), {"ipv4:127.0.0.1:1", "", ""});
    linked->Open();
    loop.RunReady();
    return linked;
  }
  static v1::AgentItem AskOf(const std::string& session, uint64_t id,
                             const std::string& method = "roots/list",
                             const std::string& params = "{}") {
    v1::AgentItem item;
    v1::SessionAsk& ask = *item.mutable_session_ask();
    ask.set_seat_id(kSeat);
    ask.set_backend_session(session);
    ask.set_ask_id(id);
    ask.set_method(method);
    ask.mutable_params()->set_inline_(params);
    ask.set_deadline_ms(300'000);
    return item;
  }
  void Ask(const std::string& session, uint64_t id, const std::string& method = "roots/list",
           const std::string& params = "{}") {
    agent->Say(AskOf(session, id, method, params));
    loop.RunReady();
  }
  std::string Open(const std::string& capabilities = kOffers) {
    return OpenSession("seat:" + kSeat, capabilities);
  }
  static std::vector<v1::AskEvent> Asks(const Listener& listener) {
    std::vector<v1::AskEvent> asks;
    for (const v1::ListenEvent& event : listener.events) {
      if (event.has_ask()) asks.push_back(event.ask());
    }
    return asks;
  }
  // The one the agent has been sent; fails the test if there is none, or another.
  v1::SessionAnswer Answered() {
    const auto items = agent->TakeAll(v1::ServerItem::kSessionAnswer);
    EXPECT_THAT(items, SizeIs(1));
    return items.empty() ? v1::SessionAnswer() : items[0].session_answer();
  }
  bool Say(const std::string& session, const std::string& ask_id, const std::string& result) {
    v1::SendRequest request;
    request.set_session_id(session);
    request.mutable_answer()->set_ask_id(ask_id);
    request.mutable_answer()->set_result(result);
    return Send(std::move(request));
  }

  std::unique_ptr<FakeAgent> agent;
};

TEST_F(SessionAsksTest, GoToTheOwnStreamAndTheAnswerBack) {
  const auto welcome = agent->Take(v1::ServerItem::kWelcome);
  ASSERT_TRUE(welcome);
  EXPECT_THAT(welcome->welcome().features(), testing::ElementsAre("session_asks"));
  const std::string session = Open();
  const auto own = Listen(session, 0);
  const auto other = Listen(Open(), 0);
  Ask(session, 5);
  ASSERT_THAT(Asks(*own), SizeIs(1));
  const v1::AskEvent asked = Asks(*own)[0];
  EXPECT_EQ(asked.method(), "roots/list");
  EXPECT_EQ(asked.id().stream(), 0u);
  EXPECT_THAT(Asks(*other), IsEmpty()) << "it is nobody else's";
  EXPECT_EQ(plane->gauges().open_asks, 1u);
  EXPECT_TRUE(Say(session, asked.ask_id(), R"({"roots":[]})"));
  const v1::SessionAnswer answer = Answered();
  EXPECT_EQ(answer.ask_id(), 5u);
  EXPECT_EQ(answer.seat_id(), kSeat);
  EXPECT_EQ(answer.backend_session(), session);
  EXPECT_EQ(answer.result().inline_(), R"({"roots":[]})");
  EXPECT_FALSE(Say(session, asked.ask_id(), "{}")) << "it is answered once";
  EXPECT_EQ(plane->gauges().open_asks, 0u);
}

TEST_F(SessionAsksTest, AreAnsweredByNobodyElse) {
  const std::string session = Open();
  const auto own = Listen(session, 0);
  Ask(session, 5);
  EXPECT_FALSE(Say(Open(), Asks(*own).at(0).ask_id(), "{}"));
  EXPECT_THAT(agent->TakeAll(v1::ServerItem::kSessionAnswer), IsEmpty());
}

TEST_F(SessionAsksTest, OfAClientThatDoesNotOfferItAreRefused) {
  const std::string session = Open(R"({"elicitation":{}})");
  const auto own = Listen(session, 0);
  Ask(session, 5);
  EXPECT_THAT(Answered().error().inline_(), HasSubstr("-32601"));
  Ask(session, 6, "elicitation/create", R"({"mode":"url"})");
  const std::string error = Answered().error().inline_();
  EXPECT_THAT(error, HasSubstr("-32602"));
  EXPECT_THAT(error, HasSubstr("elicitation.url"));
  EXPECT_THAT(Asks(*own), IsEmpty());
}

TEST_F(SessionAsksTest, OfAClientThatDoesNotListenAreRefused) {
  const std::string session = Open();
  Ask(session, 5);
  EXPECT_THAT(Answered().error().inline_(), HasSubstr("no stream of its own"));
}

TEST_F(SessionAsksTest, OfNoSessionOrOneOfAnotherSeatAreRefused) {
  Ask("like-0123", 5);
  EXPECT_THAT(Answered().error().inline_(), HasSubstr("no session"));
  const std::string session = OpenSession("seat:0123456789abcdef0123456789abcdef", kOffers);
  Ask(session, 6);
  EXPECT_THAT(Answered().error().inline_(), HasSubstr("-32000"));
}

TEST_F(SessionAsksTest, OfSeatsOfOthersAreIgnored) {
  v1::AgentItem item = AskOf(Open(), 5);
  item.mutable_session_ask()->set_seat_id("ffffffffffffffffffffffffffffffff");
  agent->Say(std::move(item));
  loop.RunReady();
  EXPECT_EQ(plane->gauges().ignored_items, 1u);
}

TEST_F(SessionAsksTest, WaitForAClientThatIsAwayThroughItsGrace) {
  const std::string session = Open();
  auto own = Listen(session, 0);
  own.reset();
  loop.RunFor(absl::Seconds(10));
  Ask(session, 5);
  EXPECT_THAT(agent->TakeAll(v1::ServerItem::kSessionAnswer), IsEmpty());
  own = Listen(session, 0);
  ASSERT_THAT(Asks(*own), SizeIs(1)) << "it is replayed to the client that comes back";
  own.reset();
  loop.RunFor(absl::Seconds(59));
  EXPECT_THAT(agent->TakeAll(v1::ServerItem::kSessionAnswer), IsEmpty());
  loop.RunFor(absl::Seconds(2));
  EXPECT_THAT(Answered().error().inline_(), HasSubstr("the client is gone"));
}

TEST_F(SessionAsksTest, EndWhenTheirTimeIsOverAndTheClientIsToldSo) {
  const std::string session = Open();
  const auto own = Listen(session, 0);
  Ask(session, 5);
  const std::string id = Asks(*own).at(0).ask_id();
  loop.RunFor(absl::Minutes(5));
  EXPECT_THAT(Answered().error().inline_(), HasSubstr("has not answered in time"));
  ASSERT_THAT(own->params(), SizeIs(1));
  EXPECT_EQ(core::FindString(own->params()[0], "requestId"), id);
  EXPECT_FALSE(Say(session, id, "{}"));
}

TEST_F(SessionAsksTest, EndWithTheirSession) {
  const std::string session = Open();
  const auto own = Listen(session, 0);
  Ask(session, 5);
  EXPECT_TRUE(CloseSession(session).ok());
  EXPECT_THAT(Answered().error().inline_(), HasSubstr("has ended"));
  EXPECT_EQ(plane->gauges().open_asks, 0u);
}

TEST_F(SessionAsksTest, ThatAreTakenBackAreToldToTheClient) {
  const std::string session = Open();
  const auto own = Listen(session, 0);
  Ask(session, 5);
  v1::AgentItem item;
  item.mutable_session_ask_cancel()->set_seat_id(kSeat);
  item.mutable_session_ask_cancel()->set_ask_id(5);
  item.mutable_session_ask_cancel()->mutable_params()->set_inline_(R"({"reason":"late"})");
  agent->Say(std::move(item));
  loop.RunReady();
  ASSERT_THAT(own->params(), SizeIs(1));
  EXPECT_THAT(own->params()[0], HasSubstr("late"));
  EXPECT_EQ(core::FindString(own->params()[0], "requestId"), Asks(*own).at(0).ask_id());
  EXPECT_THAT(agent->TakeAll(v1::ServerItem::kSessionAnswer), IsEmpty());
}

TEST_F(SessionAsksTest, OfAnAgentWhoseLinkHasEndedAreToldToBeOver) {
  const std::string session = Open();
  const auto own = Listen(session, 0);
  Ask(session, 5);
  agent->Cut();
  loop.RunReady();
  EXPECT_THAT(own->params(), SizeIs(1));
  EXPECT_EQ(plane->gauges().open_asks, 0u);
  agent = Attach(2);
  EXPECT_FALSE(Say(session, Asks(*own).at(0).ask_id(), "{}"));
  EXPECT_THAT(agent->TakeAll(v1::ServerItem::kSessionAnswer), IsEmpty());
}

TEST_F(SessionAsksTest, AreBoundedAndOneMoreIsRefused) {
  const std::string session = Open();
  const auto own = Listen(session, 0);
  for (uint64_t id = 1; id <= 65; ++id) Ask(session, id);
  EXPECT_THAT(Asks(*own), SizeIs(64));
  const v1::SessionAnswer refused = Answered();
  EXPECT_EQ(refused.ask_id(), 65u);
  EXPECT_THAT(refused.error().inline_(), HasSubstr("too much"));
}

TEST_F(SessionAsksTest, AnAnswerThatIsTooLargeBecomesAnError) {
  const std::string session = Open();
  const auto own = Listen(session, 0);
  Ask(session, 5);
  EXPECT_TRUE(Say(session, Asks(*own).at(0).ask_id(), '"' + std::string(64 << 10, 'x') + '"'));
  EXPECT_THAT(Answered().error().inline_(), HasSubstr("65538 bytes"));
}

TEST_F(SessionAsksTest, TheEndOfAnElicitationIsToldToTheClientThatWasAsked) {
  const std::string session = Open();
  const auto own = Listen(session, 0);
  const auto other = Listen(Open(), 0);
  Ask(session, 5, "elicitation/create",
      R"({"mode":"url","elicitationId":"e1","url":"https://x","message":"m"})");
  agent->Notice(std::string(core::kElicitationComplete), R"({"elicitationId":"e1"})");
  loop.RunReady();
  EXPECT_THAT(own->params(), SizeIs(1));
  EXPECT_THAT(other->params(), IsEmpty());
}

TEST_F(SessionAsksTest, OfAnAgentThatHasNotAgreedAreIgnored) {
  agent->Cut();
  loop.RunReady();
  agent = Link("boot-1", 3);
  const std::string session = Open();
  const auto own = Listen(session, 0);
  Ask(session, 5);
  EXPECT_THAT(Asks(*own), IsEmpty());
  EXPECT_EQ(plane->gauges().ignored_items, 1u);
}

TEST_F(SessionAsksTest, AfterARestartInOrderNobodyIsAskedAnyMore) {
  const std::string session = Open();
  auto own = Listen(session, 0);
  Ask(session, 5);
  const v1::AskEvent asked = Asks(*own).at(0);
  const std::string& id = asked.ask_id();
  RestartInOrder();
  EXPECT_THAT(ListenAfter(session, asked.id())->params(), SizeIs(1))
      << "the client is told that nobody waits";
  agent = Attach(2);
  EXPECT_FALSE(Say(session, id, "{}"));
  own = Listen(session, 0);
  EXPECT_THAT(Asks(*own), IsEmpty());
  Ask(session, 6);
  ASSERT_THAT(Asks(*own), SizeIs(1));
  EXPECT_NE(Asks(*own)[0].ask_id(), id);
}

}  // namespace
}  // namespace callboard::server
