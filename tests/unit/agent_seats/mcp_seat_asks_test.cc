// Tests of what a backend says by itself: requests to clients, notifications of one call.
#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {
namespace {

class McpSeatAsks : public SeatFixture {
 protected:
  CallSpec Client(std::string id, std::string session) {
    CallSpec spec = Tool(std::move(id));
    spec.backend_session = std::move(session);
    spec.client_capabilities = R"({"sampling":{}})";
    spec.client_info = R"({"name":"claude","version":"2"})";
    return spec;
  }
  void MakeSeatWithSessions(SeatLimits limits = {}) {
    has_sessions = true;
    MakeSeat(limits);
    BringUp();
  }
  void BringUpWithResources() {
    backend->initialize_result =
        R"({"protocolVersion":"2025-06-18","capabilities":{"resources":{"subscribe":true}}})";
    BringUp();
  }
  static std::string ForUrl(std::string_view raw_id, std::string_view id) {
    return core::MakeRequest(
        raw_id, "elicitation/create",
        fmt::format(R"({{"mode":"url","elicitationId":"{}","url":"https://x"}})", id));
  }
  static std::string Complete(std::string_view id) {
    return core::MakeNotification("notifications/elicitation/complete",
                                  fmt::format(R"({{"elicitationId":"{}"}})", id));
  }
  // A and B, which run at a time; returns the exchange of A.
  uint64_t SubmitTwo() {
    CallSpec first = Tool("A");
    CallSpec second = Tool("B");
    first.lane = second.lane = v1::FREE;
    Submit(std::move(first));
    const uint64_t exchange = LastCall();
    Submit(std::move(second));
    return exchange;
  }
  static std::string Sampling(std::string_view raw_id) {
    return core::MakeRequest(raw_id, "sampling/createMessage", R"({"maxTokens":5})");
  }
};

TEST_F(McpSeatAsks, AskGoesToTheRunningCallAndItsAnswerBackUnderTheBackendsId) {
  BringUp();
  Submit(Tool("A"));
  backend->Say(Sampling("\"s-1\""));
  loop.RunReady();
  EXPECT_EQ(told.back(), "A ask 1 sampling/createMessage");
  seat->Answer(1, false, Payload(std::string(R"({"role":"assistant"})")));
  EXPECT_EQ(backend->sent.back().text,
            R"({"jsonrpc":"2.0","id":"s-1","result":{"role":"assistant"}})");
  const size_t sent = backend->sent.size();
  seat->Answer(1, false, Payload(std::string("{}")));
  EXPECT_EQ(backend->sent.size(), sent) << "an ask is answered once";
}

TEST_F(McpSeatAsks, AskWithoutACallIsAnsweredHere) {
  BringUp();
  backend->Say(Sampling("7"));
  loop.RunReady();
  EXPECT_TRUE(told.empty());
  EXPECT_NE(backend->sent.back().text.find(R"("id":7,"error":{"code":-32601)"), std::string::npos)
      << backend->sent.back().text;
}

TEST_F(McpSeatAsks, ClientsAnswerIsRefusedOnItsBehalfWhenTheCallEnds) {
  BringUp();
  Submit(Tool("A"));
  backend->Say(Sampling("8"));
  loop.RunReady();
  seat->Cancel("A", v1::Cancel::CLIENT);
  loop.RunReady();
  const auto& answer = backend->sent.back().text;
  EXPECT_NE(answer.find(R"("id":8,"error":{"code":-32000)"), std::string::npos) << answer;
}

TEST_F(McpSeatAsks, BackendThatTakesItsRequestBackGetsNoAnswer) {
  BringUp();
  Submit(Tool("A"));
  backend->Say(Sampling("9"));
  backend->Say(
      core::MakeNotification("notifications/cancelled", R"({"requestId":9,"reason":"late"})"));
  loop.RunReady();
  EXPECT_EQ(told.back(), R"(A ask 1 cancelled {"reason":"late"})");
  const size_t sent = backend->sent.size();
  seat->Answer(1, false, Payload(std::string("{}")));
  EXPECT_EQ(backend->sent.size(), sent);
  const size_t so_far = told.size();
  backend->Say(core::MakeNotification("notifications/cancelled", R"({"requestId":9})"));
  loop.RunReady();
  EXPECT_EQ(told.size(), so_far) << "there is nothing left to take back";
}

TEST_F(McpSeatAsks, OneMoreThanTheBoundIsAnsweredWithAnError) {
  SeatLimits limits;
  limits.asks_max = 1;
  MakeSeat(limits);
  BringUp();
  Submit(Tool("A"));
  backend->Say(Sampling("1"));
  backend->Say(Sampling("2"));
  loop.RunReady();
  EXPECT_NE(backend->sent.back().text.find(R"("id":2,"error")"), std::string::npos);
}

TEST_F(McpSeatAsks, SharedSessionOffersAllThatSomeClientMayOffer) {
  BringUp();
  EXPECT_NE(backend->Last("initialize")
                .text.find(R"("capabilities":{"roots":{"listChanged":true},)"
                           R"("sampling":{"context":{},"tools":{}},)"
                           R"("elicitation":{"form":{},"url":{}}})"),
            std::string::npos)
      << backend->Last("initialize").text;
}

TEST_F(McpSeatAsks, ClientWithCapabilitiesHasASessionOfItsOwnWhereTheBackendHasSessions) {
  MakeSeatWithSessions();
  EXPECT_EQ(backend->Last("initialize").text.find("sampling"), std::string::npos);
  Submit(Client("A", "s1"));
  ASSERT_EQ(backend->others.size(), 1u);
  PlayedBackend* own = backend->others[0];
  EXPECT_NE(own->Last("initialize").text.find(R"("capabilities":{"sampling":{}})"),
            std::string::npos);
  EXPECT_NE(own->Last("initialize").text.find(R"("name":"claude")"), std::string::npos);
  EXPECT_EQ(backend->Count("tools/call"), 0u);
  own->Answer(own->Last("tools/call").exchange, R"({"content":[]})");
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end RESULT REASON_UNSPECIFIED FINISHED");
  Submit(Client("B", "s1"));
  EXPECT_EQ(backend->others.size(), 1u) << "the same client, the same session";
}

TEST_F(McpSeatAsks, NotificationOfAClientWithASessionOfItsOwnIsHeardInThatSession) {
  MakeSeatWithSessions();
  CallSpec changed = Client("A", "s1");
  changed.notification = true;
  changed.lane = v1::FREE;
  changed.method = "notifications/roots/list_changed";
  changed.params = Payload();
  Submit(std::move(changed));
  ASSERT_EQ(backend->others.size(), 1u);
  EXPECT_EQ(backend->others[0]->Count("notifications/roots/list_changed"), 1u);
  EXPECT_EQ(backend->Count("notifications/roots/list_changed"), 0u);
}

TEST_F(McpSeatAsks, CallCancelledBeforeItsSessionIsReadyLeavesTheSeatIdle) {
  MakeSeatWithSessions();
  backend->others_answer_initialize = false;
  Submit(Client("A", "s1"));
  EXPECT_EQ(seat->State().health().main_thread(), v1::BUSY);
  EXPECT_EQ(seat->Cancel("A", v1::Cancel::CLIENT), v1::CancelAck::DROPPED);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(told.back(), "A end CANCELLED CANCELLED_BY_CLIENT NOT_STARTED");
  EXPECT_EQ(seat->State().health().main_thread(), v1::HEALTHY);
}

TEST_F(McpSeatAsks, AskOfAClientsSessionReachesThatClientOnly) {
  MakeSeatWithSessions();
  CallSpec first = Client("A", "s1");
  CallSpec second = Client("B", "s2");
  first.lane = second.lane = v1::FREE;
  Submit(std::move(first));
  Submit(std::move(second));
  ASSERT_EQ(backend->others.size(), 2u);
  backend->others[1]->Say(Sampling("5"));
  loop.RunReady();
  EXPECT_EQ(told.back(), "B ask 1 sampling/createMessage");
  seat->Answer(1, false, Payload(std::string("{}")));
  EXPECT_EQ(backend->others[1]->sent.back().text, R"({"jsonrpc":"2.0","id":5,"result":{}})");
}

TEST_F(McpSeatAsks, WhatTheSessionOfOneClientSaysOutsideItsRepliesGoesWithItsNewestCall) {
  MakeSeatWithSessions();
  for (const char* id : {"A", "B"}) {
    CallSpec call = Client(id, "s1");
    call.session_id = "s1";
    call.lane = v1::FREE;
    Submit(std::move(call));
    loop.RunFor(absl::Seconds(1));
  }
  ASSERT_EQ(backend->others.size(), 1u);
  PlayedBackend* own = backend->others[0];
  own->Say(Sampling("5"));
  loop.RunReady();
  EXPECT_EQ(told.back(), "B ask 1 sampling/createMessage");
  own->Say(core::MakeNotification("notifications/custom", "{}"));
  loop.RunReady();
  EXPECT_EQ(told.back(), "B notifications/custom");
  seat->Cancel("B", v1::Cancel::CLIENT);
  own->Say(Sampling("6"));
  loop.RunReady();
  EXPECT_EQ(told.back(), "A ask 2 sampling/createMessage");
}

TEST_F(McpSeatAsks, MessageInTheReplyOfACallBelongsToThatCall) {
  BringUp();
  const uint64_t exchange = SubmitTwo();
  backend->Say(Sampling("1"), exchange);
  backend->Say(core::MakeNotification("notifications/custom", "{}"), exchange);
  loop.RunReady();
  EXPECT_EQ(told[told.size() - 2], "A ask 1 sampling/createMessage");
  EXPECT_EQ(told.back(), "A notifications/custom");
}

TEST_F(McpSeatAsks, LogOfACallThatIsOverReachesNobodyElse) {
  BringUp();
  Submit(Tool("A"));
  const uint64_t exchange = LastCall();
  seat->Cancel("A", v1::Cancel::CLIENT);
  loop.RunReady();
  const size_t before = told.size();
  backend->Say(core::MakeNotification("notifications/message", R"({"data":"A's secret"})"),
               exchange);
  loop.RunReady();
  EXPECT_EQ(told.size(), before) << told.back();
}

TEST_F(McpSeatAsks, LogInTheSessionOfOneClientReachesNobodyElse) {
  MakeSeatWithSessions();
  Submit(Client("A", "s1"));
  PlayedBackend* own = backend->others[0];
  own->Answer(own->Last("tools/call").exchange, "{}");
  loop.RunReady();
  const size_t before = told.size();
  own->Say(core::MakeNotification("notifications/message", R"({"data":"of s1"})"));
  loop.RunReady();
  EXPECT_EQ(told.size(), before) << told.back();
  own->Say(core::MakeNotification("notifications/prompts/list_changed", ""));
  loop.RunReady();
  EXPECT_EQ(told.back(), "notice notifications/prompts/list_changed ");
}

TEST_F(McpSeatAsks, EndOfAnElicitationGoesWithTheCallThatAskedAndElseToWhoeverKnowsItsClient) {
  BringUp();
  const uint64_t exchange = SubmitTwo();
  backend->Say(ForUrl("1", "e1"), exchange);
  loop.RunReady();
  EXPECT_EQ(told.back(), "A ask 1 elicitation/create");
  backend->Say(Complete("e1"));
  loop.RunReady();
  EXPECT_EQ(told.back(), "A notifications/elicitation/complete");
  backend->Answer(exchange, "{}");
  backend->Say(Complete("e1"));
  loop.RunReady();
  EXPECT_EQ(told.back(), R"(notice notifications/elicitation/complete {"elicitationId":"e1"})");
}

TEST_F(McpSeatAsks, EndOfAnElicitationIsToldFromTheSessionOfOneClientToo) {
  MakeSeatWithSessions();
  Submit(Client("A", "s1"));
  PlayedBackend* own = backend->others[0];
  own->Say(ForUrl("1", "e1"));
  own->Say(Complete("e1"));
  loop.RunReady();
  EXPECT_EQ(told.back(), "A notifications/elicitation/complete");
  own->Answer(own->Last("tools/call").exchange, "{}");
  own->Say(Complete("e1"));
  loop.RunReady();
  EXPECT_EQ(told.back(), R"(notice notifications/elicitation/complete {"elicitationId":"e1"})");
}

TEST_F(McpSeatAsks, DeathOfTheProcessEndsTheCallsOfAllSessions) {
  MakeSeatWithSessions();
  Submit(Client("A", "s1"));
  backend->Die(9);
  loop.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(told.back(), "A end LOST DCC_EXITED UNKNOWN");
}

TEST_F(McpSeatAsks, UnusedSessionOfAClientIsEnded) {
  SeatLimits limits;
  limits.client_sessions.idle = absl::Minutes(1);
  MakeSeatWithSessions(limits);
  Submit(Client("A", "s1"));
  PlayedBackend* own = backend->others[0];
  bool stopped = false;
  own->on_stop = [&] { stopped = true; };
  own->Answer(own->Last("tools/call").exchange, "{}");
  loop.RunFor(absl::Minutes(2));
  EXPECT_TRUE(stopped);
}

TEST_F(McpSeatAsks, BeyondTheBoundTheLongestUnusedSessionMakesRoom) {
  SeatLimits limits;
  limits.client_sessions.sessions_max = 1;
  MakeSeatWithSessions(limits);
  CallSpec first = Client("A", "s1");
  Submit(std::move(first));
  CallSpec second = Client("B", "s2");
  second.lane = v1::FREE;
  Submit(std::move(second));
  EXPECT_EQ(backend->others.size(), 1u) << "the only one is in use: the shared one serves";
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  backend->others[0]->Answer(backend->others[0]->Last("tools/call").exchange, "{}");
  loop.RunReady();
  Submit(Client("C", "s3"));
  EXPECT_EQ(backend->others.size(), 2u);
}

TEST_F(McpSeatAsks, WhatIsWantedIsSaidOnceAndAgainToANewProcess) {
  backend->initialize_result =
      R"({"protocolVersion":"2025-06-18","capabilities":{"logging":{},"resources":{"subscribe":true}}})";
  BringUp();
  v1::Interest interest;
  interest.set_version(1);
  interest.set_log_level("debug");
  interest.add_resource_uris("scene://");
  seat->SetInterest(interest);
  seat->SetInterest(interest);
  EXPECT_EQ(backend->Count("logging/setLevel"), 1u);
  EXPECT_EQ(backend->Count("resources/subscribe"), 1u);
  backend->Die(9);
  loop.RunFor(absl::Seconds(1));
  BringUp();
  EXPECT_EQ(backend->Count("logging/setLevel"), 2u);
  EXPECT_EQ(backend->Count("resources/subscribe"), 2u);
  interest.clear_resource_uris();
  seat->SetInterest(interest);
  EXPECT_EQ(backend->Count("resources/unsubscribe"), 1u);
}

TEST_F(McpSeatAsks, SubscriptionThatIsRenewedCountsAsNews) {
  BringUpWithResources();
  v1::Interest interest;
  interest.add_resource_uris("scene://");
  seat->SetInterest(interest);
  backend->Answer(backend->Last("resources/subscribe").exchange, "{}");
  loop.RunReady();
  EXPECT_EQ(told.back(), R"(notice notifications/resources/updated {"uri":"scene://"})");
}

TEST_F(McpSeatAsks, ListsThatMayHaveChangedAreNewsOnceTheBackendIsThere) {
  backend->initialize_result =
      R"({"protocolVersion":"2025-06-18","capabilities":{"prompts":{"listChanged":true}}})";
  backend->Up();
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(told, Told{"notice notifications/prompts/list_changed "});
}

TEST_F(McpSeatAsks, SubscriptionThatIsRefusedIsNoNewsAndAskedForWithTheNextWish) {
  BringUpWithResources();
  v1::Interest interest;
  interest.add_resource_uris("scene://");
  seat->SetInterest(interest);
  backend->Say(
      core::MakeErrorResponse(fmt::format("{}", backend->Last("resources/subscribe").exchange),
                              core::kResourceNotFound, "subscriber not yet ready"));
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(told, Told{});
  EXPECT_EQ(backend->Count("resources/subscribe"), 1u);
  seat->SetInterest(interest);
  EXPECT_EQ(backend->Count("resources/subscribe"), 2u);
  seat->SetInterest({});
  EXPECT_EQ(backend->Count("resources/unsubscribe"), 1u) << "it may still be taken";
}

TEST_F(McpSeatAsks, BackendWithoutSubscriptionsIsAskedForNone) {
  BringUp();
  v1::Interest interest;
  interest.add_resource_uris("scene://");
  seat->SetInterest(interest);
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(backend->Count("resources/subscribe"), 0u);
  EXPECT_EQ(told, Told{});
}

TEST_F(McpSeatAsks, SubscriptionThatFailedIsMadeAgain) {
  BringUpWithResources();
  v1::Interest interest;
  interest.add_resource_uris("scene://");
  seat->SetInterest(interest);
  backend->End(backend->Last("resources/subscribe").exchange, absl::UnavailableError("reset"),
               true);
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(backend->Count("resources/subscribe"), 2u);
}

TEST_F(McpSeatAsks, OneClientsUnsubscribeDoesNotCostAnotherItsSubscription) {
  BringUpWithResources();
  v1::Interest interest;
  interest.add_resource_uris("scene://");
  seat->SetInterest(interest);
  backend->Answer(backend->Last("resources/subscribe").exchange, "{}");
  CallSpec spec = Tool("A");
  spec.method = "resources/unsubscribe";
  spec.params = Payload(std::string(R"({"uri":"scene://"})"));
  Submit(std::move(spec));
  backend->Answer(backend->Last("resources/unsubscribe").exchange, "{}");
  loop.RunFor(absl::Seconds(6));
  EXPECT_EQ(backend->Count("resources/subscribe"), 2u)
      << "the control plane has not said that nobody wants it any more";
}

TEST_F(McpSeatAsks, ClientsOwnSubscriptionIsNotMadeTwice) {
  BringUpWithResources();
  CallSpec spec = Tool("A");
  spec.method = "resources/subscribe";
  spec.params = Payload(std::string(R"({"uri":"scene://"})"));
  Submit(std::move(spec));
  backend->Answer(backend->Last("resources/subscribe").exchange, "{}");
  loop.RunReady();
  v1::Interest interest;
  interest.add_resource_uris("scene://");
  seat->SetInterest(interest);
  EXPECT_EQ(backend->Count("resources/subscribe"), 1u);
}

}  // namespace
}  // namespace callboard::agent
