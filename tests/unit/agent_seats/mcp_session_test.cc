// Tests of what a seat says to its MCP server and how it routes what comes back.
#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {
namespace {

using McpSession = SeatFixture;

TEST_F(McpSession, InitializesWithTheNewestLegacyRevisionAndTakesAnOlderOne) {
  BringUp();
  EXPECT_EQ(backend->sent[0].method, "initialize");
  EXPECT_NE(
      backend->sent[0].text.find(R"("protocolVersion":"2025-11-25","capabilities":{"roots":)"),
      std::string::npos);
  EXPECT_EQ(backend->sent[1].method, "notifications/initialized");
  EXPECT_EQ(seat->State().server_info(), R"({"name":"x"})");
  EXPECT_EQ(seat->State().capabilities(), R"({"tools":{}})");
}

TEST_F(McpSession, TellsWhatElseTheServerSaysOfItselfByteForByte) {
  backend->initialize_result =
      R"({"protocolVersion":"2025-06-18","com.example/rig":{"n":1.50},"capabilities":{"tools":{}},)"
      R"("_meta":{"io.modelcontextprotocol/x":1,"com.example/build":[ 7 ]},"serverInfo":{"name":"x"},)"
      R"("new\u0020one":null})";
  BringUp();
  EXPECT_EQ(seat->State().description_rest(),
            R"({"com.example/rig":{"n":1.50},"_meta":{"com.example/build":[ 7 ]},)"
            R"("new\u0020one":null})");
  backend->Die(9);
  loop.RunFor(absl::Seconds(1));
  backend->initialize_result = R"({"protocolVersion":"2025-06-18","capabilities":{},"more":")" +
                               std::string(20'000, 'x') + R"("})";
  BringUp();
  EXPECT_EQ(seat->State().description_rest(), "") << "it is in every state of the seat";
}

TEST_F(McpSession, GivesEachCallAProgressTokenOfItsOwnAndKeepsTheRestOfMeta) {
  BringUp();
  CallSpec spec = Tool("A");
  spec.params = Payload(R"({"name":"x","_meta":{"progressToken":"7","k":[1.0]}})");
  spec.wants_progress = true;
  Submit(std::move(spec));
  EXPECT_NE(backend->Last("tools/call")
                .text.find(fmt::format(R"("_meta":{{"progressToken":{},"k":[1.0]}})", LastCall())),
            std::string::npos);
}

TEST_F(McpSession, LeavesNoProgressTokenWhereNoneIsWanted) {
  BringUp();
  CallSpec spec = Tool("A");
  spec.params = Payload(R"({"name":"x","_meta":{"progressToken":"7","k":1}})");
  Submit(std::move(spec));
  EXPECT_EQ(backend->Last("tools/call").text.find("progressToken"), std::string::npos);
  EXPECT_NE(backend->Last("tools/call").text.find(R"("_meta":{"k":1})"), std::string::npos);
}

constexpr char kTraceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST_F(McpSession, TellsTheTraceInMetaAndToTheTransport) {
  BringUp();
  CallSpec spec = Tool("A");
  spec.params = Payload(R"({"name":"x","_meta":{"k":1.0}})");
  spec.trace = {.traceparent = kTraceparent, .tracestate = "v=\"1\"", .baggage = "b=2"};
  Submit(std::move(spec));
  const auto& sent = backend->Last("tools/call");
  EXPECT_NE(sent.text.find(fmt::format(R"("params":{{"name":"x","_meta":{{"k":1.0,)"
                                       R"("traceparent":"{}","tracestate":"v=\"1\"",)"
                                       R"("baggage":"b=2"}}}})",
                                       kTraceparent)),
            std::string::npos)
      << sent.text;
  EXPECT_EQ(sent.trace.traceparent, kTraceparent);
  EXPECT_EQ(sent.trace.tracestate, "v=\"1\"");
  EXPECT_EQ(backend->Last("initialize").trace.traceparent, "");
}

TEST_F(McpSession, LeavesATraceThatTheClientPutIntoMetaItself) {
  BringUp();
  const std::string own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
  CallSpec spec = Tool("A");
  spec.params = Payload(fmt::format(R"({{"name":"x","_meta":{{"traceparent":"{}"}}}})", own));
  spec.trace.traceparent = kTraceparent;
  Submit(std::move(spec));
  EXPECT_NE(backend->Last("tools/call").text.find(own), std::string::npos);
  EXPECT_EQ(backend->Last("tools/call").text.find(kTraceparent), std::string::npos);
  EXPECT_EQ(backend->Last("tools/call").trace.traceparent, kTraceparent);
}

TEST_F(McpSession, RoutesProgressByOurTokenWhetherNumberOrString) {
  BringUp();
  for (const char* id : {"A", "B"}) {
    CallSpec spec = Tool(id);
    spec.lane = v1::FREE;
    spec.wants_progress = true;
    // Both callers had the token 1, one of them as a string.
    spec.params = Payload(*id == 'A' ? R"({"_meta":{"progressToken":1}})"
                                     : R"({"_meta":{"progressToken":"1"}})");
    Submit(std::move(spec));
  }
  told.clear();
  const uint64_t b = LastCall();
  const uint64_t a = b - 1;
  const auto progress = [&](const std::string& token, int value) {
    backend->Say(fmt::format(R"({{"jsonrpc":"2.0","method":"notifications/progress","params":)"
                             R"({{"progressToken":{},"progress":{}}}}})",
                             token, value));
  };
  progress(fmt::format("{}", a), 1);
  progress(fmt::format("\"{}\"", b), 2);
  progress("1", 3);
  progress("\"x\"", 4);
  backend->Answer(a, "{}");
  progress(fmt::format("{}", a), 5);
  loop.RunReady();
  EXPECT_EQ(told, (Told{R"(A progress {"progress":1})", R"(B progress {"progress":2})",
                        "A end RESULT REASON_UNSPECIFIED FINISHED"}));
}

TEST_F(McpSession, LogLinesGoToTheOnlyRunningCall) {
  BringUp();
  const char* log = R"({"jsonrpc":"2.0","method":"notifications/message","params":{"data":"hi"}})";
  backend->Say(log);
  Submit(Tool("A"));
  backend->Say(log);
  loop.RunReady();
  EXPECT_EQ(told, (Told{R"(notice notifications/message {"data":"hi"})", "A starting 1",
                        R"(A log {"data":"hi"})"}));
}

TEST_F(McpSession, AnswersPingAndRefusesOtherRequests) {
  BringUp();
  backend->Say(R"({"jsonrpc":"2.0","id":"p1","method":"ping"})");
  backend->Say(R"({"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}})");
  loop.RunReady();
  EXPECT_EQ(backend->sent[backend->sent.size() - 2].text,
            R"({"jsonrpc":"2.0","id":"p1","result":{}})");
  EXPECT_NE(backend->sent.back().text.find(R"("id":2,"error":{"code":-32601)"), std::string::npos);
}

TEST_F(McpSession, SecondAnswersUnknownIdsAndNonsenseAreIgnored) {
  BringUp();
  Submit(Tool("A"));
  const uint64_t call = LastCall();
  backend->Answer(999, "{}");
  backend->Say(fmt::format(R"({{"jsonrpc":"2.0","id":"{}","result":{{}}}})", call));
  backend->Say("{\"jsonrpc\":");
  backend->Say("[]");
  backend->Answer(call, R"({"first":1})");
  backend->Answer(call, R"({"second":1})");
  loop.RunReady();
  EXPECT_EQ(told, (Told{"A starting 1", "A end RESULT REASON_UNSPECIFIED FINISHED"}));
  EXPECT_EQ(End("A").body.view(), R"({"first":1})");
}

TEST_F(McpSession, TakesABatchOfMessages) {
  BringUp();
  Submit(Tool("A"));
  backend->Say(fmt::format(
      R"([{{"jsonrpc":"2.0","method":"x/y","params":{{}}}},{{"jsonrpc":"2.0","id":{},"result":{{}}}}])",
      LastCall()));
  loop.RunReady();
  EXPECT_EQ(told[1], "notice x/y {}");
  EXPECT_EQ(told[2], "A end RESULT REASON_UNSPECIFIED FINISHED");
}

TEST_F(McpSession, ForgottenSessionIsInitializedAgainAndTheCallSentOnceMore) {
  BringUp();
  Submit(Tool("A"));
  const uint64_t call = LastCall();
  backend->End(call, absl::NotFoundError("no session"), true);
  loop.RunReady();
  EXPECT_EQ(backend->Count("initialize"), 2u);
  EXPECT_EQ(backend->Count("tools/call"), 2u);
  EXPECT_FALSE(ends.contains("A"));
  backend->End(call, absl::NotFoundError("no session"), true);
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end REJECTED BACKEND_UNREACHABLE NOT_STARTED");
}

TEST_F(McpSession, InitializeThatIsNotAnsweredIsTriedAgain) {
  backend->answers_initialize = false;
  BringUp();
  loop.RunFor(absl::Seconds(31));
  EXPECT_EQ(backend->Count("initialize"), 2u);
  backend->answers_initialize = true;
  loop.RunFor(absl::Seconds(40));
  Submit(Tool("A"));
  EXPECT_EQ(told, (Told{"A starting 1"}));
}

TEST_F(McpSession, ForgottenSessionIsInitializedAgainAndWhoFollowsJobsIsTold) {
  BringUp();
  EXPECT_EQ(backend->Count("initialize"), 1u);
  backend->ForgetSession();
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(backend->Count("initialize"), 2u);
  constexpr char kTold[] =
      R"(notice notifications/$/dcc.gatewayReconnect {"backend_url":"http://127.0.0.1:9401/mcp"})";
  EXPECT_EQ(told, Told{kTold});
  backend->Rejoin();
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(told, (Told{kTold, kTold}));
}

TEST_F(McpSession, WhySeatIsNotWellIsPartOfItsHealthUntilItIs) {
  backend->Refuse("http://127.0.0.1:9401/mcp does not accept connections: Connection refused");
  loop.RunReady();
  EXPECT_EQ(seat->State().health().reason(),
            "http://127.0.0.1:9401/mcp does not accept connections: Connection refused");
  EXPECT_EQ(seat->State().health().endpoint(), v1::UNRESPONSIVE);
  EXPECT_EQ(seat->State().health().process(), v1::NOT_KNOWN);
  backend->answers_initialize = false;
  backend->Up();
  loop.RunFor(absl::Seconds(31));
  EXPECT_EQ(seat->State().health().reason(), "initialize was not answered within 30 s");
  backend->answers_initialize = true;
  loop.RunFor(absl::Seconds(31));
  EXPECT_EQ(seat->State().health().reason(), "");
  EXPECT_EQ(seat->State().health().endpoint(), v1::HEALTHY);
}

TEST_F(McpSession, ListOfToolsBeyondTheLimitsIsToldInTheSeatsHealth) {
  SeatLimits limits;
  limits.watcher.catalogue_bytes_max = 100;
  MakeSeat(limits);
  backend->pages[""] = fmt::format(R"({{"tools":[{{"name":"{}"}}]}})", std::string(200, 'x'));
  BringUp();
  EXPECT_EQ(seat->State().catalogue_digest(), "");
  EXPECT_EQ(seat->State().health().reason(),
            "its list of tools is not taken: the message has 221 bytes or more, 100 are allowed");
  backend->pages[""] = R"({"tools":[]})";
  loop.RunFor(absl::Minutes(2));
  EXPECT_EQ(seat->State().health().reason(), "");

  limits = {};
  limits.watcher.tools_max = 2;
  MakeSeat(limits);
  backend->pages[""] = R"({"tools":[{"name":"a"},{"name":"b"},{"name":"c"}]})";
  BringUp();
  EXPECT_NE(seat->State().catalogue_digest(), "");
  EXPECT_EQ(seat->State().health().reason(), "of its list of tools only the first 2 are taken");
}

}  // namespace
}  // namespace callboard::agent
