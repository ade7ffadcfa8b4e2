// Tests of requests of backends outside calls on their way to the client's control plane.
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

class UplinkSessionAsks : public AgentTest {
 protected:
  UplinkSessionAsks() { welcome.add_features("session_asks"); }

  void Ask(uint64_t number, std::string params = "{}", const std::string& plane_id = "plane-1") {
    agent->seat_observer().OnSessionAsk(kSeat, {.number = number,
                                                .backend_session = "s1",
                                                .control_plane = plane_id,
                                                .method = "roots/list",
                                                .raw_params = std::move(params),
                                                .wait = absl::Minutes(5)});
    loop.RunReady();
  }
  void Over(uint64_t number) {
    agent->seat_observer().OnSessionAskOver(kSeat, number, R"({"reason":"late"})");
    loop.RunReady();
  }
  void SendAnswer(uint64_t ask_id, const std::string& result) {
    v1::ServerItem item;
    item.mutable_session_answer()->set_seat_id(kSeat);
    item.mutable_session_answer()->set_ask_id(ask_id);
    item.mutable_session_answer()->mutable_result()->set_inline_(result);
    plane.Send(std::move(item));
    loop.RunReady();
  }
  std::string LastAnswer() { return seat.answers.empty() ? "" : seat.answers.back(); }
};

TEST_F(UplinkSessionAsks, CarryWhatIsAskedAndTheAnswerComesBackOnce) {
  StartLinked();
  Ask(7, R"({"a":1})");
  const auto asked = Items(v1::AgentItem::kSessionAsk);
  ASSERT_EQ(asked.size(), 1u);
  const v1::SessionAsk& ask = asked[0].session_ask();
  EXPECT_EQ(ask.seat_id(), kSeat);
  EXPECT_EQ(ask.incarnation(), 3u);
  EXPECT_EQ(ask.backend_session(), "s1");
  EXPECT_EQ(ask.method(), "roots/list");
  EXPECT_EQ(ask.params().inline_(), R"({"a":1})");
  EXPECT_EQ(ask.deadline_ms(), 300'000u);
  SendAnswer(ask.ask_id(), R"({"roots":[]})");
  SendAnswer(ask.ask_id(), "{}");
  EXPECT_EQ(seat.answers, std::vector<std::string>{R"(7 result {"roots":[]})"});
}

TEST_F(UplinkSessionAsks, AreTakenBackByTheirNumber) {
  StartLinked();
  Ask(7);
  const uint64_t id = Items(v1::AgentItem::kSessionAsk).at(0).session_ask().ask_id();
  Over(7);
  const auto over = Items(v1::AgentItem::kSessionAskCancel);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].session_ask_cancel().ask_id(), id);
  EXPECT_EQ(over[0].session_ask_cancel().params().inline_(), R"({"reason":"late"})");
  SendAnswer(id, "{}");
  EXPECT_TRUE(seat.answers.empty());
  Over(7);
  EXPECT_EQ(Items(v1::AgentItem::kSessionAskCancel).size(), 1u);
}

TEST_F(UplinkSessionAsks, AreRefusedByAControlPlaneThatDoesNotKnowThem) {
  welcome.clear_features();
  StartLinked();
  Ask(7);
  EXPECT_TRUE(Items(v1::AgentItem::kSessionAsk).empty());
  EXPECT_TRUE(LastAnswer().starts_with(R"(7 error {"code":-32601)")) << LastAnswer();
}

TEST_F(UplinkSessionAsks, AreRefusedWhileTheControlPlaneOfTheClientIsAway) {
  StartLinked();
  Ask(7, "{}", "plane-2");
  EXPECT_TRUE(Items(v1::AgentItem::kSessionAsk).empty()) << "another one's clients are not asked";
  EXPECT_TRUE(LastAnswer().starts_with(R"(7 error {"code":-32000)")) << LastAnswer();
  plane.Cut();
  loop.RunReady();
  Ask(8);
  EXPECT_TRUE(LastAnswer().starts_with(R"(8 error {"code":-32000)")) << LastAnswer();
}

TEST_F(UplinkSessionAsks, EndWithAnErrorWhenTheLinkEnds) {
  StartLinked();
  Ask(7);
  CutAndRedial();
  EXPECT_NE(LastAnswer().find("7 error"), std::string::npos) << LastAnswer();
  EXPECT_NE(LastAnswer().find("link"), std::string::npos);
  SendWelcome();
  EXPECT_TRUE(Items(v1::AgentItem::kSessionAsk).empty()) << "it is answered, and not said again";
  SendAnswer(1, "{}");
  EXPECT_EQ(seat.answers.size(), 1u);
}

TEST_F(UplinkSessionAsks, ThatAreTooLargeAreRefused) {
  StartLinked();
  Ask(7, Text(64 * 1024 + 1));
  EXPECT_NE(LastAnswer().find("65537 bytes"), std::string::npos) << LastAnswer();
  Ask(8, Text(64 * 1024));
  EXPECT_EQ(Items(v1::AgentItem::kSessionAsk).size(), 1u);
}

TEST_F(UplinkSessionAsks, OfASeatThatIsRemovedAreTakenBack) {
  StartLinked();
  Ask(7);
  agent->RemoveSeat(kSeat, "row removed");
  loop.RunReady();
  EXPECT_EQ(Items(v1::AgentItem::kSessionAskCancel).size(), 1u);
}

TEST_F(UplinkSessionAsks, ThatCannotBeWrittenYetLeaveNothingBehindWhenTheyAreOver) {
  plane.confirm = false;
  StartLinked();
  for (uint64_t number = 1; number <= 12; ++number) Ask(number, Text(60'000));
  const size_t written = Items(v1::AgentItem::kSessionAsk).size();
  ASSERT_LT(written, 12u) << "they take no more of the link than it has";
  for (uint64_t number = 1; number <= 12; ++number) Over(number);
  plane.confirm = true;
  plane.SendFrame({});
  loop.RunReady();
  EXPECT_EQ(Items(v1::AgentItem::kSessionAsk).size(), written);
  EXPECT_EQ(Items(v1::AgentItem::kSessionAskCancel).size(), written);
}

TEST_F(UplinkSessionAsks, DispatchSaysAtWhichControlPlaneTheClientIs) {
  StartLinked();
  v1::Dispatch dispatch = MakeDispatch('a');
  dispatch.set_backend_session("s1");
  Send(dispatch);
  ASSERT_EQ(seat.submitted.size(), 1u);
  EXPECT_EQ(seat.submitted[0].control_plane, "plane-1");
}

}  // namespace
}  // namespace callboard::tests
