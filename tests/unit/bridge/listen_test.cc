// Tests of GET streams: opening, resuming, taking over, limits, life.
#include "fmt/format.h"
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

class Listening : public BridgeTest {
 protected:
  void Push(absl::StatusOr<v1::ListenEvent> event) {
    plane_.listens.back().script->Push(std::move(event));
    loop_.RunReady();
  }
  static v1::ListenEvent Notice(uint64_t n) {
    v1::ListenEvent event;
    *event.mutable_stream_event()->mutable_id() = Id(0, 7, n);
    event.mutable_stream_event()->set_method("notifications/tools/list_changed");
    return event;
  }
  static v1::ListenEvent Live() {
    v1::ListenEvent event;
    event.mutable_live();
    return event;
  }
};

TEST_F(Listening, SendsHeadAndFirstBytesAtOnce) {
  const Answer answer = Get(Open());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->Header("Content-Type"), "text/event-stream");
  EXPECT_EQ(answer->body, ": listening\n\n");
  EXPECT_EQ(plane_.listens[0].request.stream(), 0u);
  EXPECT_FALSE(plane_.listens[0].request.has_after());
}

TEST_F(Listening, PrimesFromWhereTheStreamStands) {
  const Answer answer = Get(Open());
  v1::ListenEvent replaying;
  *replaying.mutable_replaying()->mutable_from() = Id(0, 7, 4);
  Push(replaying);
  Push(Live());
  EXPECT_EQ(answer->body, ": listening\n\nid: 0.7.4\nretry: 3000\ndata: \n\n");
}

TEST_F(Listening, PrimesFromTheTermIfNothingElseIsKnown) {
  const Answer answer = Get(Open());
  Push(Live());
  EXPECT_EQ(answer->body, ": listening\n\nid: 0.7.0\nretry: 3000\ndata: \n\n");
}

TEST_F(Listening, DoesNotPrimeOlderClients) {
  const Answer answer = Get(Open("2025-06-18"));
  Push(Live());
  Push(Notice(1));
  EXPECT_EQ(answer->body,
            ": listening\n\nevent: message\nid: 0.7.1\n"
            R"(data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"})"
            "\n\n");
}

TEST_F(Listening, ResumesAfterLastEventIdAndTellsOfGaps) {
  const std::string session = Open();
  const Answer answer = Get(session, {{"Last-Event-ID", "5.7.2"}});
  const v1::ListenRequest& request = plane_.listens[0].request;
  EXPECT_EQ(request.session_id(), session);
  EXPECT_EQ(request.stream(), 5u);
  EXPECT_EQ(request.after().term(), 7u);
  EXPECT_EQ(request.after().n(), 2u);
  v1::ListenEvent gap;
  gap.mutable_gap()->set_lost(3);
  Push(gap);
  v1::ListenEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::RESULT);
  outcome.mutable_outcome()->set_client_request_id("\"x\"");
  outcome.mutable_outcome()->mutable_body()->set_size(4);
  *outcome.mutable_outcome()->mutable_id() = Id(5, 7, 9);
  Push(outcome);
  v1::ListenEvent chunk;
  chunk.mutable_chunk()->set_bytes("null");
  chunk.mutable_chunk()->set_last(true);
  Push(chunk);
  EXPECT_FALSE(answer->ended);
  v1::ListenEvent end;
  end.mutable_end()->set_reason("finished");
  Push(end);
  EXPECT_EQ(answer->body,
            ": listening\n\n: gap 3 events lost\n\nevent: message\nid: 5.7.9\n"
            R"(data: {"jsonrpc":"2.0","id":"x","result":null})"
            "\n\n");
  EXPECT_TRUE(answer->ended);
}

TEST_F(Listening, OfACallWhoseStatesAreAskedForTellsTheLastOne) {
  const Answer answer = Get(Open(), {{"Last-Event-ID", "5.7.2"}, {"x-agent-status", "events"}});
  v1::ListenEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::RESULT);
  outcome.mutable_outcome()->set_client_request_id("1");
  outcome.mutable_outcome()->mutable_body()->set_inline_("{}");
  *outcome.mutable_outcome()->mutable_id() = Id(5, 7, 9);
  Push(outcome);
  EXPECT_EQ(answer->body,
            ": listening\n\nevent: x-agent-status\n"
            R"(data: {"state":"success","ahead":0,"reason":"","message":"done"})"
            "\n\nevent: message\nid: 5.7.9\n"
            R"(data: {"jsonrpc":"2.0","id":1,"result":{}})"
            "\n\n");
}

TEST_F(Listening, OfACallWhoseStatesAreAskedForTellsThemAsTheyChange) {
  const auto status = [](v1::CallPhase phase, uint32_t ahead = 0) {
    v1::ListenEvent event;
    event.mutable_status()->set_phase(phase);
    event.mutable_status()->set_ahead(ahead);
    event.mutable_status()->set_attempt(1);
    event.mutable_status()->set_attempts_max(3);
    return event;
  };
  const auto told = [](std::string_view state, int ahead, std::string_view message) {
    return fmt::format(
        "event: x-agent-status\ndata: {{\"state\":\"{}\",\"ahead\":{},\"attempt\":1,"
        "\"attempts_max\":3,\"reason\":\"\",\"message\":\"{}\"}}\n\n",
        state, ahead, message);
  };
  const Answer answer = Get(Open(), {{"Last-Event-ID", "5.7.2"}, {"x-agent-status", "events"}});
  EXPECT_TRUE(plane_.listens[0].request.with_status());
  Push(status(v1::CALL_QUEUED, 4));
  EXPECT_EQ(answer->body, ": listening\n\n" + told("queued", 4, "queued: 4 before this call"));
  answer->body.clear();
  // At most one a second, the newest.
  for (uint32_t ahead = 3; ahead > 0; --ahead) Push(status(v1::CALL_QUEUED, ahead));
  EXPECT_EQ(answer->body, "");
  loop_.RunFor(absl::Milliseconds(2100));
  EXPECT_EQ(answer->body, told("queued", 1, "queued: 1 before this call"));
  // Its control plane is lost and comes back: the same wish goes to it.
  Push(absl::UnavailableError("cut"));
  loop_.RunFor(absl::Seconds(2));
  ASSERT_EQ(plane_.listens.size(), 2u);
  EXPECT_TRUE(plane_.listens[1].request.with_status());
  answer->body.clear();
  Push(status(v1::CALL_WAITING));
  EXPECT_EQ(answer->body, told("waiting", 0, "the tool is at work"));
  answer->body.clear();
  // The end is told at once, before the response.
  v1::ListenEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::RESULT);
  outcome.mutable_outcome()->set_client_request_id("1");
  outcome.mutable_outcome()->mutable_body()->set_inline_("{}");
  *outcome.mutable_outcome()->mutable_id() = Id(5, 7, 9);
  Push(outcome);
  EXPECT_TRUE(answer->body.starts_with(told("success", 0, "done"))) << answer->body;
}

TEST_F(Listening, TheEndOfACancelledCallIsAStateForThoseWhoHeardOthers) {
  const Answer answer = Get(Open(), {{"Last-Event-ID", "5.7.2"}, {"x-agent-status", "events"}});
  v1::ListenEvent status;
  status.mutable_status()->set_phase(v1::CALL_WAITING);
  Push(status);
  v1::ListenEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::CANCELLED);
  outcome.mutable_outcome()->set_reason(v1::CANCELLED_BY_CLIENT);
  *outcome.mutable_outcome()->mutable_id() = Id(5, 7, 3);
  Push(outcome);
  EXPECT_NE(answer->body.find(R"("state":"failed","ahead":0,"reason":"cancelled_by_client")"),
            std::string::npos)
      << answer->body;
  v1::ListenEvent end;
  end.mutable_end()->set_reason("finished");
  Push(end);
  EXPECT_TRUE(answer->ended);
}

TEST_F(Listening, StatesAreInNoByteForThoseWhoDidNotAsk) {
  for (const char* wish : {"", "header"}) {
    const std::string session = Open();
    net::HeaderList headers = {{"Last-Event-ID", "5.7.2"}};
    if (*wish != '\0') headers.emplace_back("x-agent-status", wish);
    const Answer answer = Get(session, headers);
    EXPECT_FALSE(plane_.listens.back().request.with_status());
    Push(Live());
    EXPECT_EQ(answer->body, ": listening\n\n") << wish;
  }
  const Answer own = Get(Open(), {{"x-agent-status", "events"}});
  EXPECT_FALSE(plane_.listens.back().request.with_status()) << "it is no call's";
  const Answer resumed = Get(Open(), {{"Last-Event-ID", "0.7.2"}, {"x-agent-status", "events"}});
  EXPECT_FALSE(plane_.listens.back().request.with_status());
}

TEST_F(Listening, StreamOfACancelledCallIsAnsweredWithoutContentSoThatClientsStopAsking) {
  const Answer answer = Get(Open(), {{"Last-Event-ID", "5.7.2"}});
  v1::ListenEvent replaying;
  *replaying.mutable_replaying()->mutable_from() = Id(5, 7, 2);
  Push(replaying);
  v1::ListenEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::CANCELLED);
  outcome.mutable_outcome()->set_reason(v1::CANCELLED_BY_CLIENT);
  *outcome.mutable_outcome()->mutable_id() = Id(5, 7, 3);
  Push(outcome);
  v1::ListenEvent end;
  end.mutable_end()->set_reason("finished");
  Push(end);
  EXPECT_EQ(answer->status, 204);
  EXPECT_TRUE(answer->body.empty());
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Listening, ResumeWhileTheControlPlaneIsAwayIsToBeTriedAgain) {
  const Answer answer = Get(Open(), {{"Last-Event-ID", "5.7.2"}});
  Push(absl::UnavailableError("cut"));
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->Header("Retry-After"), "2");
  EXPECT_EQ(answer->body,
            R"({"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"cut","data":)"
            R"({"reason":"control_plane_unavailable","certainty":"not_started"}}})");
}

TEST_F(Listening, ASessionThatWasEndedElsewhereIsNotFoundAndForgotten) {
  const std::string session = Open();
  plane_.sessions.clear();
  const Answer answer = Get(session, {{"Last-Event-ID", "5.7.2"}});
  Push(absl::NotFoundError("no such session"));
  EXPECT_EQ(answer->status, 404);
  EXPECT_NE(answer->body.find("-32001"), std::string::npos);
  const int asked = plane_.gets;
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":2,"method":"ping"})")->status, 404);
  EXPECT_EQ(plane_.gets, asked + 1) << "the cache does not answer for it any more";
}

TEST_F(Listening, ASessionThatEndsOnItsStreamIsForgotten) {
  const std::string session = Open();
  const Answer answer = Get(session);
  plane_.sessions.clear();
  v1::ListenEvent end;
  end.mutable_end()->set_reason("session_ended");
  Push(end);
  EXPECT_TRUE(answer->ended);
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":2,"method":"ping"})")->status, 404);
}

TEST_F(Listening, RefusesWhatItCannotServe) {
  const std::string session = Open();
  EXPECT_EQ(Get("")->status, 400);
  EXPECT_EQ(Get("nope")->status, 404);
  EXPECT_EQ(Send("GET", "/mcp", {{"Mcp-Session-Id", session}})->status, 406);
  EXPECT_EQ(
      Send("GET", "/mcp", {{"Mcp-Session-Id", session}, {"Accept", "application/json"}})->status,
      406);
  for (const std::string id :
       {"", "7", "0.1", "0.1.x", "0.1.2.3", "-1.0.0", "0.1.99999999999999999999"}) {
    EXPECT_EQ(Get(session, {{"Last-Event-ID", id}})->status, 400) << id;
  }
  EXPECT_TRUE(plane_.listens.empty());
}

TEST_F(Listening, EndsWhenAnotherTakesOver) {
  const Answer first = Get(Open());
  v1::ListenEvent end;
  end.mutable_end()->set_reason("taken_over");
  Push(end);
  EXPECT_TRUE(first->ended);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
  EXPECT_EQ(bridge_->gauges().streams.open, 0u);
}

TEST_F(Listening, OutlivesTheControlPlanesAbsence) {
  const std::string session = Open();
  const Answer answer = Get(session);
  Push(Notice(1));
  answer->body.clear();
  Push(absl::UnavailableError("cut"));
  loop_.RunFor(absl::Seconds(1));
  ASSERT_GE(plane_.listens.size(), 2u);
  Push(absl::UnavailableError("still away"));
  loop_.RunFor(absl::Seconds(20));
  EXPECT_EQ(answer->body, ": ping\n\n");
  EXPECT_FALSE(answer->ended);

  const v1::ListenRequest& request = plane_.listens.back().request;
  EXPECT_EQ(request.session_id(), session);
  EXPECT_EQ(request.stream(), 0u);
  EXPECT_EQ(request.after().term(), 7u);
  EXPECT_EQ(request.after().n(), 1u);
  answer->body.clear();
  v1::ListenEvent replaying;
  *replaying.mutable_replaying()->mutable_from() = Id(0, 7, 1);
  Push(replaying);
  Push(Live());
  Push(Notice(2));
  EXPECT_EQ(answer->body,
            "event: message\nid: 0.7.2\n"
            R"(data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"})"
            "\n\n")
      << "the client sees neither a second priming event nor a gap";
}

TEST_F(Listening, GoesOnWhenAControlPlaneThatShutsDownIsBack) {
  const Answer answer = Get(Open());
  Push(Notice(1));
  v1::ListenEvent end;
  end.mutable_end()->set_reason("drain");
  Push(end);
  EXPECT_FALSE(answer->ended);
  loop_.RunFor(absl::Seconds(1));
  EXPECT_EQ(plane_.listens.size(), 2u);
}

TEST_F(Listening, EndsWhenTheControlPlaneStaysAway) {
  Restart({.reattach = absl::Seconds(5)});
  const Answer answer = Get(Open());
  Push(Notice(1));
  for (int i = 0; i < 100 && !answer->ended; ++i) {
    Push(absl::UnavailableError("cut"));
    loop_.RunFor(absl::Milliseconds(200));
  }
  EXPECT_TRUE(answer->ended);
  EXPECT_TRUE(answer->closed);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
  EXPECT_EQ(bridge_->gauges().streams.open, 0u);
}

TEST_F(Listening, ABodyThatIsLostHalfwayIsCutSoThatItIsFetchedAgain) {
  const Answer answer = Get(Open(), {{"Last-Event-ID", "5.7.2"}});
  v1::ListenEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::RESULT);
  outcome.mutable_outcome()->set_client_request_id("1");
  outcome.mutable_outcome()->mutable_body()->set_size(4);
  *outcome.mutable_outcome()->mutable_id() = Id(5, 7, 3);
  Push(outcome);
  v1::ListenEvent chunk;
  chunk.mutable_chunk()->set_bytes("nu");
  Push(chunk);
  Push(absl::UnavailableError("cut"));
  EXPECT_TRUE(answer->aborted);
  EXPECT_EQ(plane_.listens.size(), 1u);
}

TEST_F(Listening, GathersAFewEventsForAReaderAndAsksForMoreWhenTheyAreTaken) {
  Restart({.limits = {.gathered_bytes_max = 1000}});
  const Answer answer = Get(Open());
  answer->stalled = true;
  for (uint64_t n = 1; n <= 40; ++n) Push(Notice(n));
  auto& waiting = plane_.listens[0].script->events;
  EXPECT_GT(answer->unsent, 1000u) << "the event that exceeds the bound is written too";
  EXPECT_LT(answer->unsent, 1300u);
  EXPECT_GT(waiting.size(), 20u);
  EXPECT_LT(waiting.size(), 40u);
  const size_t before = waiting.size();
  loop_.RunFor(absl::Seconds(2));
  EXPECT_EQ(waiting.size(), before);
  while (!waiting.empty()) {
    const size_t left = waiting.size();
    answer->TakeAll();
    loop_.RunReady();
    ASSERT_LT(waiting.size(), left);
  }
  size_t at = 0;
  for (uint64_t n = 1; n <= 40; ++n) {
    at = answer->body.find("id: 0.7." + std::to_string(n) + "\n", at);
    ASSERT_NE(at, std::string::npos) << n;
  }
}

TEST_F(Listening, AReaderThatTakesNothingIsCutThoughEventsKeepComing) {
  const Answer answer = Get(Open());
  answer->stalled = true;
  for (uint64_t n = 1; n <= 18; ++n) {
    Push(Notice(n));
    loop_.RunFor(absl::Seconds(1));
  }
  EXPECT_FALSE(answer->aborted);
  for (uint64_t n = 19; n <= 23; ++n) {
    Push(Notice(n));
    loop_.RunFor(absl::Seconds(1));
  }
  EXPECT_TRUE(answer->aborted);
  EXPECT_EQ(bridge_->gauges().streams.ended_by(bridge::StreamEnd::kSlow), 1u);
}

TEST_F(Listening, StopsWhenTheClientGoes) {
  const Answer answer = Get(Open());
  answer->on_peer_gone();
  loop_.RunReady();
  EXPECT_TRUE(plane_.listens[0].script->destroyed);
  EXPECT_EQ(bridge_->gauges().streams.open, 0u);
}

TEST_F(Listening, HasHeartbeatsAndAnEndOfLife) {
  const Answer answer = Get(Open());
  loop_.RunFor(absl::Seconds(16));
  EXPECT_EQ(answer->body, ": listening\n\n: ping\n\n");
  loop_.RunFor(absl::Hours(21));
  EXPECT_FALSE(answer->ended);
  loop_.RunFor(absl::Hours(3));
  EXPECT_TRUE(answer->ended);
  EXPECT_TRUE(answer->closed);
  EXPECT_TRUE(answer->body.ends_with("event: close\ndata: {}\n\n"));
  EXPECT_EQ(bridge_->gauges().streams.ended_by(bridge::StreamEnd::kMaxLife), 1u);
}

TEST_F(Listening, TheEndOfLifeNamesTheIdToComeBackWith) {
  Restart({.stream_life_max = absl::Minutes(10)});
  const Answer newer = Get(Open("2025-11-25"));
  Push(Live());
  Push(Notice(3));
  // Clients of older revisions are not primed: for them it is the first id.
  const Answer older = Get(Open("2025-06-18"));
  v1::ListenEvent replaying;
  *replaying.mutable_replaying()->mutable_from() = Id(0, 7, 4);
  Push(replaying);
  Push(Live());
  loop_.RunFor(absl::Minutes(10));
  EXPECT_TRUE(newer->body.ends_with("event: close\nid: 0.7.3\ndata: {}\n\n"));
  EXPECT_TRUE(older->body.ends_with("event: close\nid: 0.7.4\ndata: {}\n\n"));
}

TEST_F(Listening, TheEndOfLifeWaitsForTheEndOfAnEvent) {
  Restart({.stream_life_max = absl::Minutes(10)});
  const Answer answer = Get(Open(), {{"Last-Event-ID", "5.7.2"}});
  v1::ListenEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::RESULT);
  outcome.mutable_outcome()->set_client_request_id("1");
  outcome.mutable_outcome()->mutable_body()->set_size(4);
  *outcome.mutable_outcome()->mutable_id() = Id(5, 7, 9);
  Push(outcome);
  loop_.RunFor(absl::Minutes(11));
  EXPECT_FALSE(answer->ended);
  v1::ListenEvent chunk;
  chunk.mutable_chunk()->set_bytes("null");
  chunk.mutable_chunk()->set_last(true);
  Push(chunk);
  loop_.RunFor(absl::Seconds(1));
  EXPECT_TRUE(answer->ended);
  EXPECT_TRUE(answer->body.ends_with("\"result\":null}\n\nevent: close\nid: 5.7.9\ndata: {}\n\n"));
}

TEST_F(Listening, CountsWhatBecameOfStreamsThatWereAskedForAgain) {
  const std::string session = Open();
  const auto resume = [&](const v1::ListenEvent& first) {
    const Answer answer = Get(session, {{"Last-Event-ID", "5.7.2"}});
    v1::ListenEvent replaying;
    *replaying.mutable_replaying()->mutable_from() = Id(5, 7, 2);
    Push(replaying);
    Push(first);
    Push(first);
  };
  v1::ListenEvent live;
  live.mutable_live();
  resume(live);
  v1::ListenEvent gap;
  gap.mutable_gap()->set_lost(3);
  resume(gap);
  v1::ListenEvent end;
  end.mutable_end()->set_reason("finished");
  resume(end);
  Get(session, {{"Last-Event-ID", "5.7.2"}});
  Push(absl::NotFoundError("no such stream"));
  Get(session);
  Push(live);
  EXPECT_EQ(bridge_->gauges().streams.resumes, (std::array<uint64_t, 3>{2, 1, 1}));
  EXPECT_EQ(bridge_->gauges().session_mismatches, 0u);
  Get("unknown");
  EXPECT_EQ(bridge_->gauges().session_mismatches, 1u);
}

TEST_F(Listening, CountsStreamsByTheCauseOfTheirEndAndByTheirLife) {
  using bridge::StreamEnd;
  const std::string session = Open();
  const auto lose = [&](net::PeerLoss loss, absl::Duration life) {
    const Answer answer = Get(session);
    loop_.RunFor(life);
    answer->loss = loss;
    answer->on_peer_gone();
    loop_.RunReady();
  };
  lose(net::PeerLoss::kClosed, absl::Milliseconds(500));
  lose(net::PeerLoss::kWriteFailed, absl::Seconds(5));
  lose(net::PeerLoss::kSilent, absl::Minutes(30));
  lose(net::PeerLoss::kStalled, absl::Hours(5));
  const bridge::StreamGauges streams = bridge_->gauges().streams;
  EXPECT_EQ(streams.opened, 4u);
  EXPECT_EQ(streams.open, 0u);
  EXPECT_EQ(streams.ended_by(StreamEnd::kClient), 1u);
  EXPECT_EQ(streams.ended_by(StreamEnd::kWriteFailed), 1u);
  EXPECT_EQ(streams.ended_by(StreamEnd::kIdle), 1u);
  EXPECT_EQ(streams.ended_by(StreamEnd::kSlow), 1u);
  const auto lives = [&](StreamEnd end) { return streams.lives[static_cast<size_t>(end)]; };
  EXPECT_EQ(lives(StreamEnd::kClient).counts(), (std::vector<uint64_t>{1, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(lives(StreamEnd::kWriteFailed).counts(),
            (std::vector<uint64_t>{0, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(lives(StreamEnd::kIdle).counts(), (std::vector<uint64_t>{0, 0, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(lives(StreamEnd::kSlow).counts(), (std::vector<uint64_t>{0, 0, 0, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(lives(StreamEnd::kIdle).sum(), absl::Minutes(30));
}

TEST_F(Listening, ShowsWhatWaitsForSlowReadersAndCutsThem) {
  const Answer slow = Get(Open());
  const Answer quick = Get(Open());
  slow->stalled = true;
  plane_.listens[0].script->Push(Notice(1));
  loop_.RunFor(absl::Seconds(2));
  const size_t waiting = slow->unsent;
  EXPECT_GT(waiting, 0u);
  EXPECT_EQ(bridge_->gauges().streams.unsent_bytes, waiting);
  // Whoever takes something now and then is not cut, however long it takes.
  for (int i = 0; i < 5; ++i) {
    slow->TakeAll();
    plane_.listens[0].script->Push(Notice(2 + static_cast<uint64_t>(i)));
    loop_.RunFor(absl::Seconds(15));
    EXPECT_FALSE(slow->aborted);
  }
  loop_.RunFor(absl::Seconds(7));
  EXPECT_TRUE(slow->aborted);
  EXPECT_FALSE(quick->aborted);
  EXPECT_EQ(bridge_->gauges().streams.unsent_bytes, 0u);
  EXPECT_EQ(bridge_->gauges().streams.ended_by(bridge::StreamEnd::kSlow), 1u);
}

TEST_F(Listening, IsBoundedInAllAndPerSession) {
  Restart({.limits = {.streams_max = 3, .streams_per_session_max = 2}});
  const std::string a = Open();
  const std::string b = Open();
  const Answer first = Get(a);
  EXPECT_EQ(Get(a)->status, 200);
  const Answer third = Get(a);
  EXPECT_EQ(third->status, 503);
  EXPECT_EQ(third->Header("Retry-After"), "2");
  EXPECT_EQ(Get(b)->status, 200);
  EXPECT_EQ(Get(b)->status, 503);
  const Answer call = PostIn(b, CallTool("maya.1f2e3d4c.bake"));
  // Accepted only to become a job, which is plain JSON.
  plane_.calls.emplace_back().set_call_id("id");
  plane_.calls.back().set_phase(v1::CALL_WAITING);
  EXPECT_EQ(plane_.invokes.back().request.open_stream_after_ms(), 45'000u);
  plane_.invokes.back().script->Push(Accepted(5));
  loop_.RunFor(absl::Seconds(46));
  EXPECT_EQ(call->Header("Content-Type"), "application/json");
  const Answer watching = PostIn(
      b,
      R"({"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"call_tool","_meta":{"progressToken":1},"arguments":{"tool_slug":"maya.1f2e3d4c.bake"}}})");
  EXPECT_EQ(watching->status, 503) << "its progress would be lost";
  EXPECT_EQ(watching->Header("Retry-After"), "2");
  EXPECT_NE(watching->body.find(R"("reason":"too_many","certainty":"not_started")"),
            std::string::npos);
  EXPECT_EQ(plane_.invokes.size(), 1u);
  first->on_peer_gone();
  loop_.RunReady();
  EXPECT_EQ(Get(b)->status, 200);
  EXPECT_EQ(bridge_->gauges().streams.refused, 3u);
}

TEST_F(Listening, LastsInADrainAsLongAsTheLastCall) {
  const std::string session = Open();
  const Answer listening = Get(session);
  const Answer call = PostIn(session, CallTool("maya.1f2e3d4c.bake"));
  bool done = false;
  bridge_->Drain(absl::Seconds(10), [&] { done = true; });
  loop_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(listening->body.ends_with(": draining\n\n"));
  EXPECT_FALSE(listening->ended);
  v1::InvokeEvent outcome;
  outcome.mutable_outcome()->set_class_(v1::RESULT);
  outcome.mutable_outcome()->mutable_body()->set_inline_("{}");
  plane_.invokes[0].script->Push(outcome);
  loop_.RunReady();
  EXPECT_TRUE(call->ended);
  EXPECT_TRUE(listening->body.ends_with("event: close\ndata: {}\n\n"));
  EXPECT_TRUE(listening->ended);
  EXPECT_TRUE(done);
}

TEST_F(Listening, EndsAtOnceInADrain) {
  const std::string session = Open();
  const Answer answer = Get(session);
  bool done = false;
  bridge_->Drain(absl::Seconds(10), [&] { done = true; });
  loop_.RunReady();
  EXPECT_TRUE(answer->body.ends_with(": draining\n\nevent: close\ndata: {}\n\n"));
  EXPECT_EQ(bridge_->gauges().streams.ended_by(bridge::StreamEnd::kDrain), 1u);
  EXPECT_TRUE(answer->ended);
  EXPECT_TRUE(answer->closed);
  EXPECT_TRUE(done);
  EXPECT_EQ(Get(session)->status, 503);
}

}  // namespace
}  // namespace callboard::tests
