// Tests of calls: plain answers, streams, big bodies, errors, cancel, budgets.
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

constexpr char kTraceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

class Calls : public BridgeTest {
 protected:
  // A call on /mcp/{instance}; its answer, not yet there.
  Answer Call(std::string id = "1", std::string params = R"({"name":"bake"})",
              net::HeaderList extra = {}) {
    if (session_.empty()) {
      plane_.instances = {Row("maya-1", "aabbccdd00")};
      session_ = Open(revision_, "/mcp/maya-1");
    }
    extra.emplace_back("Mcp-Session-Id", session_);
    return Post(
        R"({"jsonrpc":"2.0","id":)" + id + R"(,"method":"tools/call","params":)" + params + "}",
        std::move(extra), "/mcp/maya-1");
  }
  void Push(v1::InvokeEvent event) {
    plane_.invokes.back().script->Push(std::move(event));
    loop_.RunReady();
  }
  static v1::InvokeEvent Progress(uint64_t stream, uint64_t n) {
    v1::InvokeEvent event;
    *event.mutable_stream_event()->mutable_id() = Id(stream, 7, n);
    event.mutable_stream_event()->set_method("notifications/progress");
    event.mutable_stream_event()->set_params(R"({"progress":1})");
    return event;
  }

  std::string session_;
  std::string revision_ = "2025-11-25";
};

TEST_F(Calls, EchoIdsOfEveryKindByteForByte) {
  for (const std::string id : {"1", "-7", "9007199254740993", R"("a\u0062\"c")", R"("")"}) {
    plane_.next_events = {Result(R"({"content":[]})")};
    const Answer answer = Call(id);
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->Header("Content-Type"), "application/json");
    EXPECT_EQ(answer->body, R"({"jsonrpc":"2.0","id":)" + id + R"(,"result":{"content":[]}})");
    EXPECT_EQ(plane_.invokes.back().request.client_request_id(), id);
  }
}

TEST_F(Calls, CarryParamsTokensAndHeadersUnchanged) {
  const std::string params =
      R"({"name":"bake","_meta":{"progressToken":12345678901234567890,"dcc":{"timeout_ms":5000},"callboard/idempotency-key":"k"},"arguments":{"n":9007199254740993,"x":1.10,"b":1,"a":2}})";
  Call("1", params, {{"traceparent", kTraceparent}, {"tracestate", "v=1"}, {"baggage", "show=a"}});
  const v1::InvokeRequest& request = plane_.invokes.back().request;
  EXPECT_EQ(request.params(), params);
  EXPECT_EQ(request.progress_token(), "12345678901234567890");
  EXPECT_EQ(request.run_ms(), 5000u);
  EXPECT_EQ(request.idempotency_key(), "k");
  EXPECT_EQ(request.traceparent(), kTraceparent);
  EXPECT_EQ(request.tracestate(), "v=1");
  EXPECT_EQ(request.baggage(), "show=a");
  EXPECT_EQ(request.target().seat_id(), "aabbccdd00");
  EXPECT_EQ(request.method(), "tools/call");
  EXPECT_EQ(request.session_id(), session_);
  EXPECT_EQ(request.open_stream_after_ms(), 250u);
  EXPECT_EQ(request.on_detach(), v1::InvokeRequest::KEEP);
  EXPECT_FALSE(request.never_open_stream());
  Call("2", R"({"name":"bake","_meta":{"progressToken":"12"}})");
  EXPECT_EQ(plane_.invokes.back().request.progress_token(), "\"12\"");
}

TEST_F(Calls, DropATraceThatIsNoneAndTakeTheOneOfMetaWithoutAHeader) {
  Call("1", R"({"name":"bake"})",
       {{"traceparent", "00-1-2-01"}, {"tracestate", "v=1"}, {"baggage", "show=a"}});
  EXPECT_EQ(plane_.invokes.back().request.traceparent(), "");
  EXPECT_EQ(plane_.invokes.back().request.tracestate(), "");
  EXPECT_EQ(plane_.invokes.back().request.baggage(), "show=a");
  const std::string own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
  const std::string params = R"({"name":"bake","_meta":{"traceparent":")" + own + R"("}})";
  Call("2", params);
  EXPECT_EQ(plane_.invokes.back().request.traceparent(), own);
  EXPECT_EQ(plane_.invokes.back().request.params(), params);
  Call("3", params, {{"traceparent", kTraceparent}});
  EXPECT_EQ(plane_.invokes.back().request.traceparent(), kTraceparent);
  Call("4", R"({"name":"bake","_meta":{"traceparent":"nonsense"}})");
  EXPECT_EQ(plane_.invokes.back().request.traceparent(), "");
}

TEST_F(Calls, MakeOneLineOfIndentedParams) {
  Call("1", "{\n  \"name\": \"bake\"\r\n}");
  EXPECT_EQ(plane_.invokes.back().request.params(), R"({   "name": "bake"  })");
}

TEST_F(Calls, OpenAStreamThatIsPrimed) {
  const Answer answer = Call();
  EXPECT_EQ(answer->status, 0);
  Push(Accepted(5));
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->Header("Content-Type"), "text/event-stream");
  EXPECT_EQ(answer->Header("Cache-Control"), "no-cache, no-transform");
  EXPECT_EQ(answer->Header("X-Accel-Buffering"), "no");
  EXPECT_EQ(answer->body, "id: 5.7.1\nretry: 3000\ndata: \n\n");
  answer->body.clear();
  Push(Progress(5, 2));
  EXPECT_EQ(answer->body,
            "event: message\nid: 5.7.2\n"
            R"(data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}})"
            "\n\n");
  answer->body.clear();
  v1::InvokeEvent result = Result("{\n}");
  *result.mutable_outcome()->mutable_id() = Id(5, 7, 3);
  Push(result);
  EXPECT_EQ(answer->body,
            "event: message\nid: 5.7.3\n"
            R"(data: {"jsonrpc":"2.0","id":1,"result":{ }})"
            "\n\n");
  EXPECT_TRUE(answer->ended);
  EXPECT_FALSE(answer->closed);
  EXPECT_EQ(bridge_->gauges().streams.open, 0u);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Calls, DoNotPrimeOlderClients) {
  revision_ = "2025-06-18";
  const Answer answer = Call();
  Push(Accepted(5));
  EXPECT_EQ(answer->body, ": accepted\n\n");
}

TEST_F(Calls, AskTheClientUnderOurIds) {
  const Answer answer = Call();
  Push(Accepted(5));
  answer->body.clear();
  v1::InvokeEvent ask;
  *ask.mutable_ask()->mutable_id() = Id(5, 7, 2);
  ask.mutable_ask()->set_ask_id("q9");
  ask.mutable_ask()->set_method("roots/list");
  Push(ask);
  EXPECT_EQ(answer->body,
            "event: message\nid: 5.7.2\n"
            R"(data: {"jsonrpc":"2.0","id":"ask-q9","method":"roots/list"})"
            "\n\n");
}

TEST_F(Calls, NeverStreamToClientsThatRefuseEvents) {
  Call();
  Send("POST", "/mcp/maya-1",
       {{"Content-Type", "application/json"},
        {"Accept", "application/json"},
        {"Mcp-Session-Id", session_}},
       R"({"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}})");
  EXPECT_TRUE(plane_.invokes.back().request.never_open_stream());
}

TEST_F(Calls, StreamBigBodiesNoFasterThanTheyAreTaken) {
  const Answer answer = Call();
  answer->stalled = true;
  Push(Big(9));
  EXPECT_EQ(answer->content_length,
            std::string(R"({"jsonrpc":"2.0","id":1,"result":)").size() + 10);
  Push(Chunk(R"({"a")", false));
  Push(Chunk(R"(:"b"})", true));
  auto& script = *plane_.invokes.back().script;
  EXPECT_EQ(script.events.size(), 1u) << "asked for more before the first piece was taken";
  answer->TakeAll();
  EXPECT_TRUE(script.events.empty());
  EXPECT_EQ(answer->body, R"({"jsonrpc":"2.0","id":1,"result":{"a":"b"}})");
  EXPECT_EQ(answer->body.size(), answer->content_length);
  EXPECT_TRUE(answer->ended);
}

TEST_F(Calls, StreamBigBodiesAsOneEvent) {
  const Answer answer = Call();
  Push(Accepted(5));
  answer->body.clear();
  v1::InvokeEvent big = Big(7);
  *big.mutable_outcome()->mutable_id() = Id(5, 7, 2);
  Push(big);
  Push(Chunk("{\"a\":\n", false));
  EXPECT_FALSE(answer->ended);
  Push(Chunk("}", true));
  EXPECT_EQ(answer->body,
            "event: message\nid: 5.7.2\n"
            R"(data: {"jsonrpc":"2.0","id":1,"result":{"a": }})"
            "\n\n");
  EXPECT_TRUE(answer->ended);
}

TEST_F(Calls, BreakVisiblyWhenABodyIsCutShort) {
  const Answer plain = Call();
  Push(Big(9));
  Push(Chunk("{", true));
  EXPECT_TRUE(plain->aborted);
  const Answer stream = Call();
  Push(Accepted(5));
  Push(Big(9));
  Push(Chunk("{", false));
  plane_.invokes.back().script->Push(absl::UnavailableError("cut"));
  EXPECT_TRUE(stream->aborted);
  EXPECT_FALSE(stream->ended);
  loop_.RunReady();
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Calls, GoOnWhenTheClientHangsUp) {
  const Answer answer = Call();
  Push(Accepted(5));
  answer->on_peer_gone();
  loop_.RunReady();
  EXPECT_TRUE(plane_.invokes.back().script->destroyed);
  EXPECT_TRUE(plane_.sent.empty());
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Calls, PassErrorsOfTheBackendUnchanged) {
  v1::InvokeEvent error;
  error.mutable_outcome()->set_class_(v1::RPC_ERROR);
  error.mutable_outcome()->mutable_body()->set_inline_(R"({"code":-32601,"message":"no", "z":1})");
  plane_.next_events = {error};
  const Answer answer = Call();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body,
            R"({"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no", "z":1}})");
}

TEST_F(Calls, TellReasonAndCertaintyOfFailures) {
  v1::InvokeEvent lost = Failed(v1::LOST, v1::DCC_EXITED, v1::UNKNOWN);
  lost.mutable_outcome()->set_diagnostics(R"({"reconnects":2})");
  plane_.next_events = {lost};
  EXPECT_EQ(Call()->body,
            R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"why","data":{)"
            R"("reason":"dcc_exited","kind":"backend_lost","certainty":"unknown",)"
            R"("call_id":"01ab","instance":"aabbccdd00","diagnostics":{"reconnects":2}}}})");
  plane_.next_events = {Failed(v1::EXPIRED, static_cast<v1::Reason>(499), v1::RUNNING)};
  EXPECT_NE(Call()->body.find(R"("reason":"expired","kind":"timed_out","certainty":"running")"),
            std::string::npos);
}

TEST_F(Calls, ReportInvalidArgumentsAsTheRevisionWants) {
  plane_.next_events = {Failed(v1::REJECTED, v1::PARAMS_INVALID)};
  EXPECT_EQ(
      Call()->body,
      R"({"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"why"}],"isError":true}})");
  session_.clear();
  revision_ = "2025-06-18";
  Call();  // opens the session
  plane_.next_events = {Failed(v1::REJECTED, v1::PARAMS_INVALID)};
  EXPECT_EQ(Call()->body, R"({"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"why"}})");
}

TEST_F(Calls, CancelledByTheClientGetNoResponseOnTheirStream) {
  const Answer stream = Call();
  Push(Accepted(5));
  stream->body.clear();
  Push(Failed(v1::CANCELLED, v1::CANCELLED_BY_CLIENT));
  EXPECT_EQ(stream->body, "");
  EXPECT_TRUE(stream->ended);
  const Answer plain = Call();
  Push(Failed(v1::CANCELLED, v1::CANCELLED_BY_CLIENT));
  EXPECT_EQ(plain->status, 200);
  EXPECT_NE(plain->body.find(R"("code":-32000,"message":"cancelled")"), std::string::npos);
}

TEST_F(Calls, CancelledByOthersAreAnswered) {
  const Answer stream = Call();
  Push(Accepted(5));
  Push(Failed(v1::CANCELLED, v1::CANCELLED_BY_ADMIN));
  EXPECT_NE(stream->body.find("cancelled_by_admin"), std::string::npos);
}

TEST_F(Calls, WhoseControlPlaneIsLostGoOnWhenItIsBack) {
  const Answer answer = Call();
  Push(Accepted(5));
  Push(Progress(5, 2));
  answer->body.clear();
  plane_.invokes.back().script->Push(absl::UnavailableError("cut"));
  loop_.RunFor(absl::Seconds(1));
  EXPECT_EQ(answer->body, "");
  EXPECT_FALSE(answer->ended);
  ASSERT_EQ(plane_.listens.size(), 1u);
  EXPECT_EQ(plane_.listens[0].request.session_id(), session_);
  EXPECT_EQ(plane_.listens[0].request.stream(), 5u);
  EXPECT_EQ(plane_.listens[0].request.after().n(), 2u);
  v1::ListenEvent outcome;
  *outcome.mutable_outcome() = Result("{}").outcome();
  outcome.mutable_outcome()->set_client_request_id("1");
  *outcome.mutable_outcome()->mutable_id() = Id(5, 8, 1);
  plane_.listens[0].script->Push(outcome);
  EXPECT_EQ(answer->body,
            "event: message\nid: 5.8.1\n"
            R"(data: {"jsonrpc":"2.0","id":1,"result":{}})"
            "\n\n");
  EXPECT_TRUE(answer->ended);
  EXPECT_EQ(bridge_->gauges().reattached, 1u);
}

TEST_F(Calls, ThatARestartedControlPlaneDoesNotKnowEndAsUnknown) {
  const Answer answer = Call();
  Push(Accepted(5));
  answer->body.clear();
  plane_.invokes.back().script->Push(absl::UnavailableError("cut"));
  loop_.RunFor(absl::Seconds(1));
  plane_.listens.at(0).script->Push(absl::NotFoundError("no such session"));
  EXPECT_NE(answer->body.find(R"("id":1,"error":{"code":-32000)"), std::string::npos);
  EXPECT_NE(answer->body.find(R"("reason":"outcome_unknown","certainty":"unknown")"),
            std::string::npos);
  EXPECT_NE(answer->body.find(R"("reattaching":true)"), std::string::npos);
  EXPECT_TRUE(answer->ended);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Calls, WhoseControlPlaneStaysAwayEndByTheHardTimer) {
  Restart({.hard_wait = absl::Seconds(30)});
  session_.clear();
  const Answer answer = Call();
  Push(Accepted(5));
  plane_.invokes.back().script->Push(absl::UnavailableError("cut"));
  for (int i = 0; i < 29; ++i) {
    loop_.RunFor(absl::Seconds(1));
    if (!plane_.listens.empty() && plane_.listens.back().script->waiting) {
      plane_.listens.back().script->Push(absl::UnavailableError("still away"));
    }
  }
  EXPECT_FALSE(answer->ended);
  loop_.RunFor(absl::Seconds(3));
  EXPECT_NE(answer->body.find(R"("reason":"hard_timer","certainty":"unknown")"), std::string::npos);
  EXPECT_NE(answer->body.find(R"("call_start":")"), std::string::npos);
  EXPECT_NE(answer->body.find(R"("session":")" + session_ + '"'), std::string::npos);
  EXPECT_TRUE(answer->ended);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Calls, EndWhenAllTheirBudgetsAreOverWhateverIsToldMeanwhile) {
  Restart({.hard_wait = absl::Seconds(30), .hard_margin = absl::Seconds(5)});
  session_.clear();
  const Answer answer = Call();
  v1::InvokeEvent accepted = Accepted(5);
  accepted.mutable_accepted()->set_hard_ms(60'000);
  Push(accepted);
  for (uint64_t n = 2; n < 8; ++n) {
    loop_.RunFor(absl::Seconds(10));
    Push(Progress(5, n));
  }
  EXPECT_FALSE(answer->ended);
  loop_.RunFor(absl::Seconds(7));
  EXPECT_NE(answer->body.find(R"("reason":"hard_timer","certainty":"unknown")"), std::string::npos);
  EXPECT_TRUE(answer->ended);
}

TEST_F(Calls, MayBeSilentWithinTheirBudgets) {
  Restart({.hard_wait = absl::Seconds(30), .hard_margin = absl::Seconds(5)});
  session_.clear();
  const Answer streamed = Call();
  v1::InvokeEvent accepted = Accepted(5);
  accepted.mutable_accepted()->set_hard_ms(3'600'000);
  Push(accepted);
  // A client that takes no streams is answered with the outcome; its call's budgets come alone.
  const Answer plain =
      Send("POST", "/mcp/maya-1",
           {{"Host", "localhost"},
            {"Content-Type", "application/json"},
            {"Accept", "application/json"},
            {"Mcp-Session-Id", session_}},
           R"({"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b"}})");
  EXPECT_TRUE(plane_.invokes.back().request.never_open_stream());
  EXPECT_EQ(plane_.invokes.back().request.open_stream_after_ms(), 45'000u);
  loop_.RunFor(absl::Seconds(29));
  accepted.mutable_accepted()->clear_id();
  Push(accepted);
  loop_.RunFor(absl::Minutes(59));
  EXPECT_FALSE(streamed->ended);
  EXPECT_EQ(plain->status, 0);
  loop_.RunFor(absl::Minutes(1));
  EXPECT_NE(streamed->body.find(R"("reason":"hard_timer","certainty":"unknown")"),
            std::string::npos);
  loop_.RunFor(absl::Minutes(1));
  EXPECT_NE(plain->body.find(R"("reason":"hard_timer","certainty":"unknown")"), std::string::npos);
}

TEST_F(Calls, LostBeforeTheirStreamSayWhetherTheyMayHaveRun) {
  const Answer unknown = Call();
  plane_.invokes.back().script->Push(absl::AbortedError("lost on the way"));
  EXPECT_EQ(unknown->status, 200);
  EXPECT_NE(unknown->body.find(R"("reason":"outcome_unknown","certainty":"unknown")"),
            std::string::npos);
  const Answer not_started = Call();
  plane_.invokes.back().script->Push(absl::UnavailableError("nobody answers"));
  EXPECT_EQ(not_started->status, 503);
  EXPECT_EQ(not_started->Header("Retry-After"), "2");
  EXPECT_NE(not_started->body.find(
                R"("data":{"reason":"control_plane_unavailable","certainty":"not_started"})"),
            std::string::npos);
}

TEST_F(Calls, WhoseStreamAnotherBridgeTookOverAreLeftToIt) {
  const Answer answer = Call();
  Push(Accepted(5));
  answer->body.clear();
  plane_.invokes.back().script->Push(absl::AbortedError("taken over"));
  loop_.RunFor(absl::Seconds(1));
  EXPECT_EQ(answer->body, "");
  EXPECT_TRUE(answer->ended);
  EXPECT_TRUE(answer->closed);
  EXPECT_TRUE(plane_.listens.empty());
}

TEST_F(Calls, EndByTheHardTimerWhenTheControlPlaneIsSilent) {
  const Answer answer = Call("1", R"({"name":"b","_meta":{"dcc":{"timeout_ms":60000}}})");
  loop_.RunFor(absl::Minutes(13));
  v1::InvokeEvent status;
  status.mutable_status()->set_phase(v1::CALL_WAITING);
  Push(status);
  loop_.RunFor(absl::Minutes(14) - absl::Seconds(2));
  EXPECT_EQ(answer->status, 0) << "every event restarts the timer";
  loop_.RunFor(absl::Seconds(4));
  EXPECT_NE(answer->body.find(R"("reason":"hard_timer","certainty":"unknown")"), std::string::npos);
  EXPECT_NE(answer->body.find(R"("last_state":"CALL_WAITING")"), std::string::npos);
  EXPECT_TRUE(plane_.invokes.back().script->destroyed);
  EXPECT_EQ(bridge_->gauges().hard_timers, 1u);
}

TEST_F(Calls, KeepQuietStreamsAlive) {
  const Answer answer = Call();
  Push(Accepted(5));
  answer->body.clear();
  loop_.RunFor(absl::Seconds(14));
  EXPECT_EQ(answer->body, "");
  loop_.RunFor(absl::Seconds(1));
  EXPECT_EQ(answer->body, ": ping\n\n");
  loop_.RunFor(absl::Seconds(15));
  EXPECT_EQ(answer->body, ": ping\n\n: ping\n\n");
}

TEST_F(Calls, CutReadersThatTakeNothing) {
  const Answer answer = Call();
  answer->stalled = true;
  Push(Accepted(5));
  answer->unsent = 300 * 1024;
  loop_.RunFor(absl::Seconds(18));
  EXPECT_FALSE(answer->aborted);
  loop_.RunFor(absl::Seconds(5));
  EXPECT_TRUE(answer->aborted);
  EXPECT_EQ(bridge_->gauges().streams.ended_by(bridge::StreamEnd::kSlow), 1u);
}

TEST_F(Calls, SurviveTheEndOfTheBridge) {
  Call();
  Push(Accepted(5));
  Call("2");
  bridge_.reset();
  EXPECT_TRUE(plane_.invokes[0].script->destroyed);
  loop_.RunFor(absl::Minutes(1));
}

TEST_F(Calls, FinishDuringADrain) {
  const Answer plain = Call();
  const Answer stream = Call("2");
  Push(Accepted(5));
  const Answer late = Call("3");
  bool done = false;
  bridge_->Drain(absl::Seconds(10), [&] { done = true; });
  loop_.RunReady();
  plane_.invokes[0].script->Push(Result("{}"));
  EXPECT_EQ(plain->body, R"({"jsonrpc":"2.0","id":1,"result":{}})");
  EXPECT_FALSE(stream->ended);
  EXPECT_NE(stream->body.find(": draining\n\n"), std::string::npos);
  EXPECT_EQ(Initialize()->status, 503);
  loop_.RunFor(absl::Seconds(9));
  EXPECT_FALSE(done);
  loop_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(done);
  EXPECT_TRUE(stream->ended);
  EXPECT_NE(late->body.find(R"("reason":"draining","certainty":"unknown")"), std::string::npos);
}

TEST_F(Calls, OfADrainAreStillAnsweredByTheirClients) {
  const Answer stream = Call();
  Push(Accepted(5));
  v1::InvokeEvent before;
  before.mutable_ask()->mutable_id()->set_stream(5);
  before.mutable_ask()->mutable_id()->set_n(1);
  before.mutable_ask()->set_ask_id("q1");
  before.mutable_ask()->set_method("elicitation/create");
  before.mutable_ask()->set_params("{}");
  v1::InvokeEvent later = before;
  later.mutable_ask()->mutable_id()->set_n(2);
  later.mutable_ask()->set_ask_id("q2");
  Push(before);
  loop_.RunReady();
  bool done = false;
  bridge_->Drain(absl::Seconds(10), [&] { done = true; });
  EXPECT_EQ(PostIn(session_, R"({"jsonrpc":"2.0","id":"ask-q1","result":{"action":"accept"}})",
                   "/mcp/maya-1")
                ->status,
            202);
  ASSERT_EQ(plane_.sent.size(), 1u);
  EXPECT_EQ(plane_.sent[0].answer().ask_id(), "q1");
  // No request is begun that might have to be cut.
  const Answer refused = PostIn(session_, CallTool("bake"), "/mcp/maya-1");
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->Header("Retry-After"), "2");
  EXPECT_NE(refused->body.find(R"("reason":"draining","certainty":"not_started")"),
            std::string::npos);
  EXPECT_EQ(PostIn(session_, R"({"jsonrpc":"2.0","id":9,"method":"ping"})", "/mcp/maya-1")->status,
            200);
  // What the client could no longer answer is left to its resumption.
  Push(later);
  loop_.RunFor(absl::Seconds(11));
  EXPECT_TRUE(done);
  EXPECT_EQ(stream->body.find("ask-q2"), std::string::npos);
  EXPECT_TRUE(stream->body.ends_with("event: close\nid: 5.0.1\ndata: {}\n\n")) << stream->body;
}

TEST_F(Calls, AnAnswerThatIsNotTakenBeforeTheDrainIsOverIsToBeSentAgain) {
  Call();
  plane_.hold_sends = true;
  const Answer answer =
      PostIn(session_, R"({"jsonrpc":"2.0","id":"ask-q1","result":{}})", "/mcp/maya-1");
  EXPECT_EQ(answer->body, "");
  bool done = false;
  bridge_->Drain(absl::Seconds(10), [&] { done = true; });
  loop_.RunFor(absl::Seconds(9));
  EXPECT_FALSE(done);
  loop_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(done);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->Header("Retry-After"), "2");
}

TEST_F(Calls, ABridgeMayBeDestroyedWhenItsDrainIsDone) {
  Call();
  bridge_->Drain(absl::Seconds(1), [&] { bridge_.reset(); });
  loop_.RunFor(absl::Seconds(3));
  EXPECT_EQ(bridge_, nullptr);
}

TEST_F(Calls, ListToolsByDigest) {
  Call();
  const std::string list = R"({"jsonrpc":"2.0","id":3,"method":"tools/list"})";
  const std::string expected = R"({"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"bake"}]}})";
  EXPECT_EQ(PostIn(session_, list, "/mcp/maya-1")->body, expected);
  EXPECT_EQ(PostIn(session_, list, "/mcp/maya-1")->body, expected);
  EXPECT_EQ(plane_.lists[0].known_digest(), "");
  EXPECT_EQ(plane_.lists[1].known_digest(), "d1");
}

TEST_F(Calls, OfAnyMethodReachTheBackend) {
  Call();
  PostIn(session_,
         R"({"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"info"}})",
         "/mcp/maya-1");
  EXPECT_EQ(plane_.invokes.back().request.method(), "logging/setLevel");
  PostIn(session_, R"({"jsonrpc":"2.0","id":4,"method":"made/up"})", "/mcp/maya-1");
  EXPECT_EQ(plane_.invokes.back().request.method(), "made/up");
  EXPECT_EQ(plane_.invokes.back().request.params(), "");
}

}  // namespace
}  // namespace callboard::tests
