// Tests of backends that speak 2026-07-28 beside an earlier revision: how that is found out, and
// what goes to them in which.
#include "tests/unit/agent_seats/modern_backend_fixture.h"

namespace callboard::agent {
namespace {

TEST_F(ModernBackend, IsAskedAfterInitializeAndToldInTheState) {
  Find(kBoth);
  EXPECT_EQ(backend->sent[0].method, "initialize");
  EXPECT_EQ(backend->sent[1].method, "notifications/initialized");
  const std::string& question = backend->Last("server/discover").text;
  EXPECT_NE(question.find(R"("io.modelcontextprotocol/protocolVersion":"2026-07-28")"),
            std::string::npos);
  EXPECT_NE(question.find(R"("io.modelcontextprotocol/clientCapabilities":{})"), std::string::npos);
  EXPECT_NE(question.find(R"("name":"callboard-agent")"), std::string::npos);
  EXPECT_EQ(seat->State().modern_capabilities(), R"({"extensions":{"x":{}}})");
}

TEST_F(ModernBackend, GetsCallsOfModernClientsWithTheirOwnEnvelope) {
  Find(kBoth);
  Submit(ModernTool("A"));
  EXPECT_NE(backend->Last("tools/call")
                .text.find(R"("params":{"name":"x","_meta":{"k":1.0,)"
                           R"("io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
                           R"("io.modelcontextprotocol/clientCapabilities":{"sampling":{}},)"
                           R"("io.modelcontextprotocol/clientInfo":{"name":"c"},)"
                           R"("io.modelcontextprotocol/logLevel":"info"}})"),
            std::string::npos)
      << backend->Last("tools/call").text;
  backend->Answer(LastCall(), R"({"resultType":"input_required","requestState":"s"})");
  loop.RunReady();
  Submit(Tool("B"));
  EXPECT_EQ(backend->Last("tools/call").text.find("protocolVersion"), std::string::npos)
      << "a client of an earlier revision speaks in the session";
}

TEST_F(ModernBackend, ThatSpeaksEarlierRevisionsOnlyHearsNothingOfTheEnvelope) {
  for (const char* answer :
       {R"({"supportedVersions":["2025-11-25"],"capabilities":{}})", R"({"capabilities":{}})",
        R"({"supportedVersions":["2026-07-28"]})", "{}"}) {
    MakeSeat({});
    Find(answer);
    EXPECT_EQ(seat->State().modern_capabilities(), "") << answer;
    Submit(ModernTool("A"));
    EXPECT_NE(backend->Last("tools/call").text.find(R"("params":{"name":"x","_meta":{"k":1.0}})"),
              std::string::npos);
  }
}

TEST_F(ModernBackend, ThatNeverAnswersIsNotWaitedFor) {
  backend->asked_for_its_era = true;
  BringUp();
  Submit(ModernTool("A"));
  EXPECT_NE(backend->Last("tools/call").text.find(R"("_meta":{"k":1.0}})"), std::string::npos);
  loop.RunFor(absl::Seconds(11));
  backend->Answer(backend->Last("server/discover").exchange, kBoth);
  loop.RunReady();
  EXPECT_EQ(seat->State().modern_capabilities(), "");
}

// ---- headers that repeat arguments --------------------------------------------------------------

class HeaderBackend : public ModernBackend {
 protected:
  static std::string Mirrored(const std::string& name, const std::string& header,
                              const std::string& type = "string") {
    return R"({"name":")" + name + R"(","inputSchema":{"properties":{"a":{"type":")" + type +
           R"(","x-mcp-header":")" + header + R"("}}}})";
  }
  void FindWith(const std::string& tools) {
    backend->is_http = true;
    backend->pages = {{"", R"({"tools":[)" + tools + "]}"}};
    Find(kBoth);
  }
  CallSpec Annotated(const std::string& id, const std::string& arguments) {
    CallSpec spec = ModernTool(id);
    spec.params = Payload(R"({"name":"x","arguments":)" + arguments + "}");
    return spec;
  }
  std::string Headers() const {
    std::string shown;
    for (const auto& [name, value] : backend->Last("tools/call").param_headers) {
      shown += name + "=" + value + ";";
    }
    return shown;
  }
  void Refuse() {
    backend->Say(core::MakeErrorResponse(fmt::format("{}", LastCall()), core::kHeaderMismatch,
                                         "Mcp-Param-A is missing"));
    loop.RunFor(absl::Milliseconds(1));
  }
};

TEST_F(HeaderBackend, GetsAnnotatedArgumentsInHeaders) {
  FindWith(Mirrored("x", "A"));
  Submit(Annotated("A", R"({"a":" \u4e16"})"));
  EXPECT_EQ(Headers(), "A==?base64?IOS4lg==?=;");
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  Submit(Annotated("B", R"({"a":null,"b":"free"})"));
  EXPECT_EQ(Headers(), "");
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  CallSpec old = Tool("C", "x");
  old.params = Payload(R"({"name":"x","arguments":{"a":"eu"}})");
  Submit(std::move(old));
  EXPECT_EQ(Headers(), "") << "in its session nothing has such headers";
}

TEST_F(HeaderBackend, GetsHeadersThatNoAnnotationNamesAsTheyCame) {
  FindWith(Mirrored("x", "A"));
  CallSpec spec = Annotated("A", R"({"a":"eu"})");
  spec.param_headers = {{"a", "us"}, {"farm", "=?base64?IA==?="}};
  Submit(std::move(spec));
  EXPECT_EQ(Headers(), "farm==?base64?IA==?=;A=eu;");
}

TEST_F(HeaderBackend, ThatFindsTheyDoNotFitIsListedAnewAndAskedOnceMore) {
  FindWith(R"({"name":"x","inputSchema":{}})");
  Submit(Annotated("A", R"({"a":"eu"})"));
  EXPECT_EQ(Headers(), "");
  backend->pages = {{"", R"({"tools":[)" + Mirrored("x", "A") + "]}"}};
  Refuse();
  EXPECT_EQ(backend->Count("tools/call"), 2u);
  EXPECT_EQ(Headers(), "A=eu;");
  Refuse();
  EXPECT_EQ(backend->Count("tools/call"), 2u) << "once more, not for ever";
  EXPECT_EQ(End("A").outcome_class, v1::RPC_ERROR);
  EXPECT_NE(End("A").body.view().find("-32020"), std::string::npos);
}

TEST_F(HeaderBackend, MayBeLeftWhileItIsListedAnew) {
  FindWith(R"({"name":"x","inputSchema":{}})");
  Submit(Annotated("A", R"({"a":"eu"})"));
  backend->answers_list = false;
  Refuse();
  EXPECT_EQ(seat->Cancel("A", v1::Cancel::CLIENT), v1::CancelAck::DROPPED);
  loop.RunFor(absl::Seconds(10));
  EXPECT_EQ(End("A").certainty, v1::NOT_STARTED);
  EXPECT_EQ(backend->Count("tools/call"), 1u);
}

TEST_F(HeaderBackend, ToolsWhoseHeadersCannotBeMadeAreCalledInASession) {
  FindWith(Mirrored("x", "A") + "," + Mirrored("bad", "a b"));
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(seat->Catalogue().view(),
            R"({"tools":[)" + Mirrored("x", "A") +
                R"(,{"name":"bad","inputSchema":{"properties":{"a":{"type":"string"}}}}]})");
  CallSpec bad = ModernTool("A");
  bad.log_level = "";
  bad.params = Payload(R"({"name":"bad","arguments":{"a":"eu"}})");
  Submit(std::move(bad));
  EXPECT_EQ(backend->Last("tools/call").text.find("protocolVersion"), std::string::npos)
      << backend->Last("tools/call").text;
  backend->Answer(LastCall(), R"({"content":[]})");
  loop.RunReady();
  EXPECT_EQ(End("A").outcome_class, v1::RESULT);
  Submit(Annotated("B", R"({"a":"eu"})"));
  EXPECT_EQ(Headers(), "A=eu;");
  EXPECT_NE(backend->Last("tools/call").text.find("protocolVersion"), std::string::npos);
}

TEST_F(HeaderBackend, ToolsWhoseHeadersCannotBeMadeAreLeftOutWhereThereIsNoSession) {
  backend->is_http = true;
  backend->pages = {{"", R"({"tools":[)" + Mirrored("good", "A") + "," + Mirrored("bad", "a b") +
                             "," + Mirrored("worse", "A", "number") + "]}"}};
  Find(R"({"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}})");
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(seat->Catalogue().view(), R"({"tools":[)" + Mirrored("good", "A") + "]}");
}

TEST_F(HeaderBackend, ToolsOfOthersLoseTheAnnotationOnly) {
  backend->pages = {{"", R"({"tools":[)" + Mirrored("bad", "a b") + "]}"}};
  Find(kBoth);  // by stdio
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(seat->Catalogue().view(),
            R"({"tools":[{"name":"bad","inputSchema":{"properties":{"a":{"type":"string"}}}}]})");
}

TEST_F(HeaderBackend, IsAskedForItsEraBeforeInitialize) {
  FindWith(R"({"name":"a"})");
  EXPECT_EQ(backend->sent[0].method, "server/discover");
  EXPECT_EQ(backend->sent[1].method, "initialize");
  EXPECT_EQ(backend->Count("server/discover"), 1u);
  EXPECT_EQ(backend->Count("subscriptions/listen"), 1u);
  EXPECT_EQ(seat->State().modern_capabilities(), R"({"extensions":{"x":{}}})");
}

TEST_F(HeaderBackend, ThatKnowsNoOtherEraIsNotInitialized) {
  backend->is_http = true;
  Find(R"({"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}})");
  EXPECT_EQ(backend->Count("initialize"), 0u);
  EXPECT_EQ(backend->Count("tools/list"), 1u);
  EXPECT_EQ(seat->State().capabilities(), R"({"tools":{}})");
}

TEST_F(HeaderBackend, ThatRefusesTheVersionAndNamesItIsAskedOnceMore) {
  backend->is_http = backend->asked_for_its_era = true;
  BringUp();
  for (int i = 0; i < 2; ++i) {
    backend->Say(core::MakeErrorResponse(
        fmt::format("{}", backend->Last("server/discover").exchange), core::kUnsupportedVersion,
        "no", R"({"supported":["2026-07-28"],"requested":"2026-07-28"})"));
    loop.RunReady();
  }
  EXPECT_EQ(backend->Count("server/discover"), 2u);
  EXPECT_EQ(backend->Count("initialize"), 1u);
}

TEST_F(HeaderBackend, ThatDoesNotAnswerIsInitializedAndAskedOnceMore) {
  backend->is_http = backend->asked_for_its_era = true;
  BringUp();
  EXPECT_EQ(backend->Count("initialize"), 0u);
  loop.RunFor(absl::Seconds(4));
  EXPECT_EQ(backend->Count("initialize"), 1u);
  EXPECT_EQ(backend->Count("server/discover"), 2u);
}

// ---- backends of earlier revisions and modern clients -------------------------------------------

class OldBackend : public ModernBackend {
 protected:
  void SetUp() override {
    backend->initialize_result =
        R"({"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},)"
        R"("serverInfo":{"name":"x"}})";
    BringUp();
  }
  CallSpec Logging(const std::string& id, const std::string& level) {
    CallSpec spec = Tool(id);
    spec.modern = true;
    spec.log_level = level;
    return spec;
  }
  void AnswerLevel() {
    backend->Answer(backend->Last("logging/setLevel").exchange, "{}");
    loop.RunReady();
  }
  void Log(const std::string& level) {
    backend->Say(
        core::MakeNotification("notifications/message", R"({"level":")" + level + R"("})"));
    loop.RunReady();
  }
};

TEST_F(OldBackend, IsAskedForTheLogsOfARequestBeforeIt) {
  Submit(Logging("A", "debug"));
  EXPECT_EQ(backend->Count("tools/call"), 0u);
  EXPECT_NE(backend->Last("logging/setLevel").text.find(R"({"level":"debug"})"), std::string::npos);
  AnswerLevel();
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  told.clear();
  Log("debug");
  EXPECT_EQ(told, Told{R"(A log {"level":"debug"})"});
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  told.clear();
  Log("debug");
  EXPECT_EQ(told, Told{}) << "nobody else has asked for it";
  Log("info");
  EXPECT_EQ(told, Told{R"(notice notifications/message {"level":"info"})"});
  loop.RunFor(absl::Seconds(6));
  EXPECT_NE(backend->Last("logging/setLevel").text.find(R"({"level":"info"})"), std::string::npos);
  AnswerLevel();
  Log("debug");
  EXPECT_EQ(told.size(), 2u) << "what it says by itself is no longer filtered";
}

TEST_F(OldBackend, KeepsTheLevelThatSessionsWant) {
  v1::Interest interest;
  interest.set_log_level("warning");
  seat->SetInterest(interest);
  loop.RunReady();
  AnswerLevel();
  Submit(Logging("A", "error"));
  EXPECT_EQ(backend->Count("logging/setLevel"), 1u) << "a less verbose one changes nothing";
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  Submit(Logging("B", "notice"));
  AnswerLevel();
  backend->Answer(LastCall(), "{}");
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(backend->Count("logging/setLevel"), 3u);
  EXPECT_NE(backend->Last("logging/setLevel").text.find("warning"), std::string::npos);
}

TEST_F(OldBackend, ThatNeverAnswersForTheLevelIsNotWaitedFor) {
  Submit(Logging("A", "debug"));
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  AnswerLevel();
  EXPECT_EQ(backend->Count("tools/call"), 1u);
}

TEST_F(OldBackend, NeverRunsACallThatIsLeftBeforeItIsSent) {
  Submit(Logging("A", "debug"));
  EXPECT_EQ(seat->Cancel("A", v1::Cancel::CLIENT), v1::CancelAck::DROPPED);
  AnswerLevel();
  loop.RunFor(absl::Seconds(10));
  EXPECT_EQ(backend->Count("tools/call"), 0u);
  EXPECT_EQ(End("A").certainty, v1::NOT_STARTED);
}

class OldBackendWithUrls : public OldBackend {
 protected:
  CallSpec Opening(const std::string& id, const std::string& more = "") {
    CallSpec spec = Tool(id);
    spec.params = Payload(R"({"name":"x")" + more + "}");
    spec.modern = true;
    spec.client_capabilities = R"({"elicitation":{"url":{}}})";
    return spec;
  }
  void RequireUrl() {
    backend->Say(core::MakeErrorResponse(
        fmt::format("{}", LastCall()), core::kUrlElicitationRequired, "open it",
        R"({"elicitations":[{"mode":"url","elicitationId":"7","url":"https://x","message":"m"}]})"));
    loop.RunReady();
  }
};

TEST_F(OldBackendWithUrls, RequiresThemAsInput) {
  Submit(Opening("A"));
  RequireUrl();
  EXPECT_EQ(End("A").body.view(),
            R"({"resultType":"input_required","inputRequests":{"url-1":{"method":)"
            R"("elicitation/create","params":{"mode":"url","url":"https://x","message":"m"}}}})");
  Submit(Opening("B", R"(,"inputResponses":{"url-1":{"action":"accept"}})"));
  EXPECT_EQ(backend->Last("tools/call").text.find("inputResponses"), std::string::npos);
  EXPECT_EQ(backend->Count("tools/call"), 2u);
}

TEST_F(OldBackendWithUrls, IsNotAskedAgainWhenTheUserDeclines) {
  Submit(Opening("A", R"(,"inputResponses":{"url-1":{"action":"decline"}})"));
  EXPECT_EQ(backend->Count("tools/call"), 0u);
  EXPECT_NE(End("A").body.view().find(R"("isError":true)"), std::string::npos);
}

TEST_F(OldBackendWithUrls, NeedsAClientThatOpensThem) {
  CallSpec spec = Opening("A");
  spec.client_capabilities = R"({"elicitation":{}})";
  Submit(std::move(spec));
  RequireUrl();
  EXPECT_NE(End("A").body.view().find(R"("code":-32021)"), std::string::npos);
  EXPECT_NE(End("A").body.view().find(R"({"requiredCapabilities":{"elicitation":{"url":{}}}})"),
            std::string::npos);
}

TEST_F(OldBackendWithUrls, IsHeardByOlderClientsAsItIs) {
  Submit(Tool("A"));
  RequireUrl();
  EXPECT_NE(End("A").body.view().find("-32042"), std::string::npos);
}

}  // namespace
}  // namespace callboard::agent
