// Tests of calls that go on as tasks and ask their client: what is asked is kept for whoever asks
// after the task, and what is answered goes to the backend.
#include <map>
#include <string>

#include "core/mcp/json.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

using Requests = std::map<std::string, std::string>;

constexpr char kQuestion[] = R"({"method":"elicitation/create","params":{"message":"Name?"}})";

class Tasks : public FlowsTest {
 protected:
  static v1::InvokeRequest ModernCall(const std::string& key = "") {
    v1::InvokeRequest request;
    request.set_client_request_id("1");
    request.mutable_target()->set_seat_id(kSeat);
    request.set_method("tools/call");
    request.set_params(R"({"name":"bake","arguments":{"frames":3}})");
    request.mutable_client()->set_revision("2026-07-28");
    request.mutable_client()->set_capabilities(R"({"elicitation":{}})");
    request.set_open_stream_after_ms(250);
    request.set_idempotency_key(key);
    return request;
  }
  v1::Call Get(bool as_task = false) {
    v1::CallRef ref;
    ref.set_call_id(call_id);
    ref.set_as_task(as_task);
    const auto call = GetCall(ref);
    EXPECT_TRUE(call.ok()) << call.status();
    return call.value_or(v1::Call());
  }
  Requests Asked() {
    const v1::Call call = Get();
    return {call.input_requests().begin(), call.input_requests().end()};
  }
  // A call that runs and has become a task; its caller has got that for an answer.
  v1::Dispatch MakeTask(FakeAgent& agent, v1::InvokeRequest request = ModernCall()) {
    auto caller = Invoke(std::move(request));
    v1::Dispatch dispatch = agent.TakeDispatch();
    call_id = dispatch.call_id();
    agent.Started(dispatch);
    Get(/*as_task=*/true);
    EXPECT_TRUE(caller->outcomes().empty());
    caller->Drop();
    loop.RunFor(absl::Seconds(1));
    return dispatch;
  }
  absl::StatusOr<bool> Answer(const std::string& responses) {
    v1::SendRequest request;
    request.mutable_input()->set_call_id(call_id);
    request.mutable_input()->set_responses(responses);
    absl::StatusOr<bool> found = absl::UnavailableError("no reply");
    plane->Send(request, [&](absl::StatusOr<v1::SendResponse> response) {
      found = response.ok() ? absl::StatusOr<bool>(response->found()) : response.status();
    });
    loop.RunReady();
    return found;
  }
  // The backend wants input before it gives a result.
  static void Require(FakeAgent& agent, const v1::Dispatch& call, uint64_t n,
                      const std::string& body) {
    v1::AgentItem item = FakeAgent::Event(call, n);
    v1::Outcome& outcome = *item.mutable_call_event()->mutable_outcome();
    outcome.set_class_(v1::RESULT);
    outcome.set_certainty(v1::FINISHED);
    outcome.mutable_facts()->add_era_fields("resultType");
    outcome.mutable_body()->set_inline_(body);
    agent.Say(std::move(item));
  }
  static std::string Required(const std::string& requests, const std::string& state = "") {
    return R"({"resultType":"input_required","inputRequests":)" + requests +
           (state.empty() ? "" : R"(,"requestState":)" + core::QuoteJson(state)) + "}";
  }
  static v1::CallState Finished(const v1::Dispatch& call, uint64_t last_n) {
    return FakeAgent::State(call, v1::CallState::FINISHED, last_n);
  }
  void ExpectAnswer(FakeAgent& agent, uint64_t n, const std::string& result) {
    const auto answer = agent.Take(v1::ServerItem::kAnswer);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->answer().ask_n(), n);
    EXPECT_EQ(answer->answer().result().inline_(), result);
  }

  std::string call_id;
};

TEST_F(Tasks, ShowWhatTheirBackendAsksAndGoOnWhenItIsAnswered) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  EXPECT_EQ(Asked(), Requests());
  agent->Ask(dispatch, 2);
  loop.RunReady();
  EXPECT_EQ(Asked(), (Requests{{"ask-2", R"({"method":"elicitation/create",)"
                                         R"("params":{"mode":"form"}})"}}));
  EXPECT_EQ(Get().phase(), v1::CALL_WAITING);
  EXPECT_EQ(plane->gauges().open_asks, 1u);
  EXPECT_TRUE(Answer(R"({"ask-2":{"action":"accept"},"other":{}})").value());
  ExpectAnswer(*agent, 2, R"({"action":"accept"})");
  EXPECT_EQ(Asked(), Requests());
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch)) << "nothing runs twice";
  agent->Result(dispatch, 3, R"({"content":[]})");
  loop.RunReady();
  EXPECT_EQ(Get().phase(), v1::CALL_SUCCEEDED);
}

TEST_F(Tasks, TakeAnAnswerOnceAndOneAfterTheOther) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  agent->Ask(dispatch, 2);
  agent->Ask(dispatch, 3);
  loop.RunReady();
  EXPECT_EQ(Asked().size(), 2u);
  EXPECT_EQ(Answer(R"({"ask-2":7})").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Answer(R"({"ask-3":{"a":1}})").value());
  ExpectAnswer(*agent, 3, R"({"a":1})");
  EXPECT_TRUE(Answer(R"({"ask-3":{"a":2}})").value()) << "said again by a client in doubt";
  EXPECT_FALSE(agent->Take(v1::ServerItem::kAnswer));
  EXPECT_EQ(Asked().count("ask-2"), 1u);
  EXPECT_TRUE(Answer(R"({"ask-2":{}})").value());
  ExpectAnswer(*agent, 2, "{}");
  agent->Result(dispatch, 4);
  loop.RunReady();
  EXPECT_FALSE(Answer(R"({"ask-2":{}})").value()) << "it is over";
}

TEST_F(Tasks, ShowNothingThatTheStoreMayLose) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  (void)agent->TakeAll(v1::ServerItem::kAck);
  disk.delay = absl::Seconds(3);
  agent->Ask(dispatch, 2);
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(Asked(), Requests());
  for (const v1::ServerItem& item : agent->TakeAll(v1::ServerItem::kAck)) {
    for (const v1::AckEntry& entry : item.ack().entries()) EXPECT_LT(entry.n(), 2u);
  }
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(Asked().size(), 1u);
}

TEST_F(Tasks, TellWhoWaitsThatTheyAskForSomethingElse) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  const auto wait = [&](std::vector<std::string> known, std::vector<size_t>* told) {
    v1::CallRef ref;
    ref.set_call_id(call_id);
    ref.set_wait_ms(60'000);
    ref.set_watch_input(true);
    for (std::string& key : known) ref.add_known_input(std::move(key));
    plane->WaitCall(ref, [told](absl::StatusOr<v1::Call> call) {
      ASSERT_TRUE(call.ok());
      told->push_back(call->input_requests().size());
    });
    loop.RunReady();
  };
  std::vector<size_t> told;
  wait({}, &told);
  EXPECT_TRUE(told.empty());
  agent->Ask(dispatch, 2);
  loop.RunReady();
  EXPECT_EQ(told, std::vector<size_t>{1});
  wait({}, &told);
  EXPECT_EQ(told.size(), 2u) << "who has not heard of it is told at once";
  wait({"ask-2"}, &told);
  EXPECT_EQ(told.size(), 2u);
  EXPECT_TRUE(Answer(R"({"ask-2":{}})").ok());
  EXPECT_EQ(told, (std::vector<size_t>{1, 1, 0}));
}

TEST_F(Tasks, ForgetWhatTheirBackendNoLongerWants) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  agent->Ask(dispatch, 2);
  loop.RunReady();
  v1::AgentItem item = FakeAgent::Event(dispatch, 3);
  v1::MethodEvent& cancelled = *item.mutable_call_event()->mutable_notification();
  cancelled.set_method("notifications/cancelled");
  cancelled.set_ask_n(2);
  cancelled.mutable_params()->set_inline_("{}");
  agent->Say(std::move(item));
  loop.RunReady();
  EXPECT_EQ(Asked(), Requests());
  EXPECT_TRUE(Answer(R"({"ask-2":{}})").value());
  EXPECT_FALSE(agent->Take(v1::ServerItem::kAnswer));
}

TEST_F(Tasks, EndWithTheirBudgetIfNobodyAnswers) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  agent->Ask(dispatch, 2);
  loop.RunFor(absl::Minutes(15));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kCancel)) << "which ends the ask at the backend";
  const v1::Call call = Get();
  EXPECT_EQ(call.reason(), v1::RUN_BUDGET_SPENT);
  EXPECT_NE(call.message().find("what it asked was not answered"), std::string::npos);
  EXPECT_EQ(call.input_requests().size(), 0u);
  EXPECT_FALSE(Answer(R"({"ask-2":{}})").value());
}

TEST_F(Tasks, CancelledOnesAskNoMore) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  agent->Ask(dispatch, 2);
  loop.RunReady();
  v1::CallRef ref;
  ref.set_call_id(call_id);
  plane->CancelCall(ref, [](const absl::StatusOr<v1::Call>&) {});
  loop.RunReady();
  EXPECT_TRUE(agent->Take(v1::ServerItem::kCancel));
  EXPECT_EQ(Get().phase(), v1::CALL_CANCELLED);
  EXPECT_EQ(Asked(), Requests());
}

TEST_F(Tasks, AskOnThroughAKillOfTheControlPlane) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  agent->Ask(dispatch, 2);
  loop.RunFor(absl::Seconds(1));
  Restart();
  EXPECT_EQ(Asked().count("ask-2"), 1u) << "before its agent is back";
  auto back =
      Link("boot-1", 2, "journal-1", {FakeAgent::State(dispatch, v1::CallState::RUNNING, 2)});
  back->Ask(dispatch, 2);  // of which the agent was told nothing
  back->Ask(dispatch, 3);
  loop.RunReady();
  EXPECT_EQ(Asked().size(), 2u);
  EXPECT_TRUE(Answer(R"({"ask-2":{"a":1},"ask-3":{"a":2}})").value());
  EXPECT_EQ(back->TakeAll(v1::ServerItem::kAnswer).size(), 2u);
  loop.RunFor(absl::Seconds(1));
  // The agent may not have got them.
  Restart();
  back = Link("boot-1", 3, "journal-1", {FakeAgent::State(dispatch, v1::CallState::RUNNING, 3)});
  EXPECT_EQ(Asked(), Requests());
  EXPECT_EQ(back->TakeAll(v1::ServerItem::kAnswer).size(), 2u);
  back->Result(dispatch, 4);
  loop.RunReady();
  EXPECT_EQ(Get().phase(), v1::CALL_SUCCEEDED);
}

TEST_F(Tasks, AskThatCameAsTheControlPlaneDiedComesAgain) {
  auto agent = Link();
  const v1::Dispatch dispatch = MakeTask(*agent);
  disk.delay = absl::Seconds(10);
  agent->Ask(dispatch, 2);
  loop.RunFor(absl::Seconds(1));
  disk.delay = absl::ZeroDuration();
  Restart();
  EXPECT_EQ(Asked(), Requests());
  auto back =
      Link("boot-1", 2, "journal-1", {FakeAgent::State(dispatch, v1::CallState::RUNNING, 2)});
  back->Ask(dispatch, 2);
  loop.RunReady();
  EXPECT_EQ(Asked().size(), 1u);
}

TEST_F(Tasks, CallThatIsNoTaskAsksNobodyWhoIsNotThere) {
  auto agent = Link();
  auto caller = Invoke(ModernCall());
  const v1::Dispatch dispatch = agent->TakeDispatch();
  agent->Started(dispatch);
  caller->Drop();
  agent->Ask(dispatch, 2);
  loop.RunReady();
  const auto answer = agent->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->answer().error().inline_().find("cannot be asked"), std::string::npos);
}

// ---- backends of 2026-07-28 ---------------------------------------------------------------------

TEST_F(Tasks, WhoseBackendRequiresInputAreSentAgainWithIt) {
  auto agent = Link();
  const v1::Dispatch first = MakeTask(*agent);
  const std::string requests =
      std::string(R"({"user":)") + kQuestion + R"(,"other":)" + kQuestion + "}";
  Require(*agent, first, 2, Required(requests, "s1"));
  loop.RunReady();
  EXPECT_EQ(Asked(), (Requests{{"ask-2-1", kQuestion}, {"ask-2-2", kQuestion}}));
  EXPECT_EQ(plane->gauges().open_executions, 1u);
  EXPECT_TRUE(Answer(R"({"ask-2-1":{"a":1}})").value());
  EXPECT_EQ(Asked().size(), 1u);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch)) << "before all of it is there";
  EXPECT_TRUE(Answer(R"({"ask-2-2":{"a":2}})").value());
  loop.RunReady();
  const v1::Dispatch second = agent->TakeDispatch();
  EXPECT_EQ(second.call_id(), first.call_id());
  EXPECT_EQ(second.attempt(), 2u);
  EXPECT_TRUE(second.idempotent()) << "that one has run is no reason to refuse it";
  EXPECT_EQ(second.params().inline_(),
            R"({"name":"bake","arguments":{"frames":3},)"
            R"("inputResponses":{"user":{"a":1},"other":{"a":2}},"requestState":"s1"})");

  // Another round, whose key has been used before.
  agent->Started(second);
  Require(*agent, second, 2, Required(std::string(R"({"user":)") + kQuestion + "}"));
  loop.RunReady();
  EXPECT_EQ(Asked(), (Requests{{"ask-3-1", kQuestion}}));
  EXPECT_TRUE(Answer(R"({"ask-3-1":{"a":3}})").value());
  loop.RunReady();
  const v1::Dispatch third = agent->TakeDispatch();
  EXPECT_EQ(third.params().inline_(), R"({"name":"bake","arguments":{"frames":3},)"
                                      R"("inputResponses":{"user":{"a":3}}})");
  agent->Started(third);
  agent->Result(third, 2, R"({"resultType":"complete","content":[]})");
  loop.RunReady();
  EXPECT_EQ(Get().phase(), v1::CALL_SUCCEEDED);
}

TEST_F(Tasks, StateWithoutRequestsIsSentBackAtOnce) {
  auto agent = Link();
  const v1::Dispatch first = MakeTask(*agent);
  Require(*agent, first, 2, R"({"resultType":"input_required","requestState":"later"})");
  loop.RunReady();
  const v1::Dispatch second = agent->TakeDispatch();
  EXPECT_NE(second.params().inline_().find(R"("inputResponses":{},"requestState":"later")"),
            std::string::npos);
}

TEST_F(Tasks, RoundsHaveAnEndAndSayWhatIsWrong) {
  auto agent = Link();
  v1::Dispatch dispatch = MakeTask(*agent);
  for (int i = 0; i < 10; ++i) {
    Require(*agent, dispatch, i == 0 ? 2 : 1, Required("{}", "again"));
    loop.RunReady();
    dispatch = agent->TakeDispatch();
  }
  Require(*agent, dispatch, 1, Required("{}", "again"));
  loop.RunReady();
  EXPECT_EQ(Get().reason(), v1::BACKEND_PROTOCOL_ERROR);
  EXPECT_EQ(Get().message(), "the application has asked for input 10 times");
  dispatch = MakeTask(*agent);
  Require(*agent, dispatch, 2, R"({"resultType":"input_required"})");
  loop.RunReady();
  EXPECT_EQ(Get().message(), "the application requires input and does not say which");
}

TEST_F(Tasks, RoundsSurviveAKillWhileTheyAsk) {
  auto agent = Link();
  const v1::Dispatch first = MakeTask(*agent, ModernCall("key"));
  Require(*agent, first, 2, Required(std::string(R"({"user":)") + kQuestion + "}", "s1"));
  loop.RunFor(absl::Seconds(1));
  Restart();
  EXPECT_EQ(Asked(), (Requests{{"ask-2-1", kQuestion}}));
  auto back = Link("boot-1", 2, "journal-1", {Finished(first, 2)});
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch)) << "it waits for its client";
  EXPECT_EQ(Asked().size(), 1u);
  EXPECT_TRUE(Answer(R"({"ask-2-1":{"a":1}})").value());
  loop.RunReady();
  const v1::Dispatch second = back->TakeDispatch();
  EXPECT_EQ(second.attempt(), 2u);
  EXPECT_NE(second.params().inline_().find(R"({"user":{"a":1}},"requestState":"s1")"),
            std::string::npos);
  back->Started(second);
  back->Result(second, 2);
  loop.RunReady();
  EXPECT_EQ(Get().phase(), v1::CALL_SUCCEEDED);
}

TEST_F(Tasks, RoundsSurviveAKillAfterTheyWereAnswered) {
  auto agent = Link();
  const v1::Dispatch first = MakeTask(*agent);
  Require(*agent, first, 2, Required(std::string(R"({"user":)") + kQuestion + "}", "s1"));
  loop.RunFor(absl::Seconds(1));
  EXPECT_TRUE(Answer(R"({"ask-2-1":{"a":1}})").value());
  loop.RunFor(absl::Seconds(1));
  Restart();
  EXPECT_EQ(Asked(), Requests());
  // The second attempt was lost on its way.
  auto back = Link("boot-1", 2, "journal-1", {Finished(first, 2)});
  v1::Dispatch second = back->TakeDispatch();
  EXPECT_EQ(second.attempt(), 2u);
  EXPECT_NE(second.params().inline_().find(R"({"user":{"a":1}})"), std::string::npos);
  back->Started(second);
  loop.RunFor(absl::Seconds(1));
  // This time it has come.
  Restart();
  back = Link("boot-1", 3, "journal-1", {FakeAgent::State(second, v1::CallState::RUNNING, 1)});
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch)) << "nothing runs twice";
  back->Result(second, 2);
  loop.RunReady();
  EXPECT_EQ(Get().phase(), v1::CALL_SUCCEEDED);
}

TEST_F(Tasks, AnswersLeaveWhenTheStoreHasThem) {
  auto agent = Link();
  const v1::Dispatch first = MakeTask(*agent);
  Require(*agent, first, 2, Required(std::string(R"({"user":)") + kQuestion + "}", "s1"));
  loop.RunFor(absl::Seconds(1));
  disk.delay = absl::Seconds(5);
  v1::SendRequest request;
  request.mutable_input()->set_call_id(call_id);
  request.mutable_input()->set_responses(R"({"ask-2-1":{}})");
  plane->Send(request, [](const absl::StatusOr<v1::SendResponse>&) {});
  loop.RunFor(absl::Seconds(4));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
  loop.RunFor(absl::Seconds(2));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kDispatch));
}

TEST_F(Tasks, BetweenRoundsTheyEndWithTheirBudgetOrACancel) {
  auto agent = Link();
  v1::Dispatch first = MakeTask(*agent);
  const std::string required = Required(std::string(R"({"user":)") + kQuestion + "}", "s1");
  Require(*agent, first, 2, required);
  loop.RunFor(absl::Minutes(15));
  EXPECT_EQ(Get().reason(), v1::RUN_BUDGET_SPENT);
  EXPECT_EQ(Get().certainty(), v1::FINISHED) << "nothing runs";
  first = MakeTask(*agent);
  Require(*agent, first, 2, required);
  loop.RunReady();
  v1::CallRef ref;
  ref.set_call_id(call_id);
  plane->CancelCall(ref, [](const absl::StatusOr<v1::Call>&) {});
  loop.RunReady();
  EXPECT_EQ(Get().phase(), v1::CALL_CANCELLED);
  EXPECT_EQ(Get().message(), "cancelled while the tool waited for its client");
  EXPECT_EQ(plane->gauges().open_executions, 0u);
}

TEST_F(Tasks, OtherCallsAreToldWhatIsRequiredAsTheBackendSaysIt) {
  auto agent = Link();
  auto caller = Invoke(ModernCall());
  const v1::Dispatch dispatch = agent->TakeDispatch();
  agent->Started(dispatch);
  const std::string required = Required(std::string(R"({"user":)") + kQuestion + "}", "s1");
  Require(*agent, dispatch, 2, required);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().body().inline_(), required);
}

}  // namespace
}  // namespace callboard::server
