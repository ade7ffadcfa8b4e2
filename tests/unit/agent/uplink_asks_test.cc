// Tests of requests of a backend on their way to the control plane, and of the answers.
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

class UplinkAsks : public AgentTest {
 protected:
  void Ask(const std::string& call_id, uint64_t ask) {
    agent->call_observer().OnAsk(call_id, ask, "sampling/createMessage", R"({"maxTokens":5})");
    loop.RunReady();
  }
  void SendAnswer(const std::string& call_id, uint64_t ask_n, const std::string& result) {
    v1::ServerItem item;
    v1::Answer* answer = item.mutable_answer();
    answer->set_call_id(call_id);
    answer->set_attempt(1);
    answer->set_ask_n(ask_n);
    answer->mutable_result()->set_inline_(result);
    plane.Send(std::move(item));
    loop.RunReady();
  }
};

TEST_F(UplinkAsks, NumberOfTheEventIsTheNumberOfTheAnswer) {
  StartLinked();
  const std::string call_id = Begin('a');
  Ask(call_id, 77);
  const v1::CallEvent asked = Events(call_id).back();
  EXPECT_EQ(asked.n(), 2u);
  EXPECT_EQ(asked.ask().method(), "sampling/createMessage");
  EXPECT_EQ(asked.ask().params().inline_(), R"({"maxTokens":5})");
  SendAnswer(call_id, 2, R"({"role":"assistant"})");
  EXPECT_EQ(seat.answers, std::vector<std::string>{R"(77 result {"role":"assistant"})"});
  SendAnswer(call_id, 2, "{}");
  EXPECT_EQ(seat.answers.size(), 1u) << "a duplicate is dropped";
}

TEST_F(UplinkAsks, AnswerAfterACutFindsItsAsk) {
  StartLinked();
  const std::string call_id = Begin('a');
  Ask(call_id, 5);
  SendAck(call_id, 2, 0);
  CutAndRedial();
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 2);
  EXPECT_TRUE(Events(call_id).empty());
  SendAnswer(call_id, 2, "{}");
  EXPECT_EQ(seat.answers, std::vector<std::string>{"5 result {}"});
}

TEST_F(UplinkAsks, AskThatIsTakenBackIsNamedByItsNumberAndNoLongerAnswered) {
  StartLinked();
  const std::string call_id = Begin('a');
  Ask(call_id, 77);
  agent->call_observer().OnAskCancelled(call_id, 77, R"({"reason":"late"})");
  loop.RunReady();
  const v1::CallEvent told = Events(call_id).back();
  EXPECT_EQ(told.n(), 3u);
  EXPECT_EQ(told.notification().method(), "notifications/cancelled");
  EXPECT_EQ(told.notification().ask_n(), 2u);
  EXPECT_EQ(told.notification().params().inline_(), R"({"reason":"late"})");
  SendAnswer(call_id, 2, "{}");
  EXPECT_TRUE(seat.answers.empty());
}

TEST_F(UplinkAsks, AskThatIsTakenBackBeforeItIsWrittenIsNeverSent) {
  StartLinked();
  const std::string call_id = Begin('a');
  CutAndRedial();
  agent->call_observer().OnAsk(call_id, 5, "roots/list", "{}");
  agent->call_observer().OnAskCancelled(call_id, 5, "{}");
  SendWelcome();
  SendVerdict(call_id, v1::Verdict::CONTINUE, 1);
  loop.RunReady();
  EXPECT_TRUE(Events(call_id).empty());
}

TEST_F(UplinkAsks, LargeAnswerComesInPiecesThatAreAcknowledged) {
  StartLinked();
  const std::string call_id = Begin('a');
  Ask(call_id, 9);
  const std::string text = Text(150'000);
  v1::ServerItem head;
  head.mutable_answer()->set_call_id(call_id);
  head.mutable_answer()->set_attempt(1);
  head.mutable_answer()->set_ask_n(2);
  head.mutable_answer()->mutable_error()->set_size(text.size());
  plane.Send(std::move(head));
  for (size_t offset = 0; offset < text.size(); offset += 50'000) {
    v1::ServerItem item;
    item.mutable_chunk()->set_call_id(call_id);
    item.mutable_chunk()->set_attempt(1);
    item.mutable_chunk()->set_n(2);
    item.mutable_chunk()->set_offset(offset);
    item.mutable_chunk()->set_bytes(text.substr(offset, 50'000));
    EXPECT_TRUE(seat.answers.empty());
    plane.Send(std::move(item));
  }
  loop.RunReady();
  EXPECT_EQ(seat.answers, std::vector<std::string>{"9 error " + text});
  const auto acks = Items(v1::AgentItem::kAck);
  ASSERT_FALSE(acks.empty());
  EXPECT_EQ(acks.back().ack().entries(0).n(), 2u);
  EXPECT_EQ(acks.back().ack().entries(0).offset(), text.size());
}

TEST_F(UplinkAsks, ClientsCapabilitiesComeWithACallThatMayAsk) {
  StartLinked();
  v1::Dispatch dispatch = MakeDispatch('a');
  dispatch.set_backend_session("s1");
  dispatch.mutable_client()->set_capabilities(R"({"roots":{}})");
  Send(std::move(dispatch));
  ASSERT_EQ(seat.submitted.size(), 1u);
  EXPECT_EQ(seat.submitted[0].backend_session, "s1");
  EXPECT_EQ(seat.submitted[0].client_capabilities, R"({"roots":{}})");
}

}  // namespace
}  // namespace callboard::tests
