// Tests of who hears what a seat says by itself, and what its agent is asked to have said.
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

class Audience : public FlowsTest {
 protected:
  std::string OpenSeatSession() { return OpenSession("seat:" + kSeat); }
  // A request of the session that its seat answers with {}.
  void Ask(FakeAgent& agent, const std::string& session, const std::string& method,
           const std::string& params) {
    auto caller = Invoke(Request(session, std::to_string(++last_id_), method, params));
    if (auto item = agent.Take(v1::ServerItem::kDispatch)) {
      agent.Result(item->dispatch(), 1, "{}");
      loop.RunReady();
    }
    EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  }
  void Subscribe(FakeAgent& agent, const std::string& session, bool on = true) {
    Ask(agent, session, on ? "resources/subscribe" : "resources/unsubscribe",
        R"({"uri":"scene://"})");
  }
  void SetLevel(FakeAgent& agent, const std::string& session, const std::string& level) {
    Ask(agent, session, "logging/setLevel", R"({"level":")" + level + "\"}");
  }
  v1::Interest LastInterest(FakeAgent& agent) {
    const auto all = agent.TakeAll(v1::ServerItem::kInterest);
    EXPECT_FALSE(all.empty());
    return all.empty() ? v1::Interest() : all.back().interest();
  }
  void Notice(FakeAgent& agent, const std::string& method, const std::string& params) {
    agent.Notice(method, params);
    loop.RunReady();
  }

 private:
  int last_id_ = 0;
};

TEST_F(Audience, ResourceIsAskedForOnceForAllItsSubscribers) {
  auto agent = Link();
  const std::string first = OpenSeatSession();
  const std::string second = OpenSeatSession();
  Subscribe(*agent, first);
  Subscribe(*agent, second);
  ASSERT_EQ(LastInterest(*agent).resource_uris_size(), 1);
  Subscribe(*agent, first, false);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch)) << "the backend keeps the other's";
  Subscribe(*agent, second, false);
  EXPECT_EQ(LastInterest(*agent).resource_uris_size(), 0);
}

TEST_F(Audience, OnlySubscribersHearOfAnUpdate) {
  auto agent = Link();
  const std::string subscriber = OpenSeatSession();
  Subscribe(*agent, subscriber);
  auto hears = Listen(subscriber, 0);
  auto deaf = Listen(OpenSeatSession(), 0);
  Notice(*agent, "notifications/resources/updated", R"({"uri":"scene://"})");
  EXPECT_EQ(hears->params(), std::vector<std::string>{R"({"uri":"scene://"})"});
  EXPECT_TRUE(deaf->params().empty());
}

TEST_F(Audience, MostVerboseLevelIsAskedForAndEachSessionHearsItsOwn) {
  auto agent = Link();
  const std::string quiet = OpenSeatSession();
  const std::string verbose = OpenSeatSession();
  SetLevel(*agent, quiet, "error");
  EXPECT_EQ(LastInterest(*agent).log_level(), "error");
  SetLevel(*agent, verbose, "debug");
  EXPECT_EQ(LastInterest(*agent).log_level(), "debug");
  auto hears_errors = Listen(quiet, 0);
  auto hears_all = Listen(verbose, 0);
  Notice(*agent, "notifications/message", R"({"level":"info","data":1})");
  Notice(*agent, "notifications/message", R"({"level":"critical","data":2})");
  EXPECT_EQ(hears_errors->params(), std::vector<std::string>{R"({"level":"critical","data":2})"});
  EXPECT_EQ(hears_all->params().size(), 2u);
}

TEST_F(Audience, WishesAreSaidAgainOnANewLinkAndGoWithTheirSession) {
  auto agent = Link();
  const std::string session = OpenSeatSession();
  Subscribe(*agent, session);
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-1", 2);
  EXPECT_EQ(LastInterest(*back).resource_uris_size(), 1);
  ASSERT_TRUE(CloseSession(session).ok());
  loop.RunReady();
  EXPECT_EQ(LastInterest(*back).resource_uris_size(), 0);
}

TEST_F(Audience, ChangesOfAListWithinAQuarterOfASecondAreOne) {
  auto agent = Link();
  auto listener = Listen(OpenSeatSession(), 0);
  for (int i = 0; i < 10; ++i) Notice(*agent, "notifications/prompts/list_changed", "");
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_TRUE(listener->params().empty());
  loop.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(listener->params().size(), 1u);
  Notice(*agent, "notifications/prompts/list_changed", "");
  loop.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(listener->params().size(), 2u);
}

}  // namespace
}  // namespace callboard::server
