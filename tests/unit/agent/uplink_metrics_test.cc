// Tests of the agent's figures: what calls, links and seats add to them.
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

class AgentMetrics : public AgentTest {
 protected:
  // Whether that line is among the figures.
  bool Told(const std::string& line) const {
    core::MetricsText text;
    agent->WriteMetrics(text);
    return ("\n" + text.Take()).find("\n" + line + "\n") != std::string::npos;
  }
};

TEST_F(AgentMetrics, CountCallsByHowTheyEnded) {
  StartLinked();
  const std::string a = Begin('a');
  EXPECT_TRUE(Told("callboard_agent_calls_running 1"));
  End(a, agent::Payload("{}"));
  agent::CallEnd failed = MakeEnd(agent::Payload("{}"));
  failed.facts.set_is_error(true);
  agent->call_observer().OnEnd(Begin('b'), std::move(failed));
  agent::CallEnd lost = MakeEnd({}, v1::LOST, v1::UNKNOWN);
  lost.reason = v1::BACKEND_CONNECTION_LOST;
  agent->call_observer().OnEnd(Begin('c'), std::move(lost));
  v1::Dispatch nowhere = MakeDispatch('d');
  nowhere.set_seat_id("nowhere");
  Send(nowhere);
  EXPECT_TRUE(Told("callboard_agent_calls_started_total 3"));
  const std::string ended = "callboard_agent_calls_ended_total";
  EXPECT_TRUE(Told(ended + R"({outcome="result",reason="none"} 1)"));
  EXPECT_TRUE(Told(ended + R"({outcome="tool_error",reason="none"} 1)"));
  EXPECT_TRUE(Told(ended + R"({outcome="lost",reason="backend_connection_lost"} 1)"));
  EXPECT_TRUE(Told(ended + R"({outcome="rejected",reason="seat_unknown"} 1)"));
  EXPECT_TRUE(Told("callboard_agent_calls 3")) << "none of them is settled";
  EXPECT_TRUE(Told("callboard_agent_calls_held 3"));
  EXPECT_TRUE(Told("callboard_agent_held_bytes 4")) << "two results of two bytes";
  EXPECT_TRUE(Told("callboard_agent_bodies_lost_total 0"));
  EXPECT_TRUE(Told("callboard_agent_calls_running 0"));
}

TEST_F(AgentMetrics, TellLinksSeatsAndTheDisk) {
  StartLinked();
  seat.state.set_name("maya");
  seat.state.set_queue_depth(4);
  seat.state.mutable_health()->set_endpoint(v1::HEALTHY);
  EXPECT_TRUE(Told(R"(callboard_agent_link_up{address="plane-1:9766"} 1)"));
  EXPECT_TRUE(Told("callboard_agent_link_ups_total 1"));
  EXPECT_TRUE(Told("callboard_agent_link_drops_total 0"));
  EXPECT_TRUE(Told(std::string("callboard_agent_seat_queue_depth{seat=\"") + kSeat +
                   "\",name=\"maya\"} 4"));
  EXPECT_TRUE(Told(std::string("callboard_agent_seat_up{seat=\"") + kSeat + "\",name=\"maya\"} 1"));
  EXPECT_TRUE(Told("callboard_agent_journal_up 1"));
  plane.Cut();
  loop.RunReady();
  EXPECT_TRUE(Told(R"(callboard_agent_link_up{address="plane-1:9766"} 0)"));
  EXPECT_TRUE(Told("callboard_agent_link_drops_total 1"));
}

TEST_F(AgentMetrics, TellHowLinksCameBackAndWhyOthersDidNot) {
  const std::string relinks = "callboard_agent_relinks_total";
  const std::string failures = "callboard_agent_link_failures_total";
  StartLinked();
  EXPECT_TRUE(Told(relinks + R"({level="resume"} 0)"));
  EXPECT_TRUE(Told(failures + R"({reason="no_answer"} 0)"));
  CutAndRedial();
  SendWelcome();
  EXPECT_TRUE(Told(relinks + R"({level="resume"} 1)"));
  EXPECT_TRUE(Told(relinks + R"({level="re_register"} 0)"));
  CutAndRedial();
  welcome.set_term(2);  // it was restarted
  SendWelcome();
  EXPECT_TRUE(Told(relinks + R"({level="re_register"} 1)"));
  CutAndRedial();
  const int dials = plane.dials;
  v1::ServerItem item;
  item.mutable_refused()->set_code(v1::Refused::DRAINING);
  plane.Send(std::move(item));
  ASSERT_TRUE(loop.RunUntil([&] { return plane.dials > dials; }, absl::Seconds(30)));
  EXPECT_TRUE(Told(failures + R"({reason="draining"} 1)"));
  EXPECT_TRUE(Told(failures + R"({reason="no_answer"} 0)"));
  plane.Cut();
  ASSERT_TRUE(loop.RunUntil([&] { return plane.dials > dials + 1; }, absl::Seconds(30)));
  EXPECT_TRUE(Told(failures + R"({reason="no_answer"} 1)"));
  welcome.set_control_plane_id("plane-2");  // another one behind the same address
  SendWelcome();
  EXPECT_TRUE(Told(relinks + R"({level="re_register"} 2)"));
  EXPECT_TRUE(Told(relinks + R"({level="resume"} 1)"));
}

}  // namespace
}  // namespace callboard::tests
