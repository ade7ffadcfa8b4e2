// Tests of calls that ask a client without a session: parked, and resumed by the request that
// brings the answers.
#include "core/mcp/json.h"
#include "fmt/format.h"
#include "server/flows/request_state.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

class Parked : public FlowsTest {
 protected:
  static v1::InvokeRequest ModernCall(std::string id = "1", std::string more = "") {
    v1::InvokeRequest request;
    request.set_client_request_id(std::move(id));
    request.mutable_target()->set_seat_id(kSeat);
    request.set_method("tools/call");
    request.set_params(R"({"name":"bake","arguments":{"frames":3})" + more + "}");
    request.mutable_client()->set_revision("2026-07-28");
    request.mutable_client()->set_capabilities(R"({"elicitation":{},"roots":{}})");
    request.set_on_detach(v1::InvokeRequest::CANCEL);
    request.set_open_stream_after_ms(250);
    return request;
  }
  static std::string StateOf(const Caller& caller) {
    return core::FindString(caller.outcome().body().inline_(), "requestState").value_or("");
  }
  // The same request once more, with what it was asked for.
  static v1::InvokeRequest Again(const std::string& state, const std::string& responses,
                                 std::string id = "2") {
    return ModernCall(std::move(id), R"(,"inputResponses":)" + responses + R"(,"requestState":)" +
                                         core::QuoteJson(state));
  }
  // A call whose backend has asked by its second event.
  std::unique_ptr<Caller> Asked(FakeAgent& agent, v1::Dispatch* dispatch) {
    auto caller = Invoke(ModernCall());
    *dispatch = agent.TakeDispatch();
    agent.Started(*dispatch);
    agent.Ask(*dispatch, 2);
    loop.RunReady();
    return caller;
  }
  std::string ErrorOf(const Caller& caller) {
    EXPECT_EQ(caller.outcome().class_(), v1::RPC_ERROR);
    return caller.outcome().body().inline_();
  }
};

TEST_F(Parked, CallsAreAnsweredWithWhatIsAskedAndGoOn) {
  auto agent = Link();
  v1::Dispatch dispatch;
  auto caller = Asked(*agent, &dispatch);
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  const std::string body = caller->outcome().body().inline_();
  EXPECT_EQ(body.find(R"({"resultType":"input_required","inputRequests":{"ask-2":)"
                      R"({"method":"elicitation/create","params":{)"),
            0u)
      << body;
  EXPECT_NE(body.find(R"("mode":"form")"), std::string::npos);
  EXPECT_EQ(caller->outcome().facts().era_fields(0), "resultType");
  caller->Drop();
  loop.RunReady();
  EXPECT_FALSE(agent->Take(v1::ServerItem::kCancel)) << "its caller has not left, it answers";
  EXPECT_EQ(plane->gauges().open_executions, 1u);

  auto again = Invoke(Again(StateOf(*caller), R"({"ask-2":{"action":"accept"},"extra":1})"));
  const auto answer = agent->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answer().ask_n(), 2u);
  EXPECT_EQ(answer->answer().result().inline_(), R"({"action":"accept"})");
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch)) << "nothing runs twice";
  agent->Result(dispatch, 3, R"({"content":[]})");
  loop.RunReady();
  EXPECT_EQ(again->outcome().body().inline_(), R"({"content":[]})");
  EXPECT_EQ(again->outcome().client_request_id(), "2");
}

TEST_F(Parked, CallsWithAStreamEndItAndOpenAnother) {
  auto agent = Link();
  v1::InvokeRequest request = ModernCall();
  request.set_progress_token("7");
  auto caller = Invoke(request);
  const v1::Dispatch dispatch = agent->TakeDispatch();
  agent->Started(dispatch);
  agent->Progress(dispatch, 2, R"({"progress":1})");
  loop.RunReady();
  EXPECT_TRUE(caller->accepted());
  agent->Ask(dispatch, 3);
  loop.RunReady();
  EXPECT_EQ(core::FindString(caller->outcome().body().inline_(), "resultType"), "input_required");
  EXPECT_EQ(caller->end->code(), absl::StatusCode::kOutOfRange);
  v1::InvokeRequest retry = Again(StateOf(*caller), R"({"ask-3":{}})");
  retry.set_progress_token("8");
  auto again = Invoke(retry);
  agent->Progress(dispatch, 4, R"({"progress":2})");
  loop.RunReady();
  EXPECT_EQ(again->params(), std::vector<std::string>{R"({"progress":2,"progressToken":8})"});
  agent->Result(dispatch, 5);
  loop.RunReady();
  EXPECT_EQ(again->outcome().class_(), v1::RESULT);
}

TEST_F(Parked, WhatIsNotAnsweredIsAskedAgain) {
  auto agent = Link();
  v1::Dispatch dispatch;
  auto caller = Asked(*agent, &dispatch);
  agent->Ask(dispatch, 3);  // while its client is away
  loop.RunReady();
  auto second = Invoke(Again(StateOf(*caller), R"({"ask-2":{"action":"decline"}})"));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kAnswer));
  const std::string body = second->outcome().body().inline_();
  EXPECT_NE(body.find(R"("ask-3")"), std::string::npos) << body;
  EXPECT_EQ(body.find(R"("ask-2")"), std::string::npos);
  auto third = Invoke(Again(StateOf(*second), "{}", "3"));
  EXPECT_NE(third->outcome().body().inline_().find(R"("ask-3")"), std::string::npos);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kAnswer));
  auto fourth = Invoke(Again(StateOf(*third), R"({"ask-3":{}})", "4"));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kAnswer));
  agent->Result(dispatch, 4);
  loop.RunReady();
  EXPECT_EQ(fourth->outcome().class_(), v1::RESULT);
}

TEST_F(Parked, StatesOfAnotherRequestAreRefused) {
  auto agent = Link();
  v1::Dispatch dispatch;
  auto caller = Asked(*agent, &dispatch);
  const std::string state = StateOf(*caller);
  EXPECT_NE(ErrorOf(*Invoke(Again(state + "0", "{}"))).find("-32602"), std::string::npos);
  v1::InvokeRequest other = Again(state, R"({"ask-2":{}})");
  other.set_params(core::SetPath(other.params(), {"arguments", "frames"}, "4"));
  EXPECT_NE(ErrorOf(*Invoke(other)).find("belongs to another request"), std::string::npos);
  other = Again(state, R"({"ask-2":{}})");
  other.set_principal("somebody else");
  EXPECT_NE(ErrorOf(*Invoke(other)).find("-32602"), std::string::npos);
  EXPECT_NE(ErrorOf(*Invoke(Again(state, R"({"ask-2":7})"))).find("must be an object"),
            std::string::npos);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kAnswer));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
  // A backend's own state is none of ours.
  auto passed = Invoke(Again("opaque", "{}", "9"));
  EXPECT_NE(agent->TakeDispatch().params().inline_().find(R"("requestState":"opaque")"),
            std::string::npos);
}

TEST_F(Parked, StatesOfACallboardBehindTheSeatPassOn) {
  core::SeededRandom other_random(9);
  RequestState behind("the key of another", other_random);
  const std::string state = behind.Seal({CallId::New(other_random, 1), 1'000'000}, "its own");
  auto agent = Link();
  EXPECT_NE(ErrorOf(*Invoke(Again(state, R"({"ask-2":{}})"))).find("-32602"), std::string::npos);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch))
      << "a backend of earlier revisions would begin the call anew";
  v1::AgentItem seat;
  *seat.mutable_seat_state() = FakeAgent::Seat();
  seat.mutable_seat_state()->set_modern_capabilities(R"({"tools":{}})");
  agent->Say(std::move(seat));
  loop.RunReady();
  auto passed = Invoke(Again(state, R"({"ask-2":{}})"));
  const std::string params = agent->TakeDispatch().params().inline_();
  EXPECT_EQ(core::FindString(params, "requestState"), state);
  EXPECT_EQ(core::FindMember(params, "inputResponses"), R"({"ask-2":{}})");
}

TEST_F(Parked, StateServesOneRequestAtATime) {
  auto agent = Link();
  v1::Dispatch dispatch;
  auto caller = Asked(*agent, &dispatch);
  auto again = Invoke(Again(StateOf(*caller), R"({"ask-2":{}})"));
  EXPECT_NE(ErrorOf(*Invoke(Again(StateOf(*caller), R"({"ask-2":{}})", "3"))).find("in use"),
            std::string::npos);
  again->Drop();
  loop.RunReady();
  EXPECT_TRUE(agent->Take(v1::ServerItem::kCancel)) << "who hangs up has cancelled";
}

TEST_F(Parked, CallsThatEndMeanwhileAreToldToWhoComesBack) {
  auto agent = Link();
  v1::Dispatch dispatch;
  auto caller = Asked(*agent, &dispatch);
  agent->Result(dispatch, 3, R"({"gave":"up"})");
  loop.RunReady();
  auto again = Invoke(Again(StateOf(*caller), R"({"ask-2":{}})"));
  loop.RunReady();
  EXPECT_EQ(again->outcome().body().inline_(), R"({"gave":"up"})");
  EXPECT_EQ(again->outcome().client_request_id(), "2");
}

TEST_F(Parked, CallsWhoseClientNeverComesBackEndWithTheirBudget) {
  auto agent = Link();
  v1::Dispatch dispatch;
  auto caller = Asked(*agent, &dispatch);
  loop.RunFor(absl::Minutes(15));
  EXPECT_EQ(plane->gauges().open_executions, 0u);
  EXPECT_TRUE(agent->Take(v1::ServerItem::kCancel));
  EXPECT_NE(ErrorOf(*Invoke(Again(StateOf(*caller), R"({"ask-2":{}})"))).find("expired"),
            std::string::npos);
}

class ParkedThroughARestart : public Parked {
 protected:
  void SetUp() override {
    config.request_state_key = "key";
    Restart();
  }
  // A call that was asked, and stored, before the restart that is over now.
  std::unique_ptr<Caller> AskedBefore(v1::Dispatch* dispatch) {
    auto agent = Link();
    auto caller = Asked(*agent, dispatch);
    loop.RunFor(absl::Seconds(1));
    Restart();
    return caller;
  }
  // The agent has gone on with the call meanwhile.
  std::unique_ptr<FakeAgent> Back(const v1::Dispatch& call, uint64_t last_n = 2) {
    return Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, last_n)});
  }
};

TEST_F(ParkedThroughARestart, CallsGoOn) {
  v1::Dispatch dispatch;
  auto caller = AskedBefore(&dispatch);
  auto back = Back(dispatch);
  EXPECT_EQ(plane->gauges().open_executions, 1u);
  // What the backend asked and was not acknowledged comes once more.
  back->Ask(dispatch, 2);
  loop.RunReady();
  auto again = Invoke(Again(StateOf(*caller), R"({"ask-2":{"action":"accept"}})"));
  const auto answer = back->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answer().ask_n(), 2u);
  EXPECT_EQ(answer->answer().result().inline_(), R"({"action":"accept"})");
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch)) << "nothing runs twice";
  back->Result(dispatch, 3, R"({"content":[]})");
  loop.RunReady();
  EXPECT_EQ(again->outcome().body().inline_(), R"({"content":[]})");
}

TEST_F(ParkedThroughARestart, CallsAreResumedBeforeTheirAgentIsBack) {
  v1::Dispatch dispatch;
  auto caller = AskedBefore(&dispatch);
  auto again = Invoke(Again(StateOf(*caller), R"({"ask-2":{"action":"accept"}})"));
  EXPECT_TRUE(again->outcomes().empty());
  auto back = Back(dispatch);
  EXPECT_TRUE(back->Take(v1::ServerItem::kAnswer));
  back->Result(dispatch, 3, R"({"content":[]})");
  loop.RunReady();
  EXPECT_EQ(again->outcome().body().inline_(), R"({"content":[]})");
}

TEST_F(ParkedThroughARestart, WhatWasAnsweredIsSaidAgainAndNotAskedAgain) {
  auto agent = Link();
  v1::Dispatch dispatch;
  auto caller = Asked(*agent, &dispatch);
  auto again = Invoke(Again(StateOf(*caller), R"({"ask-2":{"action":"accept"}})"));
  loop.RunFor(absl::Seconds(1));
  Restart();
  auto back = Back(dispatch);
  EXPECT_TRUE(back->Take(v1::ServerItem::kAnswer)) << "it may not have come through";
  back->Ask(dispatch, 2);
  loop.RunReady();
  // Its client has lost its connection, and tries once more.
  auto third = Invoke(Again(StateOf(*caller), R"({"ask-2":{"action":"accept"}})", "3"));
  EXPECT_TRUE(third->outcomes().empty()) << "nothing is left to ask";
  back->Result(dispatch, 3, R"({"content":[]})");
  loop.RunReady();
  EXPECT_EQ(third->outcome().body().inline_(), R"({"content":[]})");
}

TEST_F(ParkedThroughARestart, CallsThatTheAgentHasLostTooAreOver) {
  v1::Dispatch dispatch;
  auto caller = AskedBefore(&dispatch);
  auto back = Link("boot-2", 1, "journal-2");
  auto again = Invoke(Again(StateOf(*caller), R"({"ask-2":{}})"));
  loop.RunReady();
  EXPECT_EQ(again->outcome().class_(), v1::LOST);
  EXPECT_EQ(again->outcome().certainty(), v1::UNKNOWN);
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch));
}

TEST_F(ParkedThroughARestart, CallsExpireAsWithoutOne) {
  v1::Dispatch dispatch;
  auto caller = AskedBefore(&dispatch);
  auto back = Back(dispatch);
  loop.RunFor(absl::Minutes(15));
  EXPECT_EQ(plane->gauges().open_executions, 0u);
  EXPECT_NE(ErrorOf(*Invoke(Again(StateOf(*caller), R"({"ask-2":{}})"))).find("expired"),
            std::string::npos);
}

TEST_F(ParkedThroughARestart, CallsThatWereNotStoredInTimeAreToldToHaveBeenInterrupted) {
  auto agent = Link();
  v1::Dispatch dispatch;
  auto caller = Asked(*agent, &dispatch);
  disk = {};  // nothing of it came to the disk
  Restart();
  auto back = Link("boot-1", 2);
  const std::string error = ErrorOf(*Invoke(Again(StateOf(*caller), R"({"ask-2":{}})")));
  EXPECT_NE(error.find("-32602"), std::string::npos);
  EXPECT_NE(error.find("interrupted"), std::string::npos);
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch));
}

TEST_F(Parked, OnlyWhatTheClientDeclaredIsAsked) {
  auto agent = Link();
  v1::InvokeRequest request = ModernCall();
  request.mutable_client()->set_capabilities(R"({"sampling":{}})");
  auto caller = Invoke(request);
  const v1::Dispatch dispatch = agent->TakeDispatch();
  EXPECT_EQ(dispatch.backend_session().find("like-"), 0u);
  agent->Started(dispatch);
  agent->Ask(dispatch, 2);
  loop.RunReady();
  const auto answer = agent->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->answer().error().inline_().find("does not offer 'elicitation/create'"),
            std::string::npos);
  EXPECT_TRUE(caller->outcomes().empty());
}

TEST_F(Parked, UrlsAndToolsAreAskedOfThoseWhoDeclareThem) {
  auto agent = Link();
  v1::InvokeRequest request = ModernCall();
  request.mutable_client()->set_capabilities(R"({"elicitation":{},"sampling":{}})");
  auto caller = Invoke(request);
  const v1::Dispatch dispatch = agent->TakeDispatch();
  agent->Started(dispatch);
  agent->Ask(dispatch, 2, "elicitation/create", R"({"mode":"url","url":"https://x"})");
  agent->Ask(dispatch, 3, "sampling/createMessage", R"({"tools":[]})");
  loop.RunReady();
  for (const char* lacks : {"elicitation.url", "sampling.tools"}) {
    const auto answer = agent->Take(v1::ServerItem::kAnswer);
    ASSERT_TRUE(answer);
    EXPECT_EQ(
        answer->answer().error().inline_(),
        fmt::format(R"({{"code":-32602,"message":"the client does not offer '{}'"}})", lacks));
  }
  EXPECT_TRUE(caller->outcomes().empty());
}

}  // namespace
}  // namespace callboard::server
