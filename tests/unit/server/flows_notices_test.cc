// Tests of notices that their agent keeps until they are acknowledged: told once, over any kill.
#include "gmock/gmock.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Notices : public FlowsTest {
 protected:
  Notices() { agent = LinkKeeping("boot-1"); }

  std::unique_ptr<FakeAgent> LinkKeeping(const std::string& boot) {
    auto linked = std::make_unique<FakeAgent>(loop, boot, ++epoch_);
    linked->features = {"notice_acks"};
    plane->AttachAgent(linked->MakeLink(), {"ipv4:127.0.0.1:1", "", ""});
    linked->Open();
    loop.RunReady();
    return linked;
  }
  void KillAndLink(const std::string& boot = "boot-1") {
    // In this order: what the kill leaves on the disk is there when the next one looks.
    plane.reset();
    store.reset();
    Restart();
    agent = LinkKeeping(boot);
  }
  // A session with a stream of its own, read to its end.
  std::string OpenListening() {
    const std::string session = OpenSession("seat:" + kSeat);
    Listen(session, 0);
    loop.RunReady();
    return session;
  }
  void Log(uint64_t n, const std::string& data, uint64_t lost = 0) {
    v1::AgentItem item;
    v1::Notice& notice = *item.mutable_notice();
    notice.set_seat_id(kSeat);
    notice.set_n(n);
    notice.set_lost(lost);
    notice.set_method("notifications/message");
    notice.mutable_params()->set_inline_(R"({"level":"info","data":")" + data + "\"}");
    agent->Say(std::move(item));
    loop.RunReady();
  }
  // What the agent has been told to forget, and nothing else.
  std::vector<uint64_t> Acks() {
    std::vector<uint64_t> numbers;
    for (const v1::ServerItem& item : agent->TakeAll(v1::ServerItem::kNoticeAck)) {
      EXPECT_EQ(item.notice_ack().seat_id(), kSeat);
      numbers.push_back(item.notice_ack().n());
    }
    return numbers;
  }
  std::vector<std::string> Heard(const std::string& session) {
    auto listener = ListenAfter(session, {});
    loop.RunFor(absl::Seconds(1));  // what has left memory is read from the disk
    return listener->params();
  }

  std::unique_ptr<FakeAgent> agent;

 private:
  uint64_t epoch_ = 0;
};

TEST_F(Notices, AreAcknowledgedOnceTheyAreDurable) {
  const std::string session = OpenListening();
  disk.delay = absl::Milliseconds(5);
  Log(1, "a");
  Log(2, "b");
  EXPECT_THAT(Acks(), ElementsAre()) << "a kill could still lose them";
  loop.RunFor(absl::Milliseconds(20));
  const auto acks = Acks();
  ASSERT_FALSE(acks.empty());
  EXPECT_EQ(acks.back(), 2u);
  EXPECT_THAT(Heard(session), ElementsAre(HasSubstr("\"a\""), HasSubstr("\"b\"")));
}

TEST_F(Notices, ThatAKillHasLostComeAgainAndAreToldOnce) {
  const std::string session = OpenListening();
  Log(1, "a");
  disk.delay = absl::Milliseconds(50);
  Log(2, "b");
  KillAndLink();
  const auto welcome = agent->Take(v1::ServerItem::kWelcome);
  ASSERT_TRUE(welcome);
  EXPECT_THAT(welcome->welcome().features(), ElementsAre("notice_acks"));
  // Its acknowledgement may have been lost, so the agent sends it too.
  Log(1, "a");
  Log(2, "b");
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_THAT(Heard(session), ElementsAre(HasSubstr("\"a\""), HasSubstr("\"b\"")));
  EXPECT_EQ(Acks().back(), 2u);
}

TEST_F(Notices, ThatReachedTheDiskAsTheControlPlaneWasKilledAreNotToldTwice) {
  const std::string session = OpenListening();
  disk.delay = absl::Milliseconds(50);
  Log(1, "a");
  disk.torn_after = 1;
  KillAndLink();
  Log(1, "a");
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_THAT(Heard(session), ElementsAre(HasSubstr("\"a\"")));
  EXPECT_THAT(Acks(), ElementsAre(1u));
}

TEST_F(Notices, OfWhichSomeWereGivenUpSaySo) {
  const std::string session = OpenListening();
  Log(1, "a");
  Log(5, "e", 3);
  EXPECT_THAT(Heard(session), ElementsAre(HasSubstr("\"a\""), HasSubstr("3 messages were left out"),
                                          HasSubstr("\"e\"")));
}

TEST_F(Notices, ThatWereGivenUpAfterTheyHadBeenToldAreNotLost) {
  const std::string session = OpenListening();
  Log(1, "a");
  Log(2, "b");
  KillAndLink();
  Log(4, "d", 3);  // 1 and 2 were among them
  EXPECT_THAT(Heard(session),
              ElementsAre(HasSubstr("\"a\""), HasSubstr("\"b\""),
                          HasSubstr("1 messages were left out"), HasSubstr("\"d\"")));
}

TEST_F(Notices, OfARestartedAgentCountAnew) {
  const std::string session = OpenListening();
  Log(1, "a");
  Log(2, "b");
  agent->Cut();
  loop.RunReady();
  agent = LinkKeeping("boot-2");
  Log(1, "c");
  EXPECT_EQ(Heard(session).size(), 3u);
  KillAndLink("boot-2");
  Log(1, "c");
  Log(2, "d");
  EXPECT_THAT(Heard(session), ElementsAre(HasSubstr("\"a\""), HasSubstr("\"b\""),
                                          HasSubstr("\"c\""), HasSubstr("\"d\"")));
}

TEST_F(Notices, NobodyListensToWaitForNoDisk) {
  OpenSession("seat:" + kSeat);
  disk.delay = absl::Hours(1);
  Log(1, "a");
  EXPECT_THAT(Acks(), ElementsAre(1u));
}

TEST_F(Notices, AreKeptByTheirAgentWhileTheStoreFails) {
  const std::string session = OpenListening();
  disk.failing = true;
  store->OnDiskChanged();
  Log(1, "a");
  EXPECT_THAT(Heard(session), ElementsAre(HasSubstr("\"a\""))) << "running streams go on";
  loop.RunFor(absl::Seconds(5));
  EXPECT_THAT(Acks(), ElementsAre());
  disk.failing = false;
  store->OnDiskChanged();
  loop.RunFor(absl::Seconds(5));
  EXPECT_THAT(Acks(), ElementsAre(1u));
}

TEST_F(Notices, ThatOnlySayLookAgainAreNotNumberedAndAlwaysTold) {
  const std::string session = OpenListening();
  Log(1, "a");
  for (int i = 0; i < 2; ++i) {
    agent->Notice("notifications/prompts/list_changed", "");
    loop.RunFor(absl::Seconds(1));
  }
  EXPECT_EQ(Heard(session).size(), 3u);
  EXPECT_THAT(Acks(), ElementsAre(1u));
}

TEST_F(Notices, OfAnAgentThatDoesNotKeepThemAreNeverAcknowledged) {
  const std::string session = OpenListening();
  agent = Link("boot-1", 9);
  EXPECT_TRUE(agent->Take(v1::ServerItem::kWelcome)->welcome().features().empty());
  Log(1, "a");
  Log(1, "a");
  EXPECT_EQ(Heard(session).size(), 2u);
  EXPECT_THAT(Acks(), ElementsAre());
}

}  // namespace
}  // namespace callboard::server
