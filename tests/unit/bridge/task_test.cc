// Tests of the tasks extension of MCP 2026-07-28: which calls become tasks, and what is said of
// them.
#include <gmock/gmock.h>

#include "absl/strings/escaping.h"
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kSeat[] = "aabbccdd000000000000000000000000";
// 2026-11-30T12:00:00.000Z, then what is random of it.
constexpr char kCallHex[] = "01a22c5382007abc8def0123456789ab";
constexpr char kTask[] = "callboard-01a22c5382007abc8def0123456789ab";

class Tasks : public BridgeTest {
 protected:
  void SetUp() override {
    bridge::BridgeConfig config;
    config.modern = true;
    Restart(std::move(config));
    plane_.instances = {Row("maya-1", kSeat)};
    plane_.tools = {Hit("maya", "bake")};
  }
  static std::string Params(const std::string& members, bool declares = true) {
    const std::string extension = R"({"extensions":{"io.modelcontextprotocol/tasks":{}}})";
    return "{" + members + R"(,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",)" +
           R"("io.modelcontextprotocol/clientCapabilities":)" + (declares ? extension : "{}") +
           "}}";
  }
  Answer Ask(const std::string& method, const std::string& named, const std::string& params,
             std::string target = "/mcp/maya-1") {
    return Post(
        R"({"jsonrpc":"2.0","id":1,"method":")" + method + R"(","params":)" + params + "}",
        {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", method}, {"Mcp-Name", named}},
        std::move(target));
  }
  Answer Call(bool declares = true, const std::string& meta = "") {
    std::string params = Params(R"("name":"bake","arguments":{})", declares);
    if (!meta.empty()) params.insert(params.find(R"("_meta":{)") + 9, meta + ",");
    return Ask("tools/call", "bake", params);
  }
  Answer OfTask(const std::string& method, const std::string& task = kTask,
                std::string target = "/mcp/maya-1", bool declares = true) {
    return Ask(method, task, Params(R"("taskId":")" + task + "\"", declares), std::move(target));
  }
  void Push(v1::InvokeEvent event) {
    plane_.invokes.back().script->Push(std::move(event));
    loop_.RunReady();
  }
  static v1::InvokeEvent AcceptedCall() {
    v1::InvokeEvent event;
    event.mutable_accepted()->set_call_id(absl::HexStringToBytes(kCallHex));
    return event;
  }
  v1::Call& Known(v1::CallPhase phase) {
    v1::Call call;
    call.set_call_id(absl::HexStringToBytes(kCallHex));
    call.set_phase(phase);
    call.set_method("tools/call");
    call.set_tool("bake");
    call.set_age_ms(9000);
    if (phase >= v1::CALL_SUCCEEDED) call.set_ended_ms(2000);
    plane_.calls = {call};
    return plane_.calls.back();
  }
};

TEST_F(Tasks, AreOfferedOnEveryPath) {
  const std::string offered = R"("extensions":{"io.modelcontextprotocol/tasks":{}})";
  for (const char* target : {"/mcp", "/mcp/maya-1"}) {
    const Answer answer =
        Post(R"({"jsonrpc":"2.0","id":1,"method":"server/discover","params":)" +
                 Params(R"("x":1)", false) + "}",
             {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", "server/discover"}}, target);
    EXPECT_THAT(answer->body, HasSubstr(offered)) << target;
  }
  EXPECT_THAT(Initialize()->body, Not(HasSubstr("extensions"))) << "earlier revisions have none";
}

TEST_F(Tasks, CallThatTakesLongBecomesOneAndGoesOn) {
  Known(v1::CALL_WAITING);
  const Answer answer = Call();
  Push(AcceptedCall());
  loop_.RunFor(absl::Seconds(4));
  EXPECT_FALSE(answer->ended);
  loop_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(answer->ended);
  EXPECT_THAT(answer->body,
              HasSubstr(R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":")" +
                        std::string(kTask) +
                        R"(","status":"working","createdAt":"2026-11-30T12:00:00.000Z",)"
                        R"("lastUpdatedAt":"2026-11-30T12:00:00.000Z","ttlMs":86400000,)"
                        R"("pollIntervalMs":1000)"));
  ASSERT_EQ(plane_.call_refs.size(), 1u) << "it is told when tasks/get would find it";
  EXPECT_TRUE(plane_.call_refs[0].as_task()) << "whatever it asks now is the task's";
  EXPECT_EQ(plane_.invokes[0].request.on_detach(), v1::InvokeRequest::KEEP);
  EXPECT_TRUE(plane_.invokes[0].script->destroyed);
  EXPECT_EQ(bridge_->gauges().exchanges, 0u);
}

TEST_F(Tasks, CallThatEndsSoonIsAnsweredItself) {
  const Answer answer = Call();
  Push(Result(R"({"content":[]})"));
  EXPECT_EQ(answer->body,
            R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}})");
}

TEST_F(Tasks, CallThatEndsWhileItIsAskedForIsAnsweredItself) {
  Known(v1::CALL_SUCCEEDED);
  const Answer answer = Call();
  Push(AcceptedCall());
  loop_.RunFor(absl::Seconds(6));
  EXPECT_FALSE(answer->ended);
  Push(Result(R"({"content":[]})"));
  EXPECT_THAT(answer->body, HasSubstr(R"("resultType":"complete","content":[])"));
}

TEST_F(Tasks, ClientsThatWatchOrDoNotDeclareThemGetTheResult) {
  Known(v1::CALL_WAITING);
  const Answer watching = Call(true, R"("progressToken":7)");
  Push(AcceptedCall());
  const Answer other = Call(false);
  Push(AcceptedCall());
  loop_.RunFor(absl::Minutes(2));
  EXPECT_FALSE(watching->ended);
  EXPECT_FALSE(other->ended);
  EXPECT_TRUE(plane_.call_refs.empty());
  EXPECT_EQ(plane_.invokes[1].request.on_detach(), v1::InvokeRequest::CANCEL);
}

TEST_F(Tasks, OnTheFacadeTheyTakeThePlaceOfJobsAndBackendsHaveNone) {
  Known(v1::CALL_WAITING);
  const Answer answer = Ask("tools/call", "call_tool",
                            Params(R"("name":"call_tool","arguments":{"tool_slug":)"
                                   R"("maya.1f2e3d4c.bake"})"),
                            "/mcp");
  ASSERT_EQ(plane_.invokes.size(), 1u);
  EXPECT_EQ(plane_.invokes[0].request.client().capabilities(), R"({"extensions":{}})");
  Push(AcceptedCall());
  loop_.RunFor(absl::Seconds(6));
  EXPECT_THAT(answer->body, HasSubstr(kTask));
  EXPECT_THAT(answer->body, Not(HasSubstr("job_id")));
}

TEST_F(Tasks, GetTellsHowTheCallIs) {
  v1::Call& call = Known(v1::CALL_QUEUED);
  call.set_message("queued: 2 before this call");
  const Answer answer = OfTask("tasks/get");
  EXPECT_EQ(answer->status, 200);
  EXPECT_THAT(answer->body, HasSubstr(R"("result":{)"));
  EXPECT_THAT(answer->body,
              HasSubstr(R"("resultType":"complete","taskId":")" + std::string(kTask) +
                        R"(","status":"working","statusMessage":"queued: 2 before this call")"));
  EXPECT_TRUE(plane_.call_refs.back().with_outcome());
}

TEST_F(Tasks, GetHasTheResultAsTheCallItselfWouldHaveIt) {
  for (const char* target : {"/mcp", "/mcp/maya-1"}) {
    v1::Call& call = Known(v1::CALL_FAILED);
    call.mutable_outcome()->set_class_(v1::RESULT);
    call.mutable_outcome()->mutable_body()->set_inline_(R"({"content":[],"isError":true})");
    const Answer answer = OfTask("tasks/get", kTask, target);
    EXPECT_THAT(answer->body, HasSubstr(R"("status":"completed")"));
    EXPECT_THAT(answer->body, HasSubstr(R"("lastUpdatedAt":"2026-11-30T12:00:07.000Z")"));
    EXPECT_THAT(answer->body, HasSubstr(R"("result":{"resultType":"complete",)"));
    EXPECT_THAT(answer->body, HasSubstr(R"("content":[],"isError":true)"));
  }
}

TEST_F(Tasks, GetHasTheErrorOfACallThatFailed) {
  v1::Call& call = Known(v1::CALL_FAILED);
  call.mutable_outcome()->set_class_(v1::RPC_ERROR);
  call.mutable_outcome()->mutable_body()->set_inline_(R"({"code":-32002,"message":"gone"})");
  EXPECT_THAT(OfTask("tasks/get")->body, HasSubstr(R"("error":{"code":-32602,"message":"gone"})"));

  v1::Call& late = Known(v1::CALL_TIMED_OUT);
  late.set_reason(v1::RUN_BUDGET_SPENT);
  late.set_message("the budget of 120 s is over");
  late.mutable_outcome()->set_class_(v1::RESULT);
  late.mutable_outcome()->set_late(true);
  const Answer answer = OfTask("tasks/get");
  EXPECT_THAT(answer->body, HasSubstr(R"("status":"failed")"));
  EXPECT_THAT(answer->body, HasSubstr("the budget of 120 s is over"));
  EXPECT_THAT(answer->body, Not(HasSubstr(R"("status":"completed")")));
}

TEST_F(Tasks, GetHasALargeResultInFull) {
  v1::Call& call = Known(v1::CALL_SUCCEEDED);
  call.mutable_outcome()->set_class_(v1::RESULT);
  const std::string body = R"({"content":[],"x":"y"})";
  call.mutable_outcome()->mutable_body()->set_size(body.size());
  plane_.fetched.resize(2);
  *plane_.fetched[0].mutable_outcome() = call.outcome();
  plane_.fetched[1].mutable_chunk()->set_bytes(body);
  plane_.fetched[1].mutable_chunk()->set_last(true);
  const Answer answer = OfTask("tasks/get");
  EXPECT_EQ(answer->status, 200);
  EXPECT_TRUE(answer->ended);
  EXPECT_THAT(answer->body, HasSubstr(R"("status":"completed")"));
  EXPECT_THAT(answer->body,
              HasSubstr(R"("result":{"resultType":"complete","content":[],"x":"y"})"));
  EXPECT_EQ(answer->content_length, answer->body.size());
  plane_.fetched.clear();
  plane_.fetch_end = absl::UnavailableError("its result is not here yet; ask again");
  const Answer later = OfTask("tasks/get");
  EXPECT_EQ(later->status, 503);
  EXPECT_THAT(later->body, HasSubstr("is not here yet; ask again"));
  plane_.fetch_end = absl::UnimplementedError("of an older control plane");
  EXPECT_THAT(OfTask("tasks/get")->body, HasSubstr("its result is not kept"));
}

TEST_F(Tasks, ResultThatIsNotKeptIsAFailureThatSaysSo) {
  Known(v1::CALL_SUCCEEDED);
  const Answer answer = OfTask("tasks/get");
  EXPECT_THAT(answer->body, HasSubstr(R"("status":"failed")"));
  EXPECT_THAT(answer->body, HasSubstr("its result is not kept"));
  Known(v1::CALL_CANCELLED);
  EXPECT_THAT(OfTask("tasks/get")->body, HasSubstr(R"("status":"cancelled")"));
}

TEST_F(Tasks, CancelAndUpdateAreAcknowledged) {
  Known(v1::CALL_WAITING);
  for (const char* method : {"tasks/cancel", "tasks/update"}) {
    const Answer answer = OfTask(method);
    EXPECT_EQ(answer->status, 200);
    EXPECT_THAT(answer->body, HasSubstr(R"("result":{"resultType":"complete")")) << method;
    EXPECT_THAT(answer->body, Not(HasSubstr("taskId"))) << method;
  }
  EXPECT_EQ(plane_.call_refs.size(), 3u) << "twice found, once cancelled";
}

TEST_F(Tasks, GetTellsWhatTheCallAsks) {
  v1::Call& call = Known(v1::CALL_WAITING);
  (*call.mutable_input_requests())["ask-3"] = R"({"method":"roots/list"})";
  (*call.mutable_input_requests())["ask-2"] = R"({"method":"elicitation/create"})";
  const Answer answer = OfTask("tasks/get");
  EXPECT_THAT(answer->body, HasSubstr(R"("status":"input_required")"));
  EXPECT_THAT(answer->body, HasSubstr(R"("inputRequests":{"ask-2":{"method":"elicitation/create"},)"
                                      R"("ask-3":{"method":"roots/list"}})"));
  EXPECT_THAT(answer->body, HasSubstr(R"("resultType":"complete")"));
}

TEST_F(Tasks, UpdateBringsTheAnswers) {
  Known(v1::CALL_WAITING);
  const auto update = [&](const std::string& responses) {
    return Ask("tasks/update", kTask,
               Params(R"("taskId":")" + std::string(kTask) + R"(","inputResponses":)" + responses));
  };
  EXPECT_THAT(update(R"({"ask-2":{"action":"accept"}})")->body,
              HasSubstr(R"("result":{"resultType":"complete")"));
  ASSERT_EQ(plane_.sent.size(), 1u);
  EXPECT_EQ(plane_.sent[0].input().call_id(), absl::HexStringToBytes(kCallHex));
  EXPECT_EQ(plane_.sent[0].input().responses(), R"({"ask-2":{"action":"accept"}})");
  EXPECT_EQ(plane_.sent[0].session_id(), "");
  EXPECT_THAT(update("7")->body,
              HasSubstr(R"("code":-32602,"message":"inputResponses must be an object")"));
  EXPECT_EQ(plane_.sent.size(), 1u);
  plane_.send_error = absl::InvalidArgumentError("inputResponses['ask-2'] must be an object");
  EXPECT_THAT(update(R"({"ask-2":1})")->body,
              HasSubstr(R"("code":-32602,"message":"inputResponses['ask-2'] must be an object")"));
}

TEST_F(Tasks, UnknownOnesAndCallsOfSessionsAreInvalidParams) {
  const std::string unknown = R"("error":{"code":-32602,"message":"unknown task 'callboard-)";
  EXPECT_THAT(OfTask("tasks/get")->body, HasSubstr(unknown));
  Known(v1::CALL_WAITING).set_session_id("s1");
  for (const char* method : {"tasks/get", "tasks/cancel", "tasks/update"}) {
    EXPECT_THAT(OfTask(method)->body, HasSubstr(unknown)) << method;
  }
  EXPECT_THAT(OfTask("tasks/get", "abc", "/mcp")->body, HasSubstr("unknown task 'abc'"));
  EXPECT_THAT(OfTask("tasks/get", "callboard-xyz", "/mcp")->body, HasSubstr("unknown task"));
}

TEST_F(Tasks, ClientsHaveToDeclareThem) {
  Known(v1::CALL_WAITING);
  const Answer answer = OfTask("tasks/get", kTask, "/mcp/maya-1", false);
  EXPECT_EQ(answer->status, 400);
  EXPECT_THAT(answer->body, HasSubstr(R"("code":-32021)"));
  EXPECT_THAT(answer->body, HasSubstr(R"("data":{"requiredCapabilities":{"extensions":)"
                                      R"({"io.modelcontextprotocol/tasks":{}}}})"));
}

TEST_F(Tasks, TasksOfTheBackendPassThrough) {
  const Answer answer = OfTask("tasks/get", "5f0c");
  ASSERT_EQ(plane_.invokes.size(), 1u);
  EXPECT_EQ(plane_.invokes[0].request.method(), "tasks/get");
  EXPECT_EQ(plane_.invokes[0].request.params(), R"({"taskId":"5f0c"})");
  Push(Result(R"({"resultType":"complete","taskId":"5f0c","status":"working"})"));
  EXPECT_THAT(answer->body, HasSubstr(R"("taskId":"5f0c","status":"working")"));

  const Answer none = OfTask("tasks/get", "5f0d");
  v1::InvokeEvent error;
  error.mutable_outcome()->set_class_(v1::RPC_ERROR);
  error.mutable_outcome()->mutable_body()->set_inline_(R"({"code":-32601,"message":"what?"})");
  Push(error);
  EXPECT_EQ(none->status, 200);
  EXPECT_THAT(none->body, HasSubstr(R"("code":-32602,"message":"unknown task")"))
      << "a seat whose backend has no tasks";
}

TEST_F(Tasks, UnknownOnesPassOnToACallboardBehindTheSeat) {
  plane_.instances[0].set_modern_capabilities(
      R"({"extensions":{"io.modelcontextprotocol/tasks":{}}})");
  const Answer answer = OfTask("tasks/get");
  ASSERT_EQ(plane_.invokes.size(), 1u);
  EXPECT_EQ(plane_.invokes[0].request.method(), "tasks/get");
  EXPECT_EQ(plane_.invokes[0].request.params(), R"({"taskId":")" + std::string(kTask) + "\"}");
  Push(Result(R"({"resultType":"complete","status":"working"})"));
  EXPECT_THAT(answer->body, HasSubstr(R"("status":"working")"));
  for (const char* method : {"tasks/cancel", "tasks/update"}) {
    OfTask(method);
    EXPECT_EQ(plane_.invokes.back().request.method(), method);
  }
  // One that is known here is ours, and behind the facade there are no tasks of backends.
  EXPECT_THAT(OfTask("tasks/get", kTask, "/mcp")->body, HasSubstr("unknown task"));
  Known(v1::CALL_WAITING);
  EXPECT_THAT(OfTask("tasks/get")->body, HasSubstr(R"("status":"working")"));
  EXPECT_EQ(plane_.invokes.size(), 3u);
}

TEST_F(Tasks, ListenersAreToldOnceHowTheirTasksEnd) {
  Known(v1::CALL_WAITING);
  const std::string wish = R"("notifications":{"taskIds":[")" + std::string(kTask) +
                           R"(","of-a-backend","callboard-00000000000000000000000000000000"]})";
  const auto listen = [&](std::string target, bool declares = true) {
    return Post(R"({"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":)" +
                    Params(wish, declares) + "}",
                {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", "subscriptions/listen"}},
                std::move(target));
  };
  EXPECT_EQ(listen("/mcp", false)->status, 400);
  const Answer answer = listen("/mcp");
  EXPECT_THAT(answer->body, HasSubstr("notifications/subscriptions/acknowledged"));
  EXPECT_THAT(answer->body, HasSubstr(R"("notifications":{"taskIds":[")" + std::string(kTask)));
  EXPECT_THAT(answer->body, Not(HasSubstr("of-a-backend")));
  answer->body.clear();
  loop_.RunFor(absl::Seconds(5));
  EXPECT_THAT(answer->body, Not(HasSubstr("notifications/tasks")));
  v1::Call& call = Known(v1::CALL_SUCCEEDED);
  call.mutable_outcome()->set_class_(v1::RESULT);
  call.mutable_outcome()->mutable_body()->set_inline_(R"({"content":[]})");
  loop_.RunFor(absl::Seconds(5));
  EXPECT_THAT(answer->body,
              HasSubstr(R"({"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":")" +
                        std::string(kTask) + R"(","status":"completed")"));
  EXPECT_THAT(answer->body, HasSubstr(R"("io.modelcontextprotocol/subscriptionId":"L")"));
  EXPECT_EQ(answer->body.find("notifications/tasks"), answer->body.rfind("notifications/tasks"));
  EXPECT_FALSE(answer->ended);
  const size_t asked = plane_.call_refs.size();
  loop_.RunFor(absl::Minutes(5));
  EXPECT_EQ(plane_.call_refs.size(), asked) << "nothing is left to wait for";
}

TEST_F(Tasks, ListenersOfAnInstanceHearItOfTasksThatOnlyItKnows) {
  const std::string inner = "callboard-00000000000000000000000000000000";
  Known(v1::CALL_WAITING);
  const auto listen = [&] {
    return Post(R"({"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":)" +
                    Params(R"("notifications":{"taskIds":[")" + std::string(kTask) + "\",\"" +
                           inner + R"("]})") +
                    "}",
                {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", "subscriptions/listen"}},
                "/mcp/maya-1");
  };
  const Answer none = listen();
  ASSERT_EQ(plane_.listens.size(), 1u);
  EXPECT_EQ(plane_.listens[0].request.wish().task_ids_size(), 0) << "it has no tasks";
  plane_.instances[0].set_modern_capabilities(
      R"({"extensions":{"io.modelcontextprotocol/tasks":{}}})");
  const Answer answer = listen();
  ASSERT_EQ(plane_.listens.size(), 2u);
  ASSERT_EQ(plane_.listens[1].request.wish().task_ids_size(), 1);
  EXPECT_EQ(plane_.listens[1].request.wish().task_ids(0), inner);
}

class LargeTasks : public Tasks {
 protected:
  // The task is over, and its result is kept by the control plane.
  void End(std::vector<std::string> pieces) {
    v1::Call& call = Known(v1::CALL_SUCCEEDED);
    call.mutable_outcome()->set_class_(v1::RESULT);
    size_t size = 0;
    for (const std::string& piece : pieces) size += piece.size();
    call.mutable_outcome()->mutable_body()->set_size(size);
    plane_.fetched.resize(1);
    *plane_.fetched[0].mutable_outcome() = call.outcome();
    for (const std::string& piece : pieces) {
      plane_.fetched.emplace_back().mutable_chunk()->set_bytes(piece);
    }
  }
  Answer Hear() {
    const std::string wish = R"("notifications":{"taskIds":[")" + std::string(kTask) + R"("]})";
    return Post(R"({"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":)" +
                    Params(wish) + "}",
                {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", "subscriptions/listen"}});
  }
};

TEST_F(LargeTasks, ListenersAreToldTheirResultsOnceTheyAreHere) {
  End({R"({"content":[],)", R"("x":"y"})"});
  const auto whole = std::exchange(plane_.fetched, {});
  plane_.fetch_end = absl::UnavailableError("its result is not here yet; ask again");
  const Answer answer = Hear();
  loop_.RunFor(absl::Seconds(5));
  EXPECT_THAT(answer->body, Not(HasSubstr("notifications/tasks")));
  plane_.fetch_end = absl::OkStatus();
  plane_.fetched = whole;
  loop_.RunFor(absl::Seconds(5));
  EXPECT_THAT(answer->body,
              HasSubstr(R"("result":{"resultType":"complete","content":[],"x":"y"})"));
  EXPECT_THAT(answer->body, HasSubstr(R"("io.modelcontextprotocol/subscriptionId":"L")"));
  EXPECT_EQ(answer->body.find("notifications/tasks"), answer->body.rfind("notifications/tasks"));
  EXPECT_FALSE(answer->ended);
  const size_t fetches = plane_.fetches.size();
  loop_.RunFor(absl::Minutes(5));
  EXPECT_EQ(plane_.fetches.size(), fetches);
}

TEST_F(LargeTasks, ListenersAreToldOfResultsThatAreNotKept) {
  End({"{}"});
  plane_.fetched.clear();
  plane_.fetch_end = absl::UnimplementedError("of an older control plane");
  const Answer answer = Hear();
  loop_.RunFor(absl::Seconds(5));
  EXPECT_THAT(answer->body, HasSubstr(R"("status":"failed")"));
  EXPECT_THAT(answer->body, HasSubstr("its result is not kept"));
}

TEST_F(LargeTasks, AResultThatStopsInItsMiddleEndsTheStream) {
  End({R"({"content":[],)", R"("x":"y"})"});
  plane_.fetched.pop_back();
  plane_.fetch_end = absl::UnavailableError("the control plane has ended");
  const Answer answer = Hear();
  loop_.RunFor(absl::Seconds(5));
  EXPECT_THAT(answer->body, HasSubstr(R"("content":[],)"));
  EXPECT_TRUE(answer->aborted);
}

TEST_F(Tasks, ListenersAreToldWhatTheirTasksAskAndThatItIsAnswered) {
  (*Known(v1::CALL_WAITING).mutable_input_requests())["ask-2"] = R"({"method":"roots/list"})";
  const std::string wish = R"("notifications":{"taskIds":[")" + std::string(kTask) + R"("]})";
  const Answer answer = Post(
      R"({"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":)" + Params(wish) + "}",
      {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", "subscriptions/listen"}});
  EXPECT_THAT(answer->body, HasSubstr(R"("status":"input_required")"));
  EXPECT_THAT(answer->body, HasSubstr(R"("inputRequests":{"ask-2":{"method":"roots/list"}})"));
  answer->body.clear();
  loop_.RunFor(absl::Seconds(5));
  EXPECT_THAT(answer->body, Not(HasSubstr("notifications/tasks"))) << "once";
  EXPECT_TRUE(plane_.call_refs.back().watch_input());
  ASSERT_EQ(plane_.call_refs.back().known_input_size(), 1);
  EXPECT_EQ(plane_.call_refs.back().known_input(0), "ask-2");
  Known(v1::CALL_WAITING);
  loop_.RunFor(absl::Seconds(2));
  EXPECT_THAT(answer->body, HasSubstr(R"("status":"working")"));
  EXPECT_EQ(answer->body.find("notifications/tasks"), answer->body.rfind("notifications/tasks"));
}

TEST_F(Tasks, WhoHangsUpBeforeThereIsOneHasCancelled) {
  Known(v1::CALL_WAITING);
  const Answer answer = Call();
  Push(AcceptedCall());
  answer->on_peer_gone();
  loop_.RunReady();
  ASSERT_EQ(plane_.call_refs.size(), 1u);
  EXPECT_EQ(plane_.call_refs[0].call_id(), absl::HexStringToBytes(kCallHex));
}

}  // namespace
}  // namespace callboard::tests
