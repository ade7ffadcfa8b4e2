// Tests of backends that speak 2026-07-28 alone: what goes to them, how older clients understand
// them, what they say when they are listened to.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/agent_seats/modern_backend_fixture.h"

namespace callboard::agent {
namespace {

TEST_F(ModernOnlyBackend, IsSpokenToInItsOwnRevision) {
  EXPECT_EQ(seat->State().server_info(), R"({"name":"new"})");
  EXPECT_EQ(seat->State().capabilities(), R"({"tools":{}})");
  EXPECT_EQ(seat->State().instructions(), "be kind");
  EXPECT_EQ(seat->State().description_rest(), R"({"_meta":{"com.example/k":2.0}})");
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

TEST_F(ModernOnlyBackend, SaysOfMissingResourcesWhatOlderClientsKnow) {
  const auto read = [&](const std::string& id, bool modern, const std::string& error) {
    CallSpec spec = Tool(id);
    spec.method = "resources/read";
    spec.params = Payload(R"({"uri":"a://b"})");
    spec.modern = modern;
    Submit(std::move(spec));
    backend->Say(core::MakeRawErrorResponse(
        fmt::format("{}", backend->Last("resources/read").exchange), error));
    loop.RunReady();
    return std::string(End(id).body.view());
  };
  const std::string missing = R"({"code":-32602,"message":"none","data":{"uri":"a://b","k":1.0}})";
  EXPECT_EQ(read("A", false, missing),
            R"({"code":-32002,"message":"none","data":{"uri":"a://b","k":1.0}})");
  EXPECT_EQ(read("B", true, missing), missing);
  const std::string wrong = R"({"code":-32602,"message":"no such argument"})";
  EXPECT_EQ(read("C", false, wrong), wrong);
}

TEST_F(ModernOnlyBackend, GivesOlderClientsObjectsAsStructuredContent) {
  Submit(Asking("A"));
  Reply(R"({"resultType":"complete","content":[],"structuredContent":[1.0,{"a":2}],"x":3})");
  EXPECT_EQ(End("A").body.view(),
            R"({"content":[],"structuredContent":{"result":[1.0,{"a":2}]},"x":3})");
  Submit(Asking("B"));
  Reply(R"({"content":[],"structuredContent":null})");
  EXPECT_EQ(End("B").body.view(), R"({"content":[],"structuredContent":{"result":null}})");
  Submit(Asking("C"));
  const std::string object = R"({"structuredContent":{"a":1.0},"content":[]})";
  Reply(object);
  EXPECT_EQ(End("C").body.view(), object);
  Submit(ModernTool("D"));
  const std::string array = R"({"resultType":"complete","structuredContent":[1.0]})";
  Reply(array);
  EXPECT_EQ(End("D").body.view(), array);
}

TEST_F(ModernOnlyBackend, SparesOlderClientsWhatIsNotTheirsInLargeResultsToo) {
  const std::string text(200'000, 'x');
  Submit(Asking("A"));
  Reply(fmt::format(R"({{"ttlMs":0,"content":["{}"],"cacheScope":"private","a\u0062":1.0,)"
                    R"("resultType":"complete"}})",
                    text));
  EXPECT_EQ(End("A").body.view(), fmt::format(R"({{"content":["{}"],"a\u0062":1.0}})", text));
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

TEST_F(ModernOnlyBackend, AsksOlderClientsToOpenUrlsUnderAName) {
  const std::string asks =
      R"({"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create",)"
      R"("params":{"mode":"url","url":"https://x","message":"m"}}}})";
  CallSpec able = Asking("A");
  able.client_capabilities = R"({"elicitation":{"form":{},"url":{}}})";
  Submit(std::move(able));
  Reply(asks);
  EXPECT_NE(asked.find(R"("url":"https://x","message":"m","elicitationId":")"), std::string::npos)
      << asked;
  seat->Answer(1, false, Payload(R"({"action":"accept"})"));
  loop.RunReady();
  Reply(R"({"resultType":"complete","content":[]})");
  EXPECT_EQ(End("A").body.view(), R"({"content":[]})");
  Submit(Asking("B"));
  Reply(asks);
  EXPECT_NE(End("B").body.view().find(R"("code":-32042)"), std::string::npos);
  EXPECT_NE(End("B").body.view().find(R"("elicitations":[{"mode":"url","url":"https://x")"),
            std::string::npos);
}

TEST_F(ModernOnlyBackend, IsSparedWhatItHasNoMore) {
  for (const char* method : {"ping", "logging/setLevel", "resources/subscribe"}) {
    CallSpec spec = Tool(method);
    spec.method = method;
    spec.lane = v1::FREE;
    Submit(std::move(spec));
    EXPECT_EQ(End(method).body.view(), "{}") << method;
    EXPECT_EQ(backend->Count(method), 0u);
  }
}

// ---- listening ----------------------------------------------------------------------------------

class ListenedTo : public ModernOnlyBackend {
 protected:
  void SetUp() override {
    backend->ends_unanswered = false;  // one pipe
    ModernOnlyBackend::SetUp();
    told.clear();
  }
  void Wish(const std::vector<std::string>& uris) {
    v1::Interest interest;
    for (const std::string& uri : uris) interest.add_resource_uris(uri);
    seat->SetInterest(interest);
    loop.RunReady();
  }
  uint64_t Listening() { return backend->Last("subscriptions/listen").exchange; }
  void Hear(const std::string& method, const std::string& members, uint64_t subscription,
            uint64_t exchange = 0) {
    backend->Say(
        core::MakeNotification(
            method, fmt::format(R"({{{}"_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}}})",
                                members, subscription)),
        exchange);
    loop.RunReady();
  }
};

TEST_F(ListenedTo, IsToldOverAPipeWhatIsNoLongerListenedTo) {
  const uint64_t first = Listening();
  Wish({"a://1"});
  Wish({"a://1", "a://2"});
  EXPECT_EQ(backend->Count("subscriptions/listen"), 3u);
  EXPECT_EQ(backend->Count("notifications/cancelled"), 2u);
  const auto told_first = std::find_if(
      backend->sent.begin(), backend->sent.end(),
      [](const PlayedBackend::Sent& sent) { return sent.method == "notifications/cancelled"; });
  EXPECT_NE(told_first->text.find(fmt::format(R"("requestId":{},)", first)), std::string::npos)
      << told_first->text;
  EXPECT_EQ((told_first + 1)->method, "subscriptions/listen") << "nothing is missed between them";
  Wish({"a://1", "a://2"});
  EXPECT_EQ(backend->Count("subscriptions/listen"), 3u) << "the same wish changes nothing";
}

TEST_F(ListenedTo, IsHungUpOnOverHttp) {
  backend->ends_unanswered = true;
  Wish({"a://1"});
  EXPECT_EQ(backend->Count("subscriptions/listen"), 2u);
  EXPECT_EQ(backend->Count("notifications/cancelled"), 0u);
}

TEST_F(ListenedTo, TellsClientsNothingOfTheAgentsOwnSubscription) {
  Wish({"a://1"});
  Hear("notifications/subscriptions/acknowledged", R"("notifications":{},)", Listening());
  EXPECT_EQ(told, Told{});
  Hear("notifications/resources/updated", R"("uri":"a://1",)", Listening());
  EXPECT_EQ(told, Told{R"(notice notifications/resources/updated {"uri":"a://1"})"});
  told.clear();
  // What was under way when the wish changed.
  Hear("notifications/resources/updated", R"("uri":"a://1",)", Listening() - 1);
  EXPECT_EQ(told, Told{R"(notice notifications/resources/updated {"uri":"a://1"})"});
  told.clear();
  backend->Say(core::MakeNotification(
      "notifications/resources/updated",
      fmt::format(R"({{"uri":"a://1","_meta":{{"io.modelcontextprotocol/subscriptionId":{},)"
                  R"("k":1.0}}}})",
                  Listening())));
  loop.RunReady();
  EXPECT_EQ(told,
            Told{R"(notice notifications/resources/updated {"uri":"a://1","_meta":{"k":1.0}})"});
}

TEST_F(ListenedTo, IsListenedToAnewWhenItTakesTheListeningBack) {
  const auto take_back = [&](uint64_t request) {
    backend->Say(core::MakeNotification("notifications/cancelled",
                                        fmt::format(R"({{"requestId":{}}})", request)));
    loop.RunReady();
  };
  take_back(Listening() + 1'000);
  loop.RunFor(absl::Minutes(1));
  EXPECT_EQ(backend->Count("subscriptions/listen"), 1u);
  take_back(Listening());
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(backend->Count("subscriptions/listen"), 2u);
  EXPECT_EQ(backend->Count("notifications/cancelled"), 0u) << "that one is over";
}

TEST_F(ListenedTo, IsHeardOfItsTasksOverHttpToo) {
  backend->ends_unanswered = true;
  Submit(Asking("A"));
  told.clear();
  Hear("notifications/tasks", R"("taskId":"t1",)", Listening(), Listening());
  EXPECT_EQ(told, Told{R"(notice notifications/tasks {"taskId":"t1"})"});
}

TEST_F(ListenedTo, IsAskedForTasks) {
  v1::Interest interest;
  interest.add_task_ids("t1");
  seat->SetInterest(interest);
  loop.RunReady();
  const std::string& listened = backend->Last("subscriptions/listen").text;
  EXPECT_NE(listened.find(R"("taskIds":["t1"])"), std::string::npos) << listened;
  EXPECT_NE(listened.find(R"({"extensions":{"io.modelcontextprotocol/tasks":{}}})"),
            std::string::npos);
}

}  // namespace
}  // namespace callboard::agent
