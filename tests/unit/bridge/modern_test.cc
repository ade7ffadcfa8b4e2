// Tests of revision 2026-07-28 on the same paths: what belongs to it, what it is answered, and what
// a client that hangs up means.
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

constexpr char kSeat[] = "aabbccdd000000000000000000000000";
constexpr char kEnvelope[] = R"("io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
                             R"("io.modelcontextprotocol/clientCapabilities":{"sampling":{}},)"
                             R"("io.modelcontextprotocol/clientInfo":{"name":"c"})";

class Modern : public BridgeTest {
 protected:
  void SetUp() override {
    Restart({.modern = true});
    plane_.instances = {Row("maya-1", kSeat)};
  }
  // Params with an envelope; `members` and `meta` stand before and within it.
  static std::string Params(std::string members = "", std::string meta = kEnvelope) {
    if (!members.empty()) members += ",";
    return "{" + members + R"("_meta":{)" + meta + "}}";
  }
  static std::string Request(std::string method, std::string params = Params(),
                             std::string id = "1") {
    return R"({"jsonrpc":"2.0","id":)" + id + R"(,"method":")" + method + R"(","params":)" +
           params + "}";
  }
  Answer Ask(std::string method, std::string params = Params(), net::HeaderList extra = {},
             std::string target = "/mcp/maya-1") {
    net::HeaderList headers = {{"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", method}};
    headers.insert(headers.end(), extra.begin(), extra.end());
    return Post(Request(method, std::move(params)), std::move(headers), std::move(target));
  }
  Answer Call(std::string arguments = "{}", std::string meta = kEnvelope) {
    return Ask("tools/call", Params(R"("name":"bake","arguments":)" + arguments, std::move(meta)),
               {{"Mcp-Name", "bake"}});
  }
  static std::string CodeOf(const Answer& answer) {
    const size_t at = answer->body.find(R"("code":)");
    if (at == std::string::npos) return answer->body;
    return std::to_string(answer->status) + " " +
           answer->body.substr(at + 7, answer->body.find(',', at) - at - 7);
  }
  static v1::InvokeEvent BackendError(std::string error) {
    v1::InvokeEvent event;
    event.mutable_outcome()->set_class_(v1::RPC_ERROR);
    event.mutable_outcome()->mutable_body()->set_inline_(std::move(error));
    return event;
  }
};

TEST_F(Modern, DiscoverIsAnsweredWithoutASession) {
  const Answer facade = Ask("server/discover", Params(), {}, "/mcp");
  EXPECT_EQ(facade->status, 200);
  EXPECT_EQ(facade->Header("Content-Type"), "application/json");
  EXPECT_EQ(facade->Header("Mcp-Session-Id"), "");
  EXPECT_EQ(facade->body.find(
                R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",)"
                R"("supportedVersions":["2026-07-28","2025-11-25","2025-06-18",)"
                R"("2025-03-26"],"capabilities":{"tools":{"listChanged":false},"extensions":)"
                R"({"io.modelcontextprotocol/tasks":{}}},)"),
            0u)
      << facade->body;
  EXPECT_NE(facade->body.find(R"("ttlMs":0,"cacheScope":"private")"), std::string::npos);
  EXPECT_NE(
      facade->body.find(R"("_meta":{"io.modelcontextprotocol/serverInfo":{"name":"callboard")"),
      std::string::npos);
  EXPECT_TRUE(plane_.opened.empty());
}

TEST_F(Modern, DiscoverOfAnInstanceShowsItsCapabilitiesAndExtensions) {
  plane_.instances[0].set_modern_capabilities(
      R"({"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}})");
  const Answer answer = Ask("server/discover");
  EXPECT_NE(answer->body.find(R"("capabilities":{"tools":{"x":1,"listChanged":true},)"
                              R"("resources":{"subscribe":true},"logging":{},)"
                              R"("extensions":{"io.modelcontextprotocol/tasks":{}}})"),
            std::string::npos)
      << answer->body;
  EXPECT_NE(
      answer->body.find(R"("io.modelcontextprotocol/serverInfo":{"name":"toy","version":"3"})"),
      std::string::npos);
  plane_.instances[0].set_description_rest(R"({"com.example/rig":{"n":1.50},"_meta":{"k":[ 7 ]}})");
  const Answer more = Ask("server/discover");
  EXPECT_NE(more->body.find(R"("cacheScope":"private","_meta":{)"
                            R"("io.modelcontextprotocol/serverInfo":{"name":"toy","version":"3"},)"
                            R"("k":[ 7 ]},"com.example/rig":{"n":1.50}})"),
            std::string::npos)
      << more->body;
  EXPECT_EQ(CodeOf(Ask("server/discover", Params(), {}, "/mcp/nuke-9")), "404 -32602");
}

TEST_F(Modern, EraIsDecidedByTheBody) {
  // A stale session header counts for nothing.
  EXPECT_EQ(Ask("server/discover", Params(), {{"Mcp-Session-Id", "stale"}})->status, 200);
  // No claim, but the header: what is missing is named.
  const Answer bare = Post(R"({"jsonrpc":"2.0","id":7,"method":"tools/list"})",
                           {{"MCP-Protocol-Version", "2026-07-28"}});
  EXPECT_EQ(CodeOf(bare), "400 -32602");
  EXPECT_NE(bare->body.find("io.modelcontextprotocol/protocolVersion"), std::string::npos);
  EXPECT_NE(bare->body.find(R"("id":7)"), std::string::npos);
  // initialize opens a session, whatever else it says.
  EXPECT_EQ(Initialize()->status, 200);
  EXPECT_EQ(CodeOf(Post(R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{}})",
                        {{"MCP-Protocol-Version", "2026-07-28"}})),
            "400 -32020");
  EXPECT_EQ(CodeOf(Ask("initialize")), "404 -32601");
  // A claim that is older, or is not all that the era wants, makes no difference to it.
  for (const char* meta : {R"("io.modelcontextprotocol/protocolVersion":"2025-11-25")",
                           R"("io.modelcontextprotocol/protocolVersion":"2026-07-28")",
                           R"("io.modelcontextprotocol/protocolVersion":7)",
                           R"("io.modelcontextprotocol/protocolVersion":"2099-01-01",)"
                           R"("io.modelcontextprotocol/clientCapabilities":{})"}) {
    const Answer opened = Post(Request(
        "initialize",
        Params(R"("protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c"})",
               meta)));
    EXPECT_EQ(opened->status, 200) << meta << opened->body;
    EXPECT_NE(opened->Header("Mcp-Session-Id"), "") << meta;
  }
  // Other headers of the era are no evidence.
  const std::string session = Open();
  EXPECT_EQ(Post(R"({"jsonrpc":"2.0","id":1,"method":"ping"})",
                 {{"Mcp-Session-Id", session}, {"Mcp-Method", "ping"}})
                ->status,
            200);
}

TEST_F(Modern, HasNoBatches) {
  const std::string batch = R"([{"jsonrpc":"2.0","id":1,"method":"ping"}])";
  EXPECT_EQ(CodeOf(Post(batch, {{"MCP-Protocol-Version", "2026-07-28"}})), "400 -32600");
  EXPECT_EQ(CodeOf(Post(batch, {{"MCP-Protocol-Version", "2026-07-28"},
                                {"Mcp-Session-Id", Open("2025-03-26")}})),
            "400 -32600");
  EXPECT_EQ(CodeOf(Post(batch)), "400 -32600") << "and without a session there is none at all";
}

TEST_F(Modern, NoAnswerOfOursHasACodeOfEarlierRevisions) {
  plane_.list_error = absl::UnavailableError("the control plane is away");
  EXPECT_EQ(CodeOf(Ask("server/discover")), "503 -32603");
  plane_.list_error = absl::OkStatus();
  plane_.silent = true;
  const Answer silent = Ask("server/discover");
  loop_.RunFor(absl::Seconds(32));
  EXPECT_EQ(CodeOf(silent), "504 -32603");
  plane_.silent = false;
  const Answer text = Send("POST", "/mcp",
                           {{"Host", "localhost"},
                            {"Content-Type", "text/plain"},
                            {"MCP-Protocol-Version", "2026-07-28"}},
                           "{}");
  EXPECT_EQ(CodeOf(text), "415 -32600");

  bridge::BridgeConfig full{.modern = true};
  full.limits.exchanges_max = 0;
  Restart(std::move(full));
  EXPECT_EQ(CodeOf(Ask("server/discover")), "503 -32603");
  EXPECT_EQ(CodeOf(Post(R"({"jsonrpc":"2.0","id":1,"method":"ping"})")), "503 -32000");
}

TEST_F(Modern, NotificationsAreTakenAndDropped) {
  EXPECT_EQ(
      Post(R"({"jsonrpc":"2.0","method":"notifications/x","params":)" + Params() + "}")->status,
      202);
  EXPECT_EQ(Post(R"({"jsonrpc":"2.0","method":"notifications/x"})",
                 {{"MCP-Protocol-Version", "2026-07-28"}})
                ->status,
            202);
  EXPECT_TRUE(plane_.sent.empty());
  EXPECT_EQ(CodeOf(Post(R"({"jsonrpc":"2.0","id":1,"result":{}})",
                        {{"MCP-Protocol-Version", "2026-07-28"}})),
            "400 -32600");
  EXPECT_EQ(CodeOf(Post("[" + Request("tools/list") + "]")), "400 -32600");
}

TEST_F(Modern, HeadersMustSayWhatTheBodySays) {
  const std::string body = Request("tools/call", Params(R"("name":"bake","arguments":{})"));
  const auto code = [&](net::HeaderList headers) {
    return CodeOf(Post(body, std::move(headers), "/mcp/maya-1"));
  };
  const std::pair<std::string, std::string> version = {"MCP-Protocol-Version", "2026-07-28"};
  const std::pair<std::string, std::string> method = {"mcp-method", "tools/call"};
  EXPECT_EQ(code({method, {"Mcp-Name", "bake"}}), "400 -32020");
  EXPECT_EQ(code({{"MCP-Protocol-Version", "2025-11-25"}, method, {"Mcp-Name", "bake"}}),
            "400 -32020");
  EXPECT_EQ(code({version, {"Mcp-Name", "bake"}}), "400 -32020");
  EXPECT_EQ(code({version, {"Mcp-Method", "TOOLS/CALL"}, {"Mcp-Name", "bake"}}), "400 -32020");
  EXPECT_EQ(code({version, method}), "400 -32020");
  EXPECT_EQ(code({version, method, {"Mcp-Name", "Bake"}}), "400 -32020");
  EXPECT_EQ(code({version, method, {"Mcp-Name", "bake"}, {"Mcp-Name", "bake"}}), "400 -32020");
  EXPECT_EQ(code({version, method, {"Mcp-Name", "=?base64?YmFr?="}}), "400 -32020");
  EXPECT_TRUE(plane_.invokes.empty());
  for (const char* name : {"bake", "  bake ", "=?base64?YmFrZQ==?="}) {
    plane_.next_events = {Result("{}")};
    EXPECT_EQ(Post(body, {version, method, {"MCP-NAME", name}}, "/mcp/maya-1")->status, 200);
  }
}

TEST_F(Modern, VersionsThatAreNotServedAreToldWhichAre) {
  const std::string params = Params("", R"("io.modelcontextprotocol/protocolVersion":"v999.0.0")");
  const Answer answer =
      Post(Request("server/discover", params, R"("x")"), {{"MCP-Protocol-Version", "v999.0.0"}});
  EXPECT_EQ(CodeOf(answer), "400 -32022");
  EXPECT_NE(answer->body.find(R"("id":"x")"), std::string::npos);
  EXPECT_NE(answer->body.find(R"("data":{"supported":["2026-07-28"],"requested":"v999.0.0"})"),
            std::string::npos);
  EXPECT_EQ(
      CodeOf(Post(Request("server/discover", params), {{"MCP-Protocol-Version", "2026-07-28"}})),
      "400 -32020");
}

TEST_F(Modern, MethodsThatAreGoneOrUnknownAre404) {
  for (const char* method :
       {"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}) {
    EXPECT_EQ(CodeOf(Ask(method)), "404 -32601") << method;
  }
  EXPECT_EQ(CodeOf(Ask("prompts/list", Params(), {}, "/mcp")), "404 -32601");
  EXPECT_TRUE(plane_.invokes.empty());
  plane_.next_events = {BackendError(R"({"code":-32601,"message":"no such method"})")};
  EXPECT_EQ(CodeOf(Ask("unknown/method")), "404 -32601");
}

TEST_F(Modern, CallsGoWithoutASessionAndEndWithTheirConnection) {
  const Answer answer = Call(R"({"n": 1.0})", std::string(kEnvelope) +
                                                  R"(,"progressToken":"p","own":1,)"
                                                  R"("io.modelcontextprotocol/logLevel":"info")");
  ASSERT_EQ(plane_.invokes.size(), 1u);
  const v1::InvokeRequest& request = plane_.invokes[0].request;
  EXPECT_EQ(request.session_id(), "");
  EXPECT_EQ(request.target().instance(), "maya-1");
  EXPECT_EQ(request.params(),
            R"({"name":"bake","arguments":{"n": 1.0},"_meta":{"progressToken":"p","own":1}})");
  EXPECT_EQ(request.progress_token(), R"("p")");
  EXPECT_EQ(request.log_level(), "info");
  EXPECT_EQ(request.client().revision(), "2026-07-28");
  EXPECT_EQ(request.client().capabilities(), R"({"sampling":{}})");
  EXPECT_EQ(request.client().client_info(), R"({"name":"c"})");
  EXPECT_EQ(request.on_detach(), v1::InvokeRequest::CANCEL);
  EXPECT_EQ(answer->status, 0);
  answer->on_peer_gone();
  loop_.RunReady();
  EXPECT_TRUE(plane_.invokes[0].script->destroyed);
}

TEST_F(Modern, StreamsHaveNoIds) {
  const Answer answer = Call("{}", std::string(kEnvelope) + R"(,"progressToken":4)");
  v1::InvokeEvent accepted;
  accepted.mutable_accepted()->set_call_id("id");
  plane_.invokes[0].script->Push(accepted);
  v1::InvokeEvent progress;
  progress.mutable_stream_event()->set_method("notifications/progress");
  progress.mutable_stream_event()->set_params(R"({"progressToken":4,"progress":1})");
  plane_.invokes[0].script->Push(progress);
  loop_.RunReady();
  plane_.invokes[0].script->Push(Result(R"({"content":[]})"));
  loop_.RunReady();
  EXPECT_EQ(answer->Header("Content-Type"), "text/event-stream");
  EXPECT_EQ(answer->body,
            ": accepted\n\n"
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","
            "\"params\":{\"progressToken\":4,\"progress\":1}}\n\n"
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":"
            "{\"resultType\":\"complete\",\"content\":[]}}\n\n");
  EXPECT_TRUE(answer->ended);
}

TEST_F(Modern, ResultsOfOlderBackendsAreCompleted) {
  const auto result = [&](std::string method, std::string body, net::HeaderList extra = {},
                          std::string members = "") {
    plane_.next_events = {Result(std::move(body))};
    return Ask(std::move(method), Params(std::move(members)), std::move(extra))->body;
  };
  EXPECT_EQ(result("prompts/list", R"({"prompts":[ ]})"),
            R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,)"
            R"("cacheScope":"private","prompts":[ ]}})");
  EXPECT_EQ(result("completion/complete", "{}"),
            R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}})");
  // What the backend has said stays as it is.
  EXPECT_EQ(result("resources/read", R"({"ttlMs":5,"contents":[1],"resultType":"complete"})",
                   {{"Mcp-Name", "a://b"}}, R"("uri":"a://b")"),
            R"({"jsonrpc":"2.0","id":1,"result":{"cacheScope":"private","ttlMs":5,"contents":[1],)"
            R"("resultType":"complete"}})");
  EXPECT_EQ(
      result("resources/read", R"({"resultType":"input_required","requestState":"s"})",
             {{"Mcp-Name", "a://b"}}, R"("uri":"a://b")"),
      R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}})");
}

TEST_F(Modern, ListsOfToolsAreCompleted) {
  EXPECT_EQ(Ask("tools/list")->body,
            R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,)"
            R"("cacheScope":"private","tools":[{"name":"bake"}]}})");
  EXPECT_EQ(plane_.lists.back().target().instance(), "maya-1");
  EXPECT_NE(Ask("tools/list")->body.find(R"("tools":[{"name":"bake"}])"), std::string::npos);
  EXPECT_EQ(plane_.lists.back().known_digest(), "d1");
  const Answer facade = Ask("tools/list", Params(), {}, "/mcp");
  EXPECT_NE(facade->body.find(R"("name":"search_tools")"), std::string::npos);
  EXPECT_NE(facade->body.find(R"("resultType":"complete")"), std::string::npos);
  EXPECT_EQ(CodeOf(Ask("tools/list", Params(R"("cursor":"x")"))), "200 -32602");
}

TEST_F(Modern, ErrorsOfOlderBackendsAreTranslated) {
  plane_.next_events = {BackendError(R"({"code":-32002,"message":"none"})")};
  const Answer none = Ask("resources/read", Params(R"("uri":"a://b")"), {{"Mcp-Name", "a://b"}});
  EXPECT_EQ(none->status, 200);
  EXPECT_NE(none->body.find(R"("error":{"code":-32602,"message":"none","data":{"uri":"a://b"}})"),
            std::string::npos)
      << none->body;
  plane_.next_events = {BackendError(
      R"({"code":-32021,"message":"m","data":{"requiredCapabilities":{"roots":{}}}})")};
  EXPECT_EQ(CodeOf(Call()), "400 -32021");
  plane_.next_events = {Failed(v1::REJECTED, v1::QUEUE_FULL)};
  const Answer full = Call();
  EXPECT_EQ(CodeOf(full), "200 -32603");
  EXPECT_NE(full->body.find(R"("reason":"queue_full")"), std::string::npos);
  plane_.next_events = {Failed(v1::REJECTED, v1::PARAM_HEADER_MISMATCH)};
  EXPECT_EQ(CodeOf(Call()), "400 -32020");
}

TEST_F(Modern, ParameterHeadersGoWithTheCall) {
  Ask("tools/call", Params(R"("name":"bake")"),
      {{"Mcp-Name", "bake"}, {"Mcp-Param-Region", " eu"}, {"MCP-PARAM-X", "=?base64?eA==?="}});
  ASSERT_EQ(plane_.invokes.size(), 1u);
  const v1::InvokeRequest& request = plane_.invokes[0].request;
  ASSERT_EQ(request.param_headers_size(), 2);
  EXPECT_EQ(request.param_headers(0).name(), "region");
  EXPECT_EQ(request.param_headers(0).value(), " eu");
  EXPECT_EQ(request.param_headers(1).name(), "x");
}

TEST_F(Modern, LargeResultsAreCompletedOnTheirWay) {
  const Answer answer = Call();
  plane_.invokes[0].script->Push(Big(13));
  plane_.invokes[0].script->Push(Chunk(R"({"content)", false));
  loop_.RunReady();
  plane_.invokes[0].script->Push(Chunk(R"(":1})", true));
  loop_.RunReady();
  EXPECT_EQ(answer->body,
            R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":1}})");
  EXPECT_EQ(answer->content_length, answer->body.size());

  const Answer own = Call();
  v1::InvokeEvent big = Big(25);
  big.mutable_outcome()->mutable_facts()->add_era_fields("resultType");
  plane_.invokes[1].script->Push(big);
  plane_.invokes[1].script->Push(Chunk(R"({"resultType":"complete"})", true));
  loop_.RunReady();
  EXPECT_EQ(own->body, R"({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}})");
}

TEST_F(Modern, CallsOfTheFacadeMayBecomeJobsAndAreCancelledIfTheirClientHangsUp) {
  plane_.tools = {Hit("maya", "bake")};
  const std::string call =
      Params(R"("name":"call_tool","arguments":{"tool_slug":"maya.1f2e3d4c.bake"})");
  const Answer job = Ask("tools/call", call, {{"Mcp-Name", "call_tool"}}, "/mcp");
  EXPECT_EQ(plane_.invokes[0].request.on_detach(), v1::InvokeRequest::KEEP);
  v1::InvokeEvent accepted;
  accepted.mutable_accepted()->set_call_id("id");
  v1::Call& kept = plane_.calls.emplace_back();
  kept.set_call_id("id");
  kept.set_phase(v1::CALL_WAITING);
  plane_.invokes[0].script->Push(accepted);
  loop_.RunFor(absl::Seconds(46));
  EXPECT_TRUE(job->ended);
  EXPECT_NE(job->body.find("job_id"), std::string::npos) << job->body;
  EXPECT_NE(job->body.find(R"("resultType":"complete")"), std::string::npos);

  plane_.call_refs.clear();
  const Answer left = Ask("tools/call", call, {{"Mcp-Name", "call_tool"}}, "/mcp");
  left->on_peer_gone();
  loop_.RunReady();
  EXPECT_TRUE(plane_.call_refs.empty()) << "its id is not known yet";
  plane_.invokes[1].script->Push(accepted);
  loop_.RunReady();
  ASSERT_EQ(plane_.call_refs.size(), 1u);
  EXPECT_EQ(plane_.call_refs[0].call_id(), "id");
}

TEST_F(Modern, ListenersAreToldWhatTheyAskedFor) {
  const Answer answer =
      Ask("subscriptions/listen",
          Params(R"("notifications":{"toolsListChanged":true,"promptsListChanged":false,)"
                 R"("resourceSubscriptions":["a://b"]})"));
  ASSERT_EQ(plane_.listens.size(), 1u);
  const v1::ListenRequest& request = plane_.listens[0].request;
  EXPECT_EQ(request.session_id(), "");
  EXPECT_EQ(request.target().instance(), "maya-1");
  EXPECT_TRUE(request.wish().tools_list_changed());
  EXPECT_FALSE(request.wish().prompts_list_changed());
  ASSERT_EQ(request.wish().resource_uris_size(), 1);
  EXPECT_EQ(answer->status, 0) << "acknowledged before it was heard";
  v1::ListenEvent event;
  event.mutable_live();
  plane_.listens[0].script->Push(event);
  event.mutable_stream_event()->set_method("notifications/resources/updated");
  event.mutable_stream_event()->set_params(R"({"uri":"a://b","_meta":{"x":1}})");
  plane_.listens[0].script->Push(event);
  loop_.RunReady();
  EXPECT_EQ(answer->body,
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":"
            "\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":"
            "{\"io.modelcontextprotocol/subscriptionId\":1},\"notifications\":"
            "{\"toolsListChanged\":true,\"resourceSubscriptions\":[\"a://b\"]}}}\n\n"
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/"
            "updated\",\"params\":{\"uri\":\"a://b\",\"_meta\":{\"x\":1,"
            "\"io.modelcontextprotocol/subscriptionId\":1}}}\n\n");
  answer->on_peer_gone();
  loop_.RunReady();
  EXPECT_TRUE(plane_.listens[0].script->destroyed);
}

TEST_F(Modern, ListenersAreToldWhatOfTheirWishTheSeatCanTell) {
  const std::string wish =
      Params(R"("notifications":{"toolsListChanged":true,"promptsListChanged":true,)"
             R"("resourcesListChanged":true,"resourceSubscriptions":["a://b"],"taskIds":["t"]})",
             R"("io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
             R"("io.modelcontextprotocol/clientCapabilities":)"
             R"({"extensions":{"io.modelcontextprotocol/tasks":{}}})");
  const auto honoured = [&](const std::string& capabilities, const std::string& modern) {
    plane_.instances[0].set_capabilities(capabilities);
    plane_.instances[0].set_modern_capabilities(modern);
    const Answer answer = Ask("subscriptions/listen", wish);
    v1::ListenEvent live;
    live.mutable_live();
    plane_.listens.back().script->Push(live);
    loop_.RunReady();
    const size_t at = answer->body.find(R"("notifications":)");
    return at == std::string::npos ? answer->body : answer->body.substr(at + 16);
  };
  EXPECT_EQ(honoured(R"({"prompts":{},"resources":{"listChanged":false}})", "{}"),
            "{\"toolsListChanged\":true}}}\n\n");
  const v1::NoticeWish& asked = plane_.listens.back().request.wish();
  EXPECT_TRUE(asked.tools_list_changed());
  EXPECT_FALSE(asked.prompts_list_changed());
  EXPECT_FALSE(asked.resources_list_changed());
  EXPECT_EQ(asked.resource_uris_size(), 0);
  EXPECT_EQ(asked.task_ids_size(), 0);
  const std::string all =
      "{\"toolsListChanged\":true,\"promptsListChanged\":true,\"resourcesListChanged\":true,"
      "\"resourceSubscriptions\":[\"a://b\"],\"taskIds\":[\"t\"]}}}\n\n";
  EXPECT_EQ(honoured(R"({"prompts":{"listChanged":true},)"
                     R"("resources":{"listChanged":true,"subscribe":true}})",
                     R"({"extensions":{"io.modelcontextprotocol/tasks":{}}})"),
            all);
  EXPECT_EQ(honoured("", ""), all) << "nothing is known of what has not been there yet";
}

TEST_F(Modern, ListeningEndsWithAResultWhenTheBridgeDrains) {
  const Answer answer = Ask("subscriptions/listen",
                            Params(R"("notifications":{"toolsListChanged":true})"), {}, "/mcp");
  EXPECT_TRUE(plane_.listens.empty()) << "the facade's tools never change";
  EXPECT_NE(answer->body.find(R"("notifications":{}})"), std::string::npos) << answer->body;
  bridge_->Drain(absl::Seconds(1), [] {});
  loop_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(answer->ended);
  EXPECT_NE(
      answer->body.find(
          R"("id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}})"),
      std::string::npos)
      << answer->body;
}

TEST_F(Modern, ListeningNeedsAFilter) {
  EXPECT_EQ(CodeOf(Ask("subscriptions/listen")), "200 -32602");
  EXPECT_EQ(
      CodeOf(Ask("subscriptions/listen", Params(R"("notifications":{"resourceSubscriptions":7})"))),
      "200 -32602");
  const Answer unknown =
      Ask("subscriptions/listen", Params(R"("notifications":{"toolsListChanged":true})"));
  plane_.listens[0].script->Push(absl::NotFoundError("no such seat"));
  EXPECT_EQ(unknown->status, 404);
}

TEST_F(Modern, ListeningToTasksNeedsTheExtension) {
  const std::string wish = Params(R"("notifications":{"taskIds":["t",7]})");
  const Answer refused = Ask("subscriptions/listen", wish);
  EXPECT_EQ(CodeOf(refused), "400 -32021");
  EXPECT_NE(refused->body.find(
                R"({"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}})"),
            std::string::npos);
  EXPECT_EQ(CodeOf(Ask("subscriptions/listen", Params(R"("notifications":{"taskIds":"t"})"))),
            "200 -32602");
  plane_.instances[0].set_modern_capabilities(
      R"({"extensions":{"io.modelcontextprotocol/tasks":{}}})");
  const Answer answer = Ask("subscriptions/listen",
                            Params(R"("notifications":{"taskIds":["t",7]})",
                                   R"("io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
                                   R"("io.modelcontextprotocol/clientCapabilities":)"
                                   R"({"extensions":{"io.modelcontextprotocol/tasks":{}}})"));
  ASSERT_EQ(plane_.listens.size(), 1u);
  ASSERT_EQ(plane_.listens[0].request.wish().task_ids_size(), 1);
  v1::ListenEvent live;
  live.mutable_live();
  plane_.listens[0].script->Push(live);
  loop_.RunReady();
  EXPECT_NE(answer->body.find(R"("notifications":{"taskIds":["t"]})"), std::string::npos)
      << answer->body;
}

TEST_F(Modern, OutputSchemasOfNoObjectAreForItsClientsOnly) {
  const std::string list = R"([{"name":"a","outputSchema":{"type":"array"},"x":1.0},)"
                           R"({"name":"b","outputSchema":{"type":"object","x":1.0}},{"name":"c"}])";
  const std::string earlier =
      R"([{"name":"a","x":1.0},{"name":"b","outputSchema":{"type":"object","x":1.0}},{"name":"c"}])";
  plane_.tool_list = list;
  const std::string ask = R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})";
  for (const char* url : {"/mcp/maya-1", "/mcp?tools=maya"}) {
    const Answer modern = Ask("tools/list", Params(), {}, url);
    EXPECT_NE(modern->body.find(R"("tools":)" + list), std::string::npos) << modern->body;
    const Answer old = PostIn(Open("2025-11-25", url), ask, url);
    EXPECT_EQ(old->body, R"({"jsonrpc":"2.0","id":1,"result":{"tools":)" + earlier + "}}");
  }
}

// ---- selected tools ----

class ModernTools : public Modern {
 protected:
  static constexpr char kUrl[] = "/mcp?tools=maya.*.bake";
};

TEST_F(ModernTools, AreDiscoveredListedAndCalledWithoutASession) {
  const Answer discovered = Ask("server/discover", Params(), {}, kUrl);
  EXPECT_NE(discovered->body.find(R"("capabilities":{"tools":{"listChanged":true},"extensions":)"
                                  R"({"io.modelcontextprotocol/tasks":{}}})"),
            std::string::npos)
      << discovered->body;
  const Answer list = Ask("tools/list", Params(), {}, kUrl);
  EXPECT_EQ(list->status, 200) << list->body;
  EXPECT_NE(list->body.find(R"("resultType":"complete","ttlMs":0,"cacheScope":"private")"),
            std::string::npos)
      << list->body;
  EXPECT_EQ(plane_.lists.back().tools(), "maya.*.bake");
  EXPECT_EQ(plane_.lists.back().session_id(), "");
  const Answer answer =
      Ask("tools/call", Params(R"("name":"maya_aabbccdd__bake","arguments":{})"),
          {{"Mcp-Name", "maya_aabbccdd__bake"}, {"Mcp-Param-Region", "eu"}}, kUrl);
  ASSERT_EQ(plane_.invokes.size(), 1u);
  const v1::InvokeRequest& call = plane_.invokes[0].request;
  EXPECT_EQ(call.tools(), "maya.*.bake");
  EXPECT_EQ(call.session_id(), "");
  EXPECT_FALSE(call.has_target());
  EXPECT_EQ(call.client().revision(), "2026-07-28");
  ASSERT_EQ(call.param_headers_size(), 1);
  plane_.invokes[0].script->Push(Result(R"({"content":[]})"));
  loop_.RunReady();
  EXPECT_NE(answer->body.find(R"("result":{"resultType":"complete",)"), std::string::npos)
      << answer->body;
  EXPECT_EQ(CodeOf(Ask("prompts/list", Params(), {}, kUrl)), "404 -32601");
  EXPECT_TRUE(plane_.opened.empty());
}

TEST_F(ModernTools, TellWhoListensOfTheirList) {
  const Answer answer = Ask(
      "subscriptions/listen",
      Params(R"("notifications":{"toolsListChanged":true,"promptsListChanged":true})"), {}, kUrl);
  ASSERT_EQ(plane_.listens.size(), 1u);
  EXPECT_EQ(plane_.listens[0].request.tools(), "maya.*.bake");
  EXPECT_FALSE(plane_.listens[0].request.wish().prompts_list_changed());
  v1::ListenEvent live;
  live.mutable_live();
  plane_.listens[0].script->Push(live);
  loop_.RunReady();
  EXPECT_NE(answer->body.find(R"("notifications":{"toolsListChanged":true})"), std::string::npos);
}

}  // namespace
}  // namespace callboard::tests
