// Tests of backends that speak 2026-07-28 beside an earlier revision: how that is found out, and
// what goes to them in which.
#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {
namespace {

class ModernBackend : public SeatFixture {
 protected:
  void Find(const std::string& discover_result) {
    backend->asked_for_its_era = true;
    BringUp();
    backend->Answer(backend->Last("server/discover").exchange, discover_result);
    loop.RunReady();
  }
  CallSpec ModernTool(const std::string& id) {
    CallSpec spec = Tool(id);
    spec.params = Payload(R"({"name":"x","_meta":{"k":1.0}})");
    spec.modern = true;
    spec.client_capabilities = R"({"sampling":{}})";
    spec.client_info = R"({"name":"c"})";
    spec.log_level = "info";
    return spec;
  }

  const std::string kBoth =
      R"({"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"extensions":{"x":{}}}})";
};

TEST_F(ModernBackend, IsAskedAfterInitializeAndToldInTheState) {
  Find(kBoth);
  EXPECT_EQ(backend->sent[0].method, "initialize");
  EXPECT_EQ(backend->sent[1].method, "notifications/initialized");
  const std::string& asked = backend->Last("server/discover").text;
  EXPECT_NE(asked.find(R"("io.modelcontextprotocol/protocolVersion":"2026-07-28")"),
            std::string::npos);
  EXPECT_NE(asked.find(R"("io.modelcontextprotocol/clientCapabilities":{})"), std::string::npos);
  EXPECT_NE(asked.find(R"("name":"callboard-agent")"), std::string::npos);
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

class ModernOnlyBackend : public ModernBackend {
 protected:
  void Find(const std::string& discover_result) {
    backend->asked_for_its_era = true;
    backend->answers_initialize = false;
    BringUp();
    backend->Say(core::MakeErrorResponse(fmt::format("{}", backend->Last("initialize").exchange),
                                         -32601, "Method not found"));
    loop.RunReady();
    backend->Answer(backend->Last("server/discover").exchange, discover_result);
    loop.RunFor(absl::Milliseconds(1));
    told.clear();
  }
  void SetUp() override {
    Find(
        R"({"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"be kind",)"
        R"("_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new"}}})");
  }
  void Reply(const std::string& result) {
    backend->Answer(LastCall(), result);
    loop.RunReady();
  }
  CallSpec Asking(const std::string& id) {
    CallSpec spec = Tool(id);
    spec.client_capabilities = R"({"elicitation":{}})";
    return spec;
  }

  const std::string kAsks =
      R"({"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create",)"
      R"("params":{"message":"?"}},"b":{"method":"roots/list"}},"requestState":"s\u0031"})";
};

TEST_F(ModernOnlyBackend, IsSpokenToInItsOwnRevision) {
  EXPECT_EQ(seat->State().server_info(), R"({"name":"new"})");
  EXPECT_EQ(seat->State().capabilities(), R"({"tools":{}})");
  EXPECT_EQ(seat->State().instructions(), "be kind");
  EXPECT_EQ(backend->Count("notifications/initialized"), 0u);
  EXPECT_NE(backend->Last("tools/list").text.find("2026-07-28"), std::string::npos);
  EXPECT_NE(seat->State().catalogue_digest(), "");
  Submit(Asking("A"));
  EXPECT_NE(backend->Last("tools/call")
                .text.find(R"("io.modelcontextprotocol/clientCapabilities":{"elicitation":{}})"),
            std::string::npos);
  Reply(R"({"resultType":"complete","content":[1.0],"ttlMs":3})");
  EXPECT_EQ(End("A").body.view(), R"({"content":[1.0]})");
  Submit(ModernTool("B"));
  Reply(R"({"resultType":"complete","content":[]})");
  EXPECT_EQ(End("B").body.view(), R"({"resultType":"complete","content":[]})");
}

TEST_F(ModernOnlyBackend, AsksAnOlderClientInMidCall) {
  Submit(Asking("A"));
  Reply(kAsks);
  EXPECT_EQ(told, (Told{"A starting 1", "A ask 1 elicitation/create", "A ask 2 roots/list"}));
  seat->Answer(2, false, Payload(R"({"roots":[]})"));
  loop.RunReady();
  EXPECT_EQ(backend->Count("tools/call"), 1u) << "one answer is missing";
  seat->Answer(1, false, Payload(R"({"action":"accept"})"));
  loop.RunReady();
  EXPECT_EQ(backend->Count("tools/call"), 2u);
  EXPECT_NE(backend->Last("tools/call")
                .text.find(R"("inputResponses":{"b":{"roots":[]},"a":{"action":"accept"}},)"
                           R"("requestState":"s\u0031")"),
            std::string::npos)
      << backend->Last("tools/call").text;
  Reply(R"({"resultType":"complete","content":[]})");
  EXPECT_EQ(End("A").body.view(), R"({"content":[]})");
}

TEST_F(ModernOnlyBackend, WhoseClientDeclinesByAnErrorGetsNoFurtherRound) {
  Submit(Asking("A"));
  Reply(kAsks);
  seat->Answer(1, true, Payload(R"({"code":-32000,"message":"gone"})"));
  loop.RunReady();
  EXPECT_EQ(End("A").outcome_class, v1::RPC_ERROR);
  EXPECT_EQ(End("A").body.view(), R"({"code":-32000,"message":"gone"})");
  EXPECT_EQ(seat->open_asks(), 0u);
  EXPECT_EQ(backend->Count("tools/call"), 1u);
}

TEST_F(ModernOnlyBackend, IsFreeAsSoonAsACallBetweenTwoRoundsIsCancelled) {
  Submit(Asking("A"));
  Reply(kAsks);
  seat->Cancel("A", v1::Cancel::CLIENT);
  loop.RunReady();
  EXPECT_EQ(End("A").outcome_class, v1::CANCELLED);
  EXPECT_EQ(seat->open_asks(), 0u);
  Submit(Asking("B"));
  EXPECT_EQ(backend->Count("tools/call"), 2u);
}

TEST_F(ModernOnlyBackend, IsNotAskedForEver) {
  Submit(Asking("A"));
  for (uint64_t round = 0; round < 11; ++round) {
    Reply(R"({"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}})");
    seat->Answer(round + 1, false, Payload("{}"));
    loop.RunReady();
  }
  EXPECT_EQ(End("A").outcome_class, v1::RPC_ERROR);
  EXPECT_EQ(backend->Count("tools/call"), 11u);
}

TEST_F(ModernOnlyBackend, WithAResultThatOlderClientsDoNotHaveGivesAnError) {
  Submit(Asking("A"));
  Reply(R"({"resultType":"task","taskId":"t"})");
  EXPECT_EQ(End("A").outcome_class, v1::RPC_ERROR);
  Submit(Asking("B"));
  Reply(R"({"resultType":"input_required"})");
  EXPECT_EQ(End("B").outcome_class, v1::RPC_ERROR);
}

}  // namespace
}  // namespace callboard::agent
