// Streams of calls: when they open, what they carry, how they are resumed, back-pressure.
#include <array>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

TEST_F(FlowsTest, OpensTheStreamOnlyWhenTheCallTakesLong) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  loop.RunFor(absl::Milliseconds(249));
  EXPECT_TRUE(caller->events.empty());
  loop.RunFor(absl::Milliseconds(1));
  ASSERT_EQ(caller->events.size(), 2u);
  // First the state, for the headers of the stream.
  EXPECT_EQ(caller->events[0].status().phase(), v1::CALL_SENDING);
  EXPECT_EQ(caller->events[0].status().attempt(), 1u);
  EXPECT_EQ(caller->events[1].accepted().id().stream(), 1u);
  EXPECT_EQ(caller->events[1].accepted().id().n(), 0u);
  EXPECT_EQ(caller->events[1].accepted().id().term(), plane->term());
}

TEST_F(FlowsTest, ProgressOpensTheStreamAndCarriesTheToken) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Progress(call, 2, R"({"progress":1})");
  agent->Result(call, 3);
  loop.RunReady();
  EXPECT_EQ(caller->events[0].status().phase(), v1::CALL_WAITING);
  EXPECT_TRUE(caller->events[1].has_accepted());
  EXPECT_EQ(caller->params(), std::vector<std::string>{R"({"progress":1,"progressToken":"tok"})"});
  EXPECT_EQ(caller->outcome().id().n(), 2u);
  EXPECT_TRUE(absl::IsOutOfRange(*caller->end));
}

TEST_F(FlowsTest, TellsProgressOnlyWhereItGrows) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  uint64_t n = 1;
  for (const char* value :
       {"2", "10", "9.5", "10.0", "1e1", "9007199254740992", "9007199254740993", "\"none\""}) {
    agent->Progress(call, ++n, std::string(R"({"progress":)") + value + "}");
  }
  agent->Result(call, ++n);
  loop.RunReady();
  EXPECT_EQ(caller->params(),
            (std::vector<std::string>{R"({"progress":2,"progressToken":"tok"})",
                                      R"({"progress":10,"progressToken":"tok"})",
                                      R"({"progress":9007199254740992,"progressToken":"tok"})",
                                      R"({"progress":9007199254740993,"progressToken":"tok"})",
                                      R"({"progress":"none","progressToken":"tok"})"}));
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, TellsAQueuedCallerItsPlaceAndWhatTheSeatIsBusyWith) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Call(session));
  const v1::Dispatch running = agent->TakeDispatch();
  agent->Started(running);
  loop.RunReady();
  v1::AgentItem state;
  *state.mutable_seat_state() = FakeAgent::Seat();
  state.mutable_seat_state()->add_running(running.call_id());
  agent->Say(std::move(state));
  auto second = Invoke(Call(session, "2"));
  const v1::Dispatch waiting = agent->TakeDispatch();
  agent->Queued(waiting, 1, 2);
  loop.RunFor(absl::Milliseconds(249));
  EXPECT_TRUE(second->params().empty());  // a short wait is no news
  loop.RunFor(absl::Seconds(2));
  ASSERT_EQ(second->params().size(), 1u);
  EXPECT_THAT(second->params()[0], testing::HasSubstr(R"("progressToken":"tok","progress":-1,)"));
  EXPECT_THAT(second->params()[0], testing::HasSubstr("2 before this call"));
  EXPECT_THAT(second->params()[0], testing::HasSubstr("is busy with 'bake' for 0 s"));
  agent->Queued(waiting, 2, 0);  // moved up: told at once
  loop.RunFor(absl::Milliseconds(250));
  ASSERT_EQ(second->params().size(), 2u);
  EXPECT_THAT(second->params()[1], testing::HasSubstr(R"("progress":-0.5,)"));
  EXPECT_THAT(second->params()[1], testing::HasSubstr("next in line"));
  loop.RunFor(absl::Seconds(10));  // and every 5 s while nothing changes
  EXPECT_EQ(second->params().size(), 4u);
  const auto rows = plane->ListInstances({});
  ASSERT_EQ(rows.instances(0).running_size(), 1);
  EXPECT_EQ(rows.instances(0).running(0).tool(), "bake");
  EXPECT_GE(rows.instances(0).running(0).run_ms(), 12'000u);

  agent->Result(running, 2);
  agent->Started(waiting, 3);
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(second->params().size(), 4u);  // it runs: its own progress only
  agent->Result(waiting, 4);
  loop.RunReady();
  EXPECT_TRUE(absl::IsOutOfRange(*second->end));
}

TEST_F(FlowsTest, TellsACallerThatItsSeatsAgentIsAwayUntilItIsBack) {
  auto agent = Link();
  const std::string session = OpenSession();
  agent->Cut();
  loop.RunReady();
  auto caller = Invoke(Call(session));
  auto silent_request = Call(session, "2");
  silent_request.clear_progress_token();
  auto silent = Invoke(silent_request);
  loop.RunFor(absl::Milliseconds(300));
  ASSERT_EQ(caller->params().size(), 1u);
  EXPECT_THAT(caller->params()[0], testing::HasSubstr("waiting for the seat's agent to connect"));
  EXPECT_THAT(caller->params()[0], testing::HasSubstr(R"("progressToken":"tok","progress":-1,)"));
  loop.RunFor(absl::Seconds(10));
  EXPECT_EQ(caller->params().size(), 3u) << "and every five seconds";
  EXPECT_TRUE(silent->params().empty());
  auto back = Link("boot-1", 2);
  const v1::Dispatch call = back->TakeDispatch();
  back->Started(call);
  loop.RunFor(absl::Seconds(20));
  EXPECT_EQ(caller->params().size(), 3u);
  back->Result(call, 2);
  loop.RunReady();
  EXPECT_TRUE(absl::IsOutOfRange(*caller->end));
}

TEST_F(FlowsTest, DropsEventsOfACallThatNeverOpensAStream) {
  auto agent = Link();
  auto request = Call(OpenSession());
  request.set_never_open_stream(true);
  request.set_open_stream_after_ms(0);
  auto caller = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Progress(call, 1, R"({"progress":1})");
  loop.RunFor(absl::Seconds(1));
  agent->Result(call, 2);
  loop.RunReady();
  EXPECT_EQ(caller->events.size(), 1u);
}

TEST_F(FlowsTest, ALargeResultFlowsOnlyAsFastAsItsReader) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession()), false);
  const v1::Dispatch call = agent->TakeDispatch();
  const std::string piece(64 << 10, 'p');
  agent->BigResult(call, 1, 3 * piece.size());
  agent->Chunk(call, 1, 0, piece);
  caller->Pull();
  loop.RunReady();
  EXPECT_EQ(caller->outcome().body().size(), 3 * piece.size());
  EXPECT_FALSE(agent->Take(v1::ServerItem::kAck));
  caller->Pull();  // the first piece is handed out, but not consumed
  loop.RunReady();
  for (const auto& ack : agent->TakeAll(v1::ServerItem::kAck)) {
    EXPECT_EQ(ack.ack().entries(0).offset(), 0u);
  }
  caller->Pull();
  loop.RunReady();
  auto ack = agent->Take(v1::ServerItem::kAck);
  ASSERT_TRUE(ack);
  EXPECT_EQ(ack->ack().entries(0).n(), 0u);
  EXPECT_EQ(ack->ack().entries(0).offset(), piece.size());
  EXPECT_EQ(ack->ack().entries(0).window(), 128u << 10);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kSettle));
  caller->pulling = true;
  agent->Chunk(call, 1, piece.size(), piece);
  agent->Chunk(call, 1, 2 * piece.size(), piece);
  loop.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(caller->body().size(), 3 * piece.size());
  EXPECT_TRUE(caller->events.back().chunk().last());
  EXPECT_TRUE(agent->Take(v1::ServerItem::kSettle));
}

TEST_F(FlowsTest, ResumesAStreamAfterItsReaderIsLostWithoutGapOrDuplicate) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Progress(call, 2, R"({"progress":1})");
  loop.RunReady();
  caller->Drop();
  agent->Progress(call, 3, R"({"progress":2})");
  agent->Progress(call, 4, R"({"progress":3})");
  loop.RunReady();
  EXPECT_FALSE(agent->Take(v1::ServerItem::kCancel));
  auto listener = Listen(session, 1, 1);
  EXPECT_EQ(listener->events[0].replaying().from().n(), 1u);
  agent->Progress(call, 5, R"({"progress":4})");
  agent->Result(call, 6);
  loop.RunReady();
  EXPECT_EQ(listener->params(),
            (std::vector<std::string>{R"({"progress":2,"progressToken":"tok"})",
                                      R"({"progress":3,"progressToken":"tok"})",
                                      R"({"progress":4,"progressToken":"tok"})"}));
  EXPECT_EQ(listener->outcome().body().inline_(), R"({"ok":1})");
  EXPECT_EQ(listener->events.back().end().reason(), "finished");
  // Whoever lost the end may still come back for it.
  EXPECT_EQ(plane->gauges().streams, 1u);
  listener->Drop();
  loop.RunFor(absl::Seconds(63));
  EXPECT_EQ(plane->gauges().streams, 0u);
  EXPECT_EQ(plane->gauges().replay_bytes, 0u);
}

TEST_F(FlowsTest, AnOutcomeThatIsWholeInTheStoreIsSettledUnread) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  caller->Drop();
  agent->Result(call, 1);
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kSettle));
  EXPECT_EQ(Listen(session, 1, 0)->outcome().body().inline_(), R"({"ok":1})");
}

TEST_F(FlowsTest, NamingTheOutcomesIdSettlesACallWhoseBodyIsAtTheAgent) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  const std::string body(100'000, 'b');
  agent->BigResult(call, 1, body.size());
  agent->Chunk(call, 1, 0, body);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(caller->body(), body);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kSettle));
  auto listener = Listen(session, 1, caller->outcome().id().n());
  EXPECT_EQ(listener->events.back().end().reason(), "finished");
  loop.RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kSettle));
}

TEST_F(FlowsTest, ASecondListenTakesTheStreamOver) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  auto first = Listen(session, 1, 0);
  ASSERT_TRUE(caller->end);
  EXPECT_TRUE(absl::IsAborted(*caller->end));
  auto second = Listen(session, 1, 0);
  EXPECT_EQ(first->events.back().end().reason(), "taken_over");
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunReady();
  EXPECT_EQ(second->outcome().class_(), v1::RESULT);
}

TEST_F(FlowsTest, ALostReaderOfALargeResultGetsItFromItsBeginning) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  const std::string piece(64 << 10, 'p');
  agent->BigResult(call, 1, 2 * piece.size());
  agent->Chunk(call, 1, 0, piece);
  loop.RunReady();
  EXPECT_EQ(caller->body().size(), piece.size());
  caller->Drop();
  loop.RunReady();
  // The rest is asked for at once, as the result is kept.
  auto verdict = agent->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().have_offset(), piece.size());
  auto listener = Listen(session, 1, 0);
  verdict = agent->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CONTINUE);
  EXPECT_EQ(verdict->verdict().have_n(), 0u);
  EXPECT_EQ(verdict->verdict().have_offset(), 0u);
  EXPECT_TRUE(listener->outcomes().empty());
  agent->BigResult(call, 1, 2 * piece.size());
  agent->Chunk(call, 1, 0, piece);
  agent->Chunk(call, 1, piece.size(), piece);
  loop.RunReady();
  EXPECT_EQ(listener->outcome().body().size(), 2 * piece.size());
  EXPECT_EQ(listener->body().size(), 2 * piece.size());
  EXPECT_EQ(listener->events.back().end().reason(), "finished");
}

TEST_F(FlowsTest, TellsHowManyEventsAreNoLongerKept) {
  config.limits.replay_events_max = 2;
  config.limits.replay_disk_bytes_max = 300;  // room for one
  Restart();
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Progress(call, 1, R"({"progress":1})");
  loop.RunReady();
  caller->Drop();
  for (uint64_t n = 2; n <= 5; ++n) {
    agent->Progress(call, n, R"({"progress":)" + std::to_string(n) + "}");
  }
  loop.RunReady();
  auto listener = Listen(session, 1, 1);
  ASSERT_TRUE(listener->events[1].has_gap());
  EXPECT_EQ(listener->events[1].gap().lost(), 2u);
  EXPECT_EQ(listener->params().size(), 2u);
}

TEST_F(FlowsTest, UnknownStreamsAreNotFound) {
  auto listener = Listen(OpenSession(), 42);
  ASSERT_TRUE(listener->end);
  EXPECT_TRUE(absl::IsNotFound(*listener->end));
}

v1::SendRequest Accepting(const std::string& session, const v1::InvokeEvent& event) {
  v1::SendRequest send;
  send.set_session_id(session);
  send.mutable_answer()->set_ask_id(event.ask().ask_id());
  send.mutable_answer()->set_result(R"({"action":"accept"})");
  return send;
}

constexpr char kAsked[] = R"({"elicitation":{}})";

TEST_F(FlowsTest, AnswerGivenWhileTheLinkIsCutReachesTheAgentAfterwards) {
  auto agent = Link();
  const std::string session = OpenSession("facade", kAsked);
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Ask(call, 1);
  loop.RunReady();
  const v1::SendRequest send = Accepting(session, caller->events.back());
  agent->Cut();
  loop.RunReady();
  EXPECT_TRUE(Send(send));
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 1)});
  auto answer = back->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answer().ask_n(), 1u);
  EXPECT_EQ(answer->answer().result().inline_(), R"({"action":"accept"})");
}

TEST_F(FlowsTest, ClientThatCannotBeAskedIsNotAsked) {
  auto agent = Link();
  auto caller = Invoke(Call(OpenSession("facade", R"({"sampling":{}})")));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Ask(call, 1);
  loop.RunReady();
  auto answer = agent->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->answer().error().inline_().find("does not offer 'elicitation/create'"),
            std::string::npos);
  for (const v1::InvokeEvent& event : caller->events) EXPECT_FALSE(event.has_ask());
}

TEST_F(FlowsTest, ClientIsNotAskedForWhatItDoesNotOfferOfACapability) {
  auto agent = Link();
  const std::vector<std::array<std::string, 4>> cases = {
      {R"({"elicitation":{}})", "elicitation/create", R"({"mode":"url"})", "elicitation.url"},
      {R"({"elicitation":{"form":{}}})", "elicitation/create", R"({"mode":"url"})",
       "elicitation.url"},
      {R"({"elicitation":{"url":{}}})", "elicitation/create", R"({"mode":"form"})",
       "elicitation.form"},
      {R"({"elicitation":{"url":{}}})", "elicitation/create", "{}", "elicitation.form"},
      {R"({"sampling":{}})", "sampling/createMessage", R"({"tools":[]})", "sampling.tools"},
      {R"({"sampling":{"context":{}}})", "sampling/createMessage", R"({"toolChoice":{}})",
       "sampling.tools"},
      {R"({"elicitation":{}})", "elicitation/create", R"({"mode":"form"})", ""},
      {R"({"elicitation":{"form":{},"url":{}}})", "elicitation/create", R"({"mode":"url"})", ""},
      {R"({"sampling":{"tools":{}}})", "sampling/createMessage", R"({"tools":[]})", ""},
      {R"({"roots":{}})", "roots/list", "", ""}};
  for (const auto& [capabilities, method, params, lacks] : cases) {
    auto caller = Invoke(Call(OpenSession("facade", capabilities)));
    const v1::Dispatch call = agent->TakeDispatch();
    agent->Ask(call, 1, method, params);
    loop.RunReady();
    const auto answer = agent->Take(v1::ServerItem::kAnswer);
    EXPECT_EQ(answer.has_value(), !lacks.empty()) << capabilities << params;
    EXPECT_EQ(!caller->events.empty() && caller->events.back().has_ask(), lacks.empty());
    if (!answer) continue;
    EXPECT_EQ(answer->answer().error().inline_(),
              R"({"code":-32602,"message":"the client does not offer ')" + lacks + R"('"})");
  }
}

TEST_F(FlowsTest, ClientThatDoesNotIncludeContextIsAskedWithoutThatWish) {
  auto agent = Link();
  const std::string params = R"({"includeContext":"thisServer","maxTokens":5.0})";
  const auto asked = [&](const std::string& capabilities) {
    auto caller = Invoke(Call(OpenSession("facade", capabilities)));
    agent->Ask(agent->TakeDispatch(), 1, "sampling/createMessage", params);
    loop.RunReady();
    return caller->events.back().ask().params();
  };
  EXPECT_EQ(asked(R"({"sampling":{}})"), R"({"maxTokens":5.0})");
  EXPECT_EQ(asked(R"({"sampling":{"context":{}}})"), params);
}

TEST_F(FlowsTest, OnlyAClientThatCanBeAskedHasASessionOfItsOwnAtTheBackend) {
  auto agent = Link();
  const std::string session = OpenSession("facade", kAsked);
  auto asked = Invoke(Call(session));
  EXPECT_EQ(agent->TakeDispatch().backend_session(), session);
  auto plain = Invoke(Call(OpenSession()));
  EXPECT_EQ(agent->TakeDispatch().backend_session(), "");
}

TEST_F(FlowsTest, AsksReachTheReaderAndTheAnswerReachesTheAgentOnce) {
  auto agent = Link();
  const std::string session = OpenSession("facade", kAsked);
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Ask(call, 1);
  loop.RunReady();
  ASSERT_TRUE(caller->events.back().has_ask());
  const v1::SendRequest send = Accepting(session, caller->events.back());
  EXPECT_TRUE(Send(send));
  EXPECT_FALSE(Send(send));
  loop.RunReady();
  auto answer = agent->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answer().ask_n(), 1u);
  EXPECT_EQ(answer->answer().result().inline_(), R"({"action":"accept"})");
}

// A call that is answered as one JSON document, for a client that can be asked.
class AskedElsewhere : public FlowsTest {
 protected:
  AskedElsewhere() : agent(Link()), session(OpenSession("facade", kAsked)) {}

  // Its backend asks by its second event.
  void CallAndAsk() {
    auto request = Call(session);
    request.set_never_open_stream(true);
    request.set_run_ms(600'000);
    caller = Invoke(request);
    call = agent->TakeDispatch();
    agent->Started(call);
    agent->Ask(call, 2);
    loop.RunReady();
  }
  v1::SendRequest Answering(const Listener& listener) const {
    v1::InvokeEvent event;
    *event.mutable_ask() = listener.events.back().ask();
    return Accepting(session, event);
  }
  std::string Error() {
    const auto answer = agent->Take(v1::ServerItem::kAnswer);
    return answer ? answer->answer().error().inline_() : "";
  }

  std::unique_ptr<FakeAgent> agent;
  std::string session;
  std::unique_ptr<Caller> caller;
  v1::Dispatch call;
};

TEST_F(AskedElsewhere, TheClientIsAskedOnTheSessionsOwnStream) {
  auto own = Listen(session, 0);
  auto other = Listen(OpenSession("facade", kAsked), 0);
  CallAndAsk();
  ASSERT_TRUE(own->events.back().has_ask());
  EXPECT_EQ(own->events.back().ask().id().stream(), 0u);
  EXPECT_FALSE(other->events.back().has_ask());
  EXPECT_TRUE(Send(Answering(*own)));
  const auto answer = agent->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answer().ask_n(), 2u);
  EXPECT_EQ(answer->answer().result().inline_(), R"({"action":"accept"})");
  agent->Result(call, 3);
  loop.RunReady();
  EXPECT_EQ(caller->events.size(), 1u);
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
}

TEST_F(AskedElsewhere, WithoutOneTheBackendIsToldAtOnce) {
  CallAndAsk();
  EXPECT_NE(Error().find("cannot be asked"), std::string::npos);
}

TEST_F(AskedElsewhere, AClientThatLeavesItsOwnStreamIsAwaitedThroughItsGrace) {
  auto own = Listen(session, 0);
  CallAndAsk();
  own->Drop();
  loop.RunFor(absl::Seconds(59));
  EXPECT_EQ(Error(), "");
  loop.RunFor(absl::Seconds(2));
  EXPECT_NE(Error().find("the client is gone"), std::string::npos);
}

TEST_F(AskedElsewhere, AnAskThatIsTakenBackIsTakenBackThere) {
  auto own = Listen(session, 0);
  CallAndAsk();
  const std::string ask_id = own->events.back().ask().ask_id();
  v1::AgentItem back = FakeAgent::Event(call, 3);
  v1::MethodEvent& event = *back.mutable_call_event()->mutable_notification();
  event.set_method("notifications/cancelled");
  event.set_ask_n(2);
  event.mutable_params()->set_inline_("{}");
  agent->Say(std::move(back));
  loop.RunReady();
  EXPECT_EQ(own->params(), std::vector<std::string>{R"({"requestId":")" + ask_id + "\"}"});
}

TEST_F(AskedElsewhere, TheAskOutlivesTheControlPlane) {
  auto own = Listen(session, 0);
  CallAndAsk();
  loop.RunFor(absl::Seconds(1));
  const v1::SendRequest answer = Answering(*own);
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 2)});
  own = ListenAfter(session, own->events.back().ask().id());
  const auto asked = [&] {
    back->Ask(call, 2);
    loop.RunReady();
    return own->events.back().has_ask();
  };
  EXPECT_FALSE(asked()) << "it has been asked by the former one";
  EXPECT_TRUE(Send(answer));
  const auto said = back->Take(v1::ServerItem::kAnswer);
  ASSERT_TRUE(said);
  EXPECT_EQ(said->answer().result().inline_(), R"({"action":"accept"})");
  EXPECT_FALSE(asked()) << "and has answered";
}

// One who asks for as long as the test likes, and who can be asked.
class Asked : public FlowsTest {
 protected:
  Asked() : agent(Link()), session(OpenSession("facade", kAsked)) {
    auto request = Call(session);
    request.set_open_stream_after_ms(0);
    request.set_run_ms(600'000);
    caller = Invoke(request);
    call = agent->TakeDispatch();
    agent->Started(call);
    loop.RunReady();
  }
  void Ask(uint64_t n) {
    agent->Ask(call, n);
    loop.RunReady();
  }
  // What the agent is answered; empty: nothing.
  std::string Answered() {
    const auto answer = agent->Take(v1::ServerItem::kAnswer);
    if (!answer) return "";
    return answer->answer().has_error() ? answer->answer().error().inline_()
                                        : answer->answer().result().inline_();
  }

  std::unique_ptr<FakeAgent> agent;
  std::string session;
  std::unique_ptr<Caller> caller;
  v1::Dispatch call;
};

TEST_F(Asked, AnAskWaitsForItsClientThroughACutAsLongAsTheGrace) {
  Ask(2);
  const v1::SendRequest send = Accepting(session, caller->events.back());
  caller->Drop();
  loop.RunFor(absl::Seconds(50));
  EXPECT_EQ(Answered(), "");
  auto back = Listen(session, 1, 0);
  loop.RunFor(absl::Seconds(100));
  EXPECT_EQ(Answered(), "") << "it is here and thinks";
  EXPECT_TRUE(Send(send));
  EXPECT_EQ(Answered(), R"({"action":"accept"})");
}

TEST_F(Asked, OfAClientThatIsAwayForAMomentTheAskIsReplayed) {
  caller->Drop();
  loop.RunFor(absl::Seconds(5));
  Ask(2);
  EXPECT_EQ(Answered(), "");
  auto back = Listen(session, 1, 0);
  bool asked = false;
  for (const v1::ListenEvent& event : back->events) asked |= event.has_ask();
  EXPECT_TRUE(asked);
}

TEST_F(Asked, AnAskWhoseClientDoesNotComeBackEndsWithAnErrorAndLaterOnesAtOnce) {
  Ask(2);
  caller->Drop();
  loop.RunFor(absl::Seconds(59));
  EXPECT_EQ(Answered(), "");
  EXPECT_EQ(plane->gauges().open_asks, 1u);
  loop.RunFor(absl::Seconds(2));
  EXPECT_NE(Answered().find("the client is gone"), std::string::npos);
  EXPECT_EQ(plane->gauges().open_asks, 0u);
  Ask(3);
  EXPECT_NE(Answered().find("cannot be asked"), std::string::npos);
  // It is back after all, and so it is with whoever reads by Listen.
  auto back = Listen(session, 1, 0);
  Ask(4);
  EXPECT_EQ(Answered(), "");
  back->Drop();
  loop.RunFor(absl::Seconds(61));
  EXPECT_NE(Answered().find("the client is gone"), std::string::npos);
}

TEST_F(Asked, AfterARestartAnAskWaitsForItsClientAsLong) {
  Ask(2);
  Restart();
  agent = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 2)});
  loop.RunFor(absl::Seconds(59));
  EXPECT_EQ(Answered(), "");
  loop.RunFor(absl::Seconds(2));
  EXPECT_NE(Answered().find("the client is gone"), std::string::npos);
}

v1::AgentItem TakenBack(const v1::Dispatch& call, uint64_t n) {
  v1::AgentItem item = FakeAgent::Event(call, n);
  v1::MethodEvent& cancelled = *item.mutable_call_event()->mutable_notification();
  cancelled.set_method("notifications/cancelled");
  cancelled.set_ask_n(1);
  cancelled.mutable_params()->set_inline_(R"({"reason":"late"})");
  return item;
}

TEST_F(FlowsTest, AskThatTheBackendTakesBackIsCancelledAtTheClientOnce) {
  auto agent = Link();
  const std::string session = OpenSession("facade", kAsked);
  auto caller = Invoke(Call(session));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Ask(call, 1);
  loop.RunReady();
  const v1::SendRequest send = Accepting(session, caller->events.back());
  const std::string ask_id = caller->events.back().ask().ask_id();
  agent->Say(TakenBack(call, 2));
  loop.RunReady();
  const v1::StreamEvent told = caller->events.back().stream_event();
  EXPECT_EQ(told.method(), "notifications/cancelled");
  EXPECT_EQ(told.params(), R"({"reason":"late","requestId":")" + ask_id + "\"}");
  EXPECT_FALSE(Send(send)) << "nobody waits for an answer";
  const size_t events = caller->events.size();
  agent->Say(TakenBack(call, 3));
  loop.RunReady();
  EXPECT_EQ(caller->events.size(), events);
}

}  // namespace
}  // namespace callboard::server
