// Tests of jobs on the facade: calls that take longer than their clients, and what asks for them.
#include "core/mcp/json.h"
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

constexpr std::string_view kJobId = "000102030405060708090a0b0c0d0e0f";

class Jobs : public BridgeTest {
 protected:
  static std::string CallId() {
    std::string id;
    for (char c = 0; c < 16; ++c) id.push_back(c);
    return id;
  }
  Answer Call(net::HeaderList extra = {}) {
    session_ = Open();
    extra.emplace_back("Mcp-Session-Id", session_);
    return Post(CallTool("maya.1f2e3d4c.bake"), std::move(extra));
  }
  Answer Tool(std::string name, std::string arguments) {
    if (session_.empty()) session_ = Open();
    return PostIn(session_, R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":")" +
                                name + R"(","arguments":)" + arguments + "}}");
  }
  void Push(v1::InvokeEvent event) {
    plane_.invokes.back().script->Push(std::move(event));
    loop_.RunReady();
  }
  v1::InvokeEvent AcceptedAs(std::string call_id) {
    v1::InvokeEvent event = Accepted(5);
    event.mutable_accepted()->set_call_id(std::move(call_id));
    return event;
  }
  v1::Call& AddCall(v1::CallPhase phase) {
    plane_.calls.clear();
    v1::Call& call = plane_.calls.emplace_back();
    call.set_call_id(CallId());
    call.set_phase(phase);
    call.set_tool("bake");
    call.set_seat_id("s");
    call.set_attempt(1);
    call.set_run_ms(70);
    call.set_certainty(v1::FINISHED);
    return call;
  }
  static std::string Document(const Answer& answer) {
    return std::string(core::FindPath(answer->body, {"result", "structuredContent"}).value_or(""));
  }

  // An outcome with that body in two pieces.
  static std::vector<v1::InvokeEvent> Fetched(const std::string& body) {
    std::vector<v1::InvokeEvent> events(3);
    events[0].mutable_outcome()->set_class_(v1::RESULT);
    events[0].mutable_outcome()->mutable_body()->set_size(body.size());
    events[1].mutable_chunk()->set_bytes(body.substr(0, 10));
    events[2].mutable_chunk()->set_bytes(body.substr(10));
    events[2].mutable_chunk()->set_last(true);
    return events;
  }

  std::string session_;
};

TEST_F(Jobs, ALongCallIsAnsweredWithOneOnItsStreamAndGoesOn) {
  AddCall(v1::CALL_WAITING);
  const Answer answer = Call();
  Push(AcceptedAs(CallId()));
  loop_.RunFor(absl::Milliseconds(44'900));
  EXPECT_FALSE(answer->ended);
  answer->body.clear();
  loop_.RunFor(absl::Milliseconds(200));
  EXPECT_TRUE(answer->ended);
  const std::string document =
      R"({"status":"running","job_id":"000102030405060708090a0b0c0d0e0f","tool":"maya.1f2e3d4c.bake","elapsed_ms":45000,"message":"The call takes long and goes on. Do not repeat it: get its result with jobs_wait, stop it with jobs_cancel.","next_step":{"tool":"jobs_wait","arguments":{"job_id":"000102030405060708090a0b0c0d0e0f"}}})";
  EXPECT_EQ(answer->body,
            R"(event: message
data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":)" +
                core::QuoteJson(document) + R"(}],"structuredContent":)" + document +
                R"(,"isError":false}})" + "\n\n");
  EXPECT_TRUE(plane_.invokes[0].script->destroyed);
  EXPECT_EQ(plane_.invokes[0].request.on_detach(), v1::InvokeRequest::KEEP);
  EXPECT_TRUE(plane_.sent.empty());
  ASSERT_EQ(plane_.call_refs.size(), 1u) << "the control plane keeps it before it is told";
  EXPECT_EQ(plane_.call_refs[0].call_id(), CallId());
  EXPECT_EQ(bridge_->gauges().envelopes, 1u);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Jobs, AreNotMadeOfCallsThatTheControlPlaneCannotKeepNow) {
  AddCall(v1::CALL_WAITING);
  plane_.call_error = absl::UnavailableError("the control plane's store fails");
  const Answer waits = Call();
  Push(AcceptedAs(CallId()));
  loop_.RunFor(absl::Seconds(58));
  EXPECT_EQ(bridge_->gauges().envelopes, 0u);
  Push(Result(R"({"content":[]})"));
  EXPECT_TRUE(waits->ended);
  EXPECT_NE(waits->body.find(R"("result":{"content":[]})"), std::string::npos);

  const Answer job = Call();
  Push(AcceptedAs(CallId()));
  loop_.RunFor(absl::Seconds(48));
  EXPECT_FALSE(job->ended);
  plane_.call_error = absl::OkStatus();
  loop_.RunFor(absl::Seconds(5));
  EXPECT_TRUE(job->ended) << "the store is well again";
  EXPECT_EQ(bridge_->gauges().envelopes, 1u);
}

TEST_F(Jobs, AreGivenAsJsonToClientsWithoutStreams) {
  AddCall(v1::CALL_WAITING);
  const std::string session = Open();
  const Answer answer = Send("POST", "/mcp",
                             {{"Host", "localhost"},
                              {"Content-Type", "application/json"},
                              {"Accept", "application/json"},
                              {"Mcp-Session-Id", session}},
                             CallTool("maya.1f2e3d4c.bake"));
  const v1::InvokeRequest& request = plane_.invokes[0].request;
  // Its id comes with the acceptance, which opens no stream here.
  EXPECT_FALSE(request.never_open_stream());
  EXPECT_EQ(request.open_stream_after_ms(), 45'000u);
  loop_.RunFor(absl::Seconds(46));
  EXPECT_EQ(answer->status, 0);
  Push(AcceptedAs(CallId()));
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->Header("Content-Type"), "application/json");
  EXPECT_NE(answer->body.find(R"("status":"running","job_id":")" + std::string(kJobId)),
            std::string::npos);
}

TEST_F(Jobs, NobodyIsAskedThroughAnAnswerThatIsNoStream) {
  const std::string session = Open();
  Send("POST", "/mcp",
       {{"Host", "localhost"},
        {"Content-Type", "application/json"},
        {"Accept", "application/json"},
        {"Mcp-Session-Id", session}},
       CallTool("maya.1f2e3d4c.bake"));
  Push(AcceptedAs(CallId()));
  v1::InvokeEvent ask;
  ask.mutable_ask()->set_ask_id("a.1.2");
  ask.mutable_ask()->set_method("elicitation/create");
  Push(ask);
  ASSERT_EQ(plane_.sent.size(), 1u);
  EXPECT_EQ(plane_.sent[0].session_id(), session);
  EXPECT_EQ(plane_.sent[0].answer().ask_id(), "a.1.2");
  EXPECT_NE(plane_.sent[0].answer().error().find("cannot be asked"), std::string::npos);
}

TEST_F(Jobs, AreNotMadeOfCallsThatShowProgressOrAreQuickOrOfOneInstance) {
  const std::string session = Open();
  const Answer watched = PostIn(
      session,
      R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call_tool","_meta":{"progressToken":7},"arguments":{"tool_slug":"maya.1f2e3d4c.bake"}}})");
  Push(AcceptedAs(CallId()));
  loop_.RunFor(absl::Minutes(2));
  EXPECT_FALSE(watched->ended);
  const Answer quick = PostIn(session, CallTool("maya.1f2e3d4c.bake", "{}", "2"));
  Push(AcceptedAs(CallId()));
  Push(Result(R"({"content":[]})"));
  EXPECT_TRUE(quick->ended);
  plane_.instances = {Row("maya-1", "aabbccdd00")};
  const Answer own = PostIn(
      Open("2025-11-25", "/mcp/maya-1"),
      R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bake"}})", "/mcp/maya-1");
  Push(AcceptedAs(CallId()));
  loop_.RunFor(absl::Minutes(2));
  EXPECT_FALSE(own->ended);
  EXPECT_EQ(bridge_->gauges().envelopes, 0u);
}

TEST_F(Jobs, ThatWaitInTheQueueArePending) {
  AddCall(v1::CALL_QUEUED);
  const Answer answer = Call();
  v1::InvokeEvent queued;
  queued.mutable_status()->set_phase(v1::CALL_QUEUED);
  Push(queued);
  Push(AcceptedAs(CallId()));
  loop_.RunFor(absl::Seconds(46));
  EXPECT_NE(answer->body.find(R"("structuredContent":{"status":"pending","job_id":)"),
            std::string::npos);
}

TEST_F(Jobs, TellTheirResultAsTheToolGaveIt) {
  v1::Call& call = AddCall(v1::CALL_SUCCEEDED);
  call.mutable_outcome()->set_class_(v1::RESULT);
  call.mutable_outcome()->mutable_body()->set_inline_(R"({"content":[],"x":1.10})");
  const std::string expected =
      R"({"job_id":"000102030405060708090a0b0c0d0e0f","status":"completed","tool":"bake","seat_id":"s","attempt":1,"age_ms":0,"queue_ms":0,"run_ms":70,"certainty":"finished","result":{"content":[],"x":1.10}})";
  const std::string arguments = R"({"job_id":")" + std::string(kJobId) + R"("})";
  const Answer status = Tool("jobs_get_status", arguments);
  EXPECT_EQ(Document(status), expected);
  EXPECT_EQ(Document(Tool("jobs_wait", arguments)), expected);
  const v1::CallRef& ref = plane_.call_refs[0];
  EXPECT_EQ(ref.call_id(), CallId());
  EXPECT_EQ(ref.session_id(), session_);
  EXPECT_TRUE(ref.with_outcome());
  EXPECT_EQ(ref.wait_ms(), 0u);
  EXPECT_EQ(plane_.call_refs[1].wait_ms(), 30'000u);
  Tool("jobs_wait", R"({"job_id":"8d0c-uuid","timeout_secs":600,"include_result":false})");
  EXPECT_EQ(plane_.call_refs[2].backend_job_id(), "8d0c-uuid");
  EXPECT_EQ(plane_.call_refs[2].wait_ms(), 45'000u);
  EXPECT_FALSE(plane_.call_refs[2].with_outcome());
}

TEST_F(Jobs, TellALargeResultInFullWhichTheyFetchForEachPlace) {
  v1::Call& call = AddCall(v1::CALL_SUCCEEDED);
  call.mutable_outcome()->set_class_(v1::RESULT);
  const std::string body = R"({"content":[{"type":"text","text":"\"a\" b"}],"x":1.10})";
  call.mutable_outcome()->mutable_body()->set_size(body.size());
  plane_.fetched = Fetched(body);
  const std::string arguments = R"({"job_id":")" + std::string(kJobId) + R"("})";
  const Answer answer = Tool("jobs_get_status", arguments);
  EXPECT_TRUE(answer->ended);
  const std::string expected =
      R"({"job_id":"000102030405060708090a0b0c0d0e0f","status":"completed","tool":"bake","seat_id":"s","attempt":1,"age_ms":0,"queue_ms":0,"run_ms":70,"certainty":"finished","result":)" +
      body + "}";
  EXPECT_EQ(Document(answer), expected);
  EXPECT_NE(answer->body.find(R"([{"type":"text","text":)" + core::QuoteJson(expected)),
            std::string::npos);
  ASSERT_EQ(plane_.fetches.size(), 2u);
  EXPECT_EQ(plane_.fetches[0].call_id(), CallId());
  EXPECT_EQ(plane_.fetches[0].session_id(), session_);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Jobs, SayWhyALargeResultCannotBeHad) {
  v1::Call& call = AddCall(v1::CALL_SUCCEEDED);
  call.mutable_outcome()->set_class_(v1::RESULT);
  call.mutable_outcome()->mutable_body()->set_size(70'000);
  const std::string arguments = R"({"job_id":")" + std::string(kJobId) + R"("})";
  plane_.fetch_end = absl::UnavailableError("its result is not here yet; ask again");
  std::string document = Document(Tool("jobs_get_status", arguments));
  EXPECT_NE(document.find(R"("message":"its result is not here yet; ask again")"),
            std::string::npos);
  EXPECT_NE(document.find(R"("result_bytes":70000)"), std::string::npos);
  v1::InvokeEvent gone;
  gone.mutable_outcome()->set_class_(v1::LOST);
  gone.mutable_outcome()->set_message("its result is not kept: its agent has lost it");
  plane_.fetched = {gone};
  document = Document(Tool("jobs_wait", arguments));
  EXPECT_NE(document.find(R"("status":"completed")"), std::string::npos);
  EXPECT_NE(document.find("its agent has lost it"), std::string::npos);
  EXPECT_EQ(document.find("result_bytes"), std::string::npos);
}

TEST_F(Jobs, LosingTheControlPlaneHalfWayBreakTheAnswer) {
  v1::Call& call = AddCall(v1::CALL_SUCCEEDED);
  call.mutable_outcome()->set_class_(v1::RESULT);
  const std::string body = R"({"content":[]})";
  call.mutable_outcome()->mutable_body()->set_size(body.size());
  plane_.fetched = Fetched(body);
  plane_.fetched.pop_back();
  plane_.fetch_end = absl::AbortedError("gone");
  const Answer answer = Tool("jobs_get_status", R"({"job_id":")" + std::string(kJobId) + R"("})");
  EXPECT_TRUE(answer->aborted || answer->ended);
  EXPECT_EQ(answer->body.find("isError"), std::string::npos);
}

TEST_F(Jobs, ThatGoOnNameWhatToDoNext) {
  AddCall(v1::CALL_WAITING);
  const std::string arguments = R"({"job_id":")" + std::string(kJobId) + R"("})";
  const Answer waited = Tool("jobs_wait", arguments);
  EXPECT_NE(Document(waited).find(R"("timed_out":true,"next_step":{"tool":"jobs_wait")"),
            std::string::npos);
  EXPECT_NE(waited->body.find(R"("isError":false)"), std::string::npos);
  const Answer cancelled = Tool("jobs_cancel", arguments);
  EXPECT_NE(Document(cancelled).find(R"("status":"running")"), std::string::npos);
  EXPECT_EQ(Document(cancelled).find("timed_out"), std::string::npos);
}

TEST_F(Jobs, ThatEndedBadlyAreErrorsForWhoeverWaited) {
  v1::Call& call = AddCall(v1::CALL_FAILED);
  call.set_reason(v1::DCC_EXITED);
  call.set_certainty(v1::UNKNOWN);
  call.set_message("maya ended with signal 9");
  const std::string arguments = R"({"job_id":")" + std::string(kJobId) + R"("})";
  const Answer waited = Tool("jobs_wait", arguments);
  EXPECT_NE(Document(waited).find(R"("status":"interrupted")"), std::string::npos);
  EXPECT_NE(Document(waited).find(R"("certainty":"unknown","reason":"dcc_exited")"),
            std::string::npos);
  EXPECT_NE(waited->body.find(R"("isError":true)"), std::string::npos);
  EXPECT_NE(Tool("jobs_get_status", arguments)->body.find(R"("isError":false)"), std::string::npos);
}

TEST_F(Jobs, OfSomebodyElseAreNotFound) {
  const Answer answer = Tool("jobs_get_status", R"({"job_id":"ffffffffffffffffffffffffffffffff"})");
  EXPECT_NE(answer->body.find("no job 'ffffffffffffffffffffffffffffffff' of yours"),
            std::string::npos);
  EXPECT_NE(answer->body.find(R"("isError":true)"), std::string::npos);
  EXPECT_NE(Tool("jobs_wait", "{}")->body.find("job_id is missing"), std::string::npos);
}

}  // namespace
}  // namespace callboard::tests
