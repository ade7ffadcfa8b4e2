// Tests of the control plane's figures: they follow what happens to calls, links and seats.
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

class FlowMetrics : public FlowsTest {
 protected:
  // The value of one sample as it is written; empty if there is none.
  std::string Figure(const std::string& sample) const {
    core::MetricsText text;
    plane->WriteMetrics(text);
    const std::string figures = "\n" + text.Take();
    const size_t at = figures.find("\n" + sample + " ");
    if (at == std::string::npos) return "";
    const size_t begin = at + sample.size() + 2;
    return figures.substr(begin, figures.find('\n', begin) - begin);
  }
  std::string Open(const std::string& state) const {
    return Figure("callboard_calls_open{state=\"" + state + "\"}");
  }
  std::string Ended(const std::string& outcome, const std::string& reason) const {
    return Figure("callboard_calls_ended_total{outcome=\"" + outcome + "\",reason=\"" + reason +
                  "\"}");
  }
};

TEST_F(FlowMetrics, FollowACallThroughItsStates) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  EXPECT_EQ(Open("sending"), "1");
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Queued(call, 1, 2);
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(Open("sending"), "0");
  EXPECT_EQ(Open("queued"), "1");
  agent->Started(call, 2);
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(Open("waiting"), "1");
  agent->Result(call, 3);
  loop.RunReady();
  for (const char* state : {"queued", "connecting", "sending", "waiting", "retrying"}) {
    EXPECT_EQ(Open(state), "0") << state;
  }
  EXPECT_EQ(Figure(R"(callboard_call_state_seconds_sum{state="queued"})"), "3");
  EXPECT_EQ(Figure(R"(callboard_call_state_seconds_sum{state="waiting"})"), "2");
  EXPECT_EQ(Figure(R"(callboard_call_state_seconds_bucket{state="waiting",le="1"})"), "0");
  EXPECT_EQ(Figure(R"(callboard_call_state_seconds_bucket{state="waiting",le="10"})"), "1");
  EXPECT_EQ(Figure(R"(callboard_call_duration_seconds_sum{outcome="result"})"), "5");
  EXPECT_EQ(Figure(R"(callboard_call_duration_seconds_count{outcome="failure"})"), "0");
  EXPECT_EQ(Ended("result", "none"), "1");
  EXPECT_EQ(Figure("callboard_receipts"), "1");
}

TEST_F(FlowMetrics, TellRetriesAndCallsThatHaveHadThemAll) {
  auto agent = Link();
  GiveList(*agent, "d1");
  auto caller = Invoke(Call(OpenSession(), "1", "look"));
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const v1::Dispatch call = agent->TakeDispatch();
    agent->Started(call);
    agent->Finish(call, 2, v1::LOST, v1::DCC_EXITED, v1::UNKNOWN);
    loop.RunReady();
    EXPECT_EQ(Open("retrying"), attempt < 3 ? "1" : "0");
    loop.RunFor(absl::Seconds(4));
  }
  EXPECT_EQ(caller->outcome().reason(), v1::DCC_EXITED);
  EXPECT_EQ(Figure("callboard_call_retries_total"), "2");
  EXPECT_EQ(Figure("callboard_call_retries_exhausted_total"), "1");
  EXPECT_EQ(Ended("lost", "dcc_exited"), "1");
}

TEST_F(FlowMetrics, TellWhyCallsWereRefusedAndLinksLost) {
  auto agent = Link();
  const std::string session = OpenSession();
  v1::InvokeRequest request = Call(session);
  request.mutable_target()->Clear();
  request.mutable_target()->set_instance("nobody");
  Invoke(request);
  EXPECT_EQ(Figure(R"(callboard_calls_refused_total{reason="seat_unknown"})"), "1");
  EXPECT_EQ(Figure("callboard_agents"), "1");

  agent->Cut();
  loop.RunReady();
  EXPECT_EQ(Figure("callboard_agents"), "0");
  EXPECT_EQ(Figure(R"(callboard_agent_link_drops_total{cause="closed"})"), "1");
  auto caller = Invoke(Call(session, "2"));
  EXPECT_EQ(Open("connecting"), "1");
  auto second = Link("boot-1", 2);
  auto third = Link("boot-1", 3);
  EXPECT_EQ(Figure(R"(callboard_agent_link_drops_total{cause="taken_over"})"), "1");
  EXPECT_EQ(Figure(R"(callboard_agent_links_total{kind="first"})"), "1");
  EXPECT_EQ(Figure(R"(callboard_agent_links_total{kind="again"})"), "2");
  third->answer_pings = false;
  loop.RunFor(absl::Minutes(1));
  EXPECT_EQ(Figure(R"(callboard_agent_link_drops_total{cause="silent"})"), "1");
  EXPECT_EQ(Figure(R"(callboard_seats{presence="linked"})"), "0");
}

TEST_F(FlowMetrics, TellHowAgentsCameBack) {
  const auto reattached = [this](const std::string& level) {
    return Figure("callboard_agent_reattached_total{level=\"" + level + "\"}");
  };
  auto first = Link("boot-1", 1);
  EXPECT_EQ(reattached("resume"), "0") << "nobody knew it";
  EXPECT_EQ(reattached("re_register"), "0");
  first->Cut();
  auto again = Link("boot-1", 2);
  EXPECT_EQ(reattached("resume"), "1");
  again->Cut();
  auto anew = Link("boot-2", 1);
  EXPECT_EQ(reattached("re_register"), "1");
  anew->Cut();
  loop.RunFor(absl::Seconds(1));
  // Its seats are in the store, with the run that told of them.
  Restart();
  auto back = Link("boot-2", 2);
  EXPECT_EQ(reattached("resume"), "1");
  EXPECT_EQ(reattached("re_register"), "0");
  back->Cut();
  loop.RunFor(absl::Seconds(1));
  Restart();
  auto restarted = Link("boot-3", 7);
  EXPECT_EQ(reattached("resume"), "0");
  EXPECT_EQ(reattached("re_register"), "1");
}

TEST_F(FlowMetrics, TellWhyAgentsWereRefused) {
  const auto refused = [this](const std::string& reason) {
    return Figure("callboard_agent_links_refused_total{reason=\"" + reason + "\"}");
  };
  auto agent = Link("boot-1", 5);
  for (const char* reason :
       {"protocol_too_old", "protocol_too_new", "identity_in_use", "unauthenticated", "bad_opening",
        "draining", "too_many_agents", "already_linked"}) {
    EXPECT_EQ(refused(reason), "0") << reason;
  }
  auto older = Link("boot-1", 4);
  EXPECT_EQ(refused("bad_opening"), "1");
  auto clone = Link("boot-2", 1);
  loop.RunFor(absl::Seconds(5));
  EXPECT_EQ(refused("identity_in_use"), "1");
  bool drained = false;
  plane->Drain(absl::Seconds(10), [&] { drained = true; });
  auto late = Link("boot-1", 6);
  EXPECT_EQ(refused("draining"), "1");
  EXPECT_EQ(Figure(R"(callboard_agent_reattached_total{level="resume"})"), "0");
}

TEST_F(FlowMetrics, TellWhichSessionsOfAFormerProcessWereTakenUp) {
  const std::string used = OpenSession();
  const std::string closed = OpenSession();
  const std::string idle = OpenSession();
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(Figure("callboard_sessions_awaited"), "0");
  Restart();
  const std::string result = "callboard_sessions_taken_over_total{result=";
  EXPECT_EQ(Figure("callboard_sessions_awaited"), "3");
  EXPECT_EQ(Figure(result + "\"taken_up\"}"), "0");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(plane->GetSession(used).ok());
  EXPECT_TRUE(CloseSession(closed).ok());
  EXPECT_EQ(Figure("callboard_sessions_awaited"), "1");
  EXPECT_EQ(Figure(result + "\"taken_up\"}"), "1");
  EXPECT_EQ(Figure(result + "\"ended\"}"), "1");
  loop.RunFor(config.budgets.session_idle + absl::Minutes(5));
  EXPECT_EQ(Figure("callboard_sessions_awaited"), "0");
  EXPECT_EQ(Figure(result + "\"ended\"}"), "2") << "nobody came";
  EXPECT_EQ(Figure(result + "\"taken_up\"}"), "1");
}

TEST_F(FlowMetrics, NothingOfAFormerProcessIsCounted) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto done = Invoke(Call(session, "1"));
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(Ended("result", "none"), "1");
  agent->Cut();
  Restart();
  EXPECT_EQ(Figure("callboard_receipts"), "1");
  EXPECT_EQ(Ended("result", "none"), "");
  EXPECT_EQ(Figure(R"(callboard_call_duration_seconds_count{outcome="result"})"), "0");
  EXPECT_EQ(Open("queued"), "0");
  EXPECT_EQ(Figure("callboard_sessions"), "1");
  EXPECT_EQ(Figure("callboard_sessions_opened_total"), "0");
}

TEST_F(FlowMetrics, SeatsBeyondTheBoundAreToldTogether) {
  auto agent = Link();
  for (int n = 0; n < 204; ++n) {
    v1::AgentItem item;
    v1::SeatState& seat = *item.mutable_seat_state();
    seat = FakeAgent::Seat();
    seat.set_seat_id(fmt::format("{:032x}", n + 1));
    seat.set_name(fmt::format("seat\"{}", n));
    seat.set_queue_depth(2);
    agent->Say(std::move(item));
  }
  loop.RunReady();
  EXPECT_EQ(Figure(R"(callboard_seats{presence="linked"})"), "205");
  EXPECT_EQ(Figure("callboard_seat_queue_depth{seat=\"" + std::string(31, '0') +
                   "1\",name=\"seat\\\"0\"}"),
            "2");
  EXPECT_EQ(Figure(R"(callboard_seat_queue_depth{seat="other",name="other"})"), "8");
}

}  // namespace
}  // namespace callboard::server
