// Calls on a sound link: dispatch, results, budgets, cancels, refusals.
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

TEST_F(FlowsTest, CarriesACallAndSettlesItWhenTheResultIsTaken) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_EQ(call.method(), "tools/call");
  EXPECT_EQ(call.lane(), v1::MAIN);
  EXPECT_EQ(call.run_ms(), 120'000u);
  EXPECT_TRUE(call.wants_progress());
  EXPECT_EQ(call.fair_key(), "anna");
  agent->Started(call);
  agent->Result(call, 2);
  loop.RunFor(absl::Milliseconds(100));
  ASSERT_EQ(caller->events.size(), 1u);
  EXPECT_EQ(caller->outcome().body().inline_(), R"({"ok":1})");
  EXPECT_EQ(caller->outcome().client_request_id(), "1");
  EXPECT_TRUE(absl::IsOutOfRange(*caller->end));
  auto settle = agent->Take(v1::ServerItem::kSettle);
  ASSERT_TRUE(settle);
  EXPECT_EQ(settle->settle().call_id(0), call.call_id());
  EXPECT_EQ(plane->gauges().open_executions, 0u);
  EXPECT_EQ(plane->gauges().requests, 0u);
}

TEST_F(FlowsTest, PicksTheRunBudgetFromCallerToolAndClass) {
  auto agent = Link();
  GiveList(*agent, "d1");
  const std::string session = OpenSession();
  auto quick = Invoke(Call(session, "1", "look"));
  EXPECT_EQ(agent->TakeDispatch().run_ms(), 30'000u);
  auto wish = Call(session, "2");
  wish.set_params(R"({"name":"bake","_meta":{"dcc":{"timeout_ms":7000}}})");
  auto by_meta = Invoke(wish);
  EXPECT_EQ(agent->TakeDispatch().run_ms(), 7'000u);
  wish.set_client_request_id("3");
  wish.set_run_ms(5'000);
  auto by_caller = Invoke(wish);
  EXPECT_EQ(agent->TakeDispatch().run_ms(), 5'000u);
}

TEST_F(FlowsTest, RefusesArgumentsThatViolateTheSchemaBeforeAnythingIsSent) {
  auto agent = Link();
  GiveList(*agent, "d1");
  auto request = Call(OpenSession());
  request.set_params(R"({"name":"bake","arguments":{"frames":"many"}})");
  auto caller = Invoke(request);
  EXPECT_EQ(caller->outcome().reason(), v1::PARAMS_INVALID);
  EXPECT_EQ(caller->outcome().certainty(), v1::NOT_STARTED);
  EXPECT_NE(caller->outcome().message().find("frames"), std::string::npos);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
}

TEST_F(FlowsTest, RefusesUnknownSeatsAndNamesTheSessionThatIsUnknown) {
  auto request = Call(OpenSession());
  EXPECT_EQ(Invoke(request)->outcome().reason(), v1::SEAT_UNKNOWN);
  request.set_session_id("nobody");
  auto caller = Invoke(request);
  ASSERT_TRUE(caller->end);
  EXPECT_EQ(caller->end->code(), absl::StatusCode::kNotFound);
}

TEST_F(FlowsTest, RefusesARequestIdThatIsInUse) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Call(session, "7"));
  EXPECT_EQ(Invoke(Call(session, "7"))->outcome().reason(), v1::PARAMS_INVALID);
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunReady();
  auto again = Invoke(Call(session, "7"));
  EXPECT_TRUE(again->events.empty());
}

TEST_F(FlowsTest, HoldsTheCallsOfASessionWithinItsLimit) {
  config.limits.calls_per_session_max = 2;
  Restart();
  auto agent = Link();
  const std::string session = OpenSession();
  auto a = Invoke(Call(session, "1"));
  auto b = Invoke(Call(session, "2"));
  EXPECT_EQ(Invoke(Call(session, "3"))->outcome().reason(), v1::QUEUE_FULL);
}

TEST_F(FlowsTest, SendsLargeParamsInChunksWithinTheWindow) {
  auto agent = Link();
  auto request = Call(OpenSession());
  const std::string text(200 << 10, 'x');
  request.set_params(R"({"name":"bake","arguments":{"text":")" + text + R"("}})");
  const std::string params = request.params();
  auto caller = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_EQ(call.params().size(), params.size());
  std::string got;
  for (int turn = 0; turn < 10 && got.size() < params.size(); ++turn) {
    size_t fresh = 0;
    for (const auto& item : agent->TakeAll(v1::ServerItem::kChunk)) {
      EXPECT_EQ(item.chunk().offset(), got.size());
      got += item.chunk().bytes();
      fresh += item.chunk().bytes().size();
    }
    EXPECT_LE(fresh, 64u << 10);
    v1::AgentItem ack;
    v1::AckEntry& entry = *ack.mutable_ack()->add_entries();
    entry.set_call_id(call.call_id());
    entry.set_attempt(1);
    entry.set_offset(got.size());
    agent->Say(std::move(ack));
    loop.RunReady();
  }
  EXPECT_EQ(got, params);
}

TEST_F(FlowsTest, TellsACancelledRunningCallAtOnceAndKeepsTheLateResultForTheReceipt) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  loop.RunReady();
  EXPECT_TRUE(CancelRequest(session, "1"));
  EXPECT_EQ(caller->outcome().class_(), v1::CANCELLED);
  EXPECT_EQ(caller->outcome().certainty(), v1::RUNNING);
  auto cancel = agent->Take(v1::ServerItem::kCancel);
  ASSERT_TRUE(cancel);
  EXPECT_EQ(cancel->cancel().reason(), v1::Cancel::CLIENT);
  agent->Result(call, 2);
  loop.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(caller->outcomes().size(), 1u);
  v1::CallRef ref;
  ref.set_call_id(call.call_id());
  auto receipt = GetCall(ref);
  ASSERT_TRUE(receipt.ok());
  EXPECT_EQ(receipt->phase(), v1::CALL_CANCELLED);
  EXPECT_EQ(receipt->certainty(), v1::FINISHED);
  EXPECT_TRUE(receipt->settled());
  EXPECT_TRUE(agent->Take(v1::ServerItem::kSettle));
}

TEST_F(FlowsTest, TheLateResultOfACallWhoseBudgetWasOverCanBeFetched) {
  auto agent = Link();
  const std::string session = OpenSession();
  // One that is known when its result comes, and one of which only the receipt is left.
  for (const bool told_by_agent : {false, true}) {
    auto request = Call(session, told_by_agent ? "2" : "1");
    request.set_run_ms(1'000);
    auto caller = Invoke(request);
    const v1::Dispatch call = agent->TakeDispatch();
    agent->Started(call);
    if (told_by_agent) {
      agent->Finish(call, 2, v1::EXPIRED, v1::RUN_BUDGET_SPENT, v1::RUNNING);
      loop.RunReady();
    }
    loop.RunFor(absl::Seconds(3));
    EXPECT_EQ(caller->outcome().class_(), v1::EXPIRED);
    caller->Drop();
    loop.RunReady();
    agent->Result(call, told_by_agent ? 3 : 2, R"({"late":"result"})");
    loop.RunFor(absl::Milliseconds(100));
    v1::CallRef ref;
    ref.set_call_id(call.call_id());
    ref.set_with_outcome(true);
    for (int again = 0; again < 2; ++again) {
      const auto receipt = GetCall(ref);
      ASSERT_TRUE(receipt.ok());
      EXPECT_EQ(receipt->phase(), v1::CALL_TIMED_OUT);
      EXPECT_EQ(receipt->certainty(), v1::FINISHED);
      EXPECT_TRUE(receipt->outcome().late());
      EXPECT_EQ(receipt->outcome().class_(), v1::RESULT);
      EXPECT_EQ(receipt->outcome().body().inline_(), R"({"late":"result"})");
      if (again == 0) {
        Restart();
        agent = Link("boot-1", told_by_agent ? 3 : 2);
      }
    }
  }
}

TEST_F(FlowsTest, CancelsAQueuedCallOnceTheAgentHasDroppedIt) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Queued(call, 1, 3);
  loop.RunReady();
  EXPECT_TRUE(CancelRequest(session, "1"));
  ASSERT_TRUE(agent->Take(v1::ServerItem::kCancel));
  v1::AgentItem ack;
  ack.mutable_cancel_ack()->set_call_id(call.call_id());
  ack.mutable_cancel_ack()->set_effect(v1::CancelAck::DROPPED);
  agent->Say(std::move(ack));
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::CANCELLED);
  EXPECT_EQ(caller->outcome().certainty(), v1::NOT_STARTED);
}

TEST_F(FlowsTest, ACancelThatOvertakesItsCallIsKeptForIt) {
  auto agent = Link();
  const std::string session = OpenSession();
  EXPECT_FALSE(CancelRequest(session, "1"));
  loop.RunFor(absl::Seconds(1));
  auto of_another = Invoke(Call(OpenSession(), "1"));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kDispatch));
  auto caller = Invoke(Call(session, "1"));
  EXPECT_EQ(caller->outcome().class_(), v1::CANCELLED);
  EXPECT_EQ(caller->outcome().reason(), v1::CANCELLED_BY_CLIENT);
  EXPECT_EQ(caller->outcome().certainty(), v1::NOT_STARTED);
  EXPECT_EQ(caller->outcome().client_request_id(), "1");
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
  // It counts once, and not for ever.
  auto again = Invoke(Call(session, "1"));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kDispatch));
  EXPECT_FALSE(CancelRequest(session, "2"));
  loop.RunFor(absl::Seconds(3));
  auto later = Invoke(Call(session, "2"));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kDispatch));
}

TEST_F(FlowsTest, ACancelOfACallThatHasEndedIsNotHeldAgainstTheNextOfItsId) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session, "1"));
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunReady();
  EXPECT_FALSE(CancelRequest(session, "1"));
  auto next = Invoke(Call(session, "1"));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kDispatch));
}

TEST_F(FlowsTest, CancelWithoutAnAnswerOfTheAgentEndsWithinASecondAsUnknown) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session));
  CancelRequest(session, "1");
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(caller->outcome().class_(), v1::CANCELLED);
  EXPECT_EQ(caller->outcome().certainty(), v1::UNKNOWN);
}

TEST_F(FlowsTest, WhoIsAcceptedIsToldHowLongTheCallMayTake) {
  auto agent = Link();
  auto request = Call(OpenSession());
  request.set_queue_ms(20'000);
  request.set_run_ms(10'000);
  auto caller = Invoke(request);
  loop.RunFor(absl::Milliseconds(250));
  ASSERT_TRUE(caller->accepted());
  EXPECT_EQ(caller->accepted()->hard_ms(), 39'750u);
  EXPECT_EQ(caller->accepted()->long_run_ms(), 0u);
  request.set_client_request_id("2");
  request.set_run_ms(200'000);
  auto longer = Invoke(request);
  loop.RunFor(absl::Milliseconds(250));
  ASSERT_TRUE(longer->accepted());
  EXPECT_EQ(longer->accepted()->long_run_ms(), 200'000u);
}

TEST_F(FlowsTest, StatesAreToldOnceASecondTheNewestOfEach) {
  auto agent = Link();
  auto caller = Streamed(OpenSession());
  const auto told = [&caller] {
    std::vector<v1::CallStatus> statuses;
    for (const v1::InvokeEvent& event : caller->events) {
      if (event.has_status()) statuses.push_back(event.status());
    }
    return statuses;
  };
  const v1::Dispatch call = agent->TakeDispatch();
  const size_t at_first = told().size();
  loop.RunFor(absl::Milliseconds(900));
  agent->Queued(call, 1, 2);
  loop.RunFor(absl::Milliseconds(50));
  agent->Queued(call, 2, 1);
  loop.RunFor(absl::Milliseconds(49));
  EXPECT_EQ(told().size(), at_first);
  loop.RunFor(absl::Milliseconds(1));
  ASSERT_EQ(told().size(), at_first + 1);
  EXPECT_EQ(told().back().ahead(), 1u);
  agent->Started(call, 3);
  loop.RunFor(absl::Milliseconds(999));
  EXPECT_EQ(told().size(), at_first + 1);
  loop.RunFor(absl::Milliseconds(1));
  ASSERT_EQ(told().size(), at_first + 2);
  EXPECT_EQ(told().back().phase(), v1::CALL_WAITING);
}

TEST_F(FlowsTest, WhoWantsNoStreamIsToldHowLongTheCallMayTakeToo) {
  auto agent = Link();
  auto request = Call(OpenSession());
  request.set_queue_ms(20'000);
  request.set_run_ms(200'000);
  request.set_open_stream_after_ms(5'000);
  request.set_never_open_stream(true);
  auto caller = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Progress(call, 2, R"({"progress":1})");
  loop.RunFor(absl::Milliseconds(4'999));
  EXPECT_TRUE(caller->events.empty());
  loop.RunFor(absl::Milliseconds(1));
  ASSERT_TRUE(caller->accepted());
  EXPECT_EQ(caller->accepted()->call_id(), call.call_id());
  EXPECT_FALSE(caller->accepted()->has_id());
  EXPECT_EQ(caller->accepted()->hard_ms(), 225'000u);
  agent->Result(call, 3);
  loop.RunReady();
  EXPECT_EQ(caller->events.size(), 2u);
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, ACallerThatVanishesCancelsItsCallWhenItSaidSo) {
  auto agent = Link();
  auto request = Call(OpenSession());
  request.set_on_detach(v1::InvokeRequest::CANCEL);
  auto caller = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  loop.RunReady();
  caller->Drop();
  loop.RunReady();
  EXPECT_TRUE(agent->Take(v1::ServerItem::kCancel));
  EXPECT_EQ(plane->gauges().open_executions, 0u);
}

TEST_F(FlowsTest, EndsARunningCallWithinItsBudgetAndASecondWhenTheAgentIsFrozen) {
  auto agent = Link();
  auto request = Call(OpenSession());
  request.set_run_ms(5'000);
  auto caller = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  loop.RunFor(absl::Milliseconds(6'000));
  EXPECT_EQ(caller->outcome().reason(), v1::RUN_BUDGET_SPENT);
  EXPECT_EQ(caller->outcome().certainty(), v1::RUNNING);
  auto cancel = agent->Take(v1::ServerItem::kCancel);
  ASSERT_TRUE(cancel);
  EXPECT_EQ(cancel->cancel().reason(), v1::Cancel::DEADLINE);
}

TEST_F(FlowsTest, EndsACallWhoseLinkIsDeadWithinItsBudgetAndASecond) {
  auto agent = Link();
  auto request = Call(OpenSession());
  request.set_run_ms(5'000);
  auto caller = Invoke(request);
  agent->TakeDispatch();
  agent->Cut();
  loop.RunFor(absl::Milliseconds(6'000));
  EXPECT_EQ(caller->outcome().reason(), v1::RUN_BUDGET_SPENT);
  EXPECT_EQ(caller->outcome().certainty(), v1::UNKNOWN);
  EXPECT_NE(caller->outcome().diagnostics().find(R"("linked":false)"), std::string::npos);
}

TEST_F(FlowsTest, WaitCallAnswersWhenTheCallEnds) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  v1::CallRef ref;
  ref.set_call_id(call.call_id());
  ref.set_wait_ms(10'000);
  std::optional<v1::Call> waited;
  plane->WaitCall(ref, [&](absl::StatusOr<v1::Call> answer) { waited = *std::move(answer); });
  agent->Result(call, 1);
  loop.RunReady();
  ASSERT_TRUE(waited);
  EXPECT_EQ(waited->phase(), v1::CALL_SUCCEEDED);
  EXPECT_EQ(plane->ListCalls({}).calls_size(), 1);
}

}  // namespace
}  // namespace callboard::server
