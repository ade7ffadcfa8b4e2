// Tests of what Streamable HTTP servers do with streams, sessions and redirects, good and bad.
#include "tests/unit/agent_seats/http_backend_fixture.h"

namespace callboard::agent {
namespace {

class HttpBackendStreamsTest : public HttpBackendTest {
 protected:
  static net::HeaderList Sse() { return {{"Content-Type", "text/event-stream"}}; }

  // initialize and notifications/initialized with a server that keeps sessions; GETs go to `get`.
  void BeginSession() {
    Begin();
    answer = [this](Responder to) {
      const net::HttpRequest& request = requests.back();
      if (request.method == "GET") return get(to);
      if (request.body.find("\"notifications/") != std::string::npos) {
        return to->Respond(202, {}, "");
      }
      to->Respond(200, {{"Content-Type", "application/json"}, {"Mcp-Session-Id", "s1"}},
                  R"({"jsonrpc":"2.0","id":1,"result":{}})");
    };
    exchanges.push_back(Post(1));
    backend->SetRevision("2025-11-25");
    exchanges.push_back(
        backend->Send(2, R"({"jsonrpc":"2.0","method":"notifications/initialized"})", false, {}));
    loop.RunFor(absl::Milliseconds(10));
    told.clear();
  }
  // The next POST gets an event stream that begins with `text`; it stays in `open`.
  void StreamOnPost(const std::string& text) {
    auto former = answer;
    answer = [this, former, text](Responder to) {
      if (requests.back().method != "POST") return former(to);
      open = to;
      to->StartStream(200, Sse());
      to->Write(text, nullptr);
    };
  }
  size_t Count(const std::string& method) const {
    size_t count = 0;
    for (const auto& request : requests) count += request.method == method ? 1 : 0;
    return count;
  }

  std::function<void(Responder)> get = [this](Responder to) {
    listening = to;
    to->StartStream(200, Sse());
  };
  Responder open;
  Responder listening;
  std::vector<std::unique_ptr<BackendExchange>> exchanges;
};

// ---- the listen stream ------------------------------------------------------------------------

TEST_F(HttpBackendStreamsTest, ListensOnOneStreamOnceTheSessionIsInitialized) {
  BeginSession();
  ASSERT_EQ(Count("GET"), 1u);
  EXPECT_EQ(*requests.back().Header("accept"), "text/event-stream");
  EXPECT_EQ(*requests.back().Header("mcp-session-id"), "s1");
  EXPECT_EQ(*requests.back().Header("mcp-protocol-version"), "2025-11-25");
  listening->Write("data: {\"method\":\"n\"}\n\ndata: {\"id\":1,\"method\":\"r\"}\n\n", nullptr);
  loop.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(told, (Told{R"({"method":"n"})", R"({"id":1,"method":"r"})"}));
  // Another notification begins no second one.
  exchanges.push_back(
      backend->Send(3, R"({"jsonrpc":"2.0","method":"notifications/cancelled"})", false, {}));
  loop.RunFor(absl::Seconds(60));
  EXPECT_EQ(Count("GET"), 1u);
}

TEST_F(HttpBackendStreamsTest, AListenStreamThatEndsIsOpenedAgainWhereItWas) {
  BeginSession();
  listening->Write("id: g.7\ndata: {}\n\n", nullptr);
  listening->End();
  loop.RunFor(absl::Milliseconds(200));
  ASSERT_EQ(Count("GET"), 2u);
  EXPECT_EQ(*requests.back().Header("last-event-id"), "g.7");
}

TEST_F(HttpBackendStreamsTest, AListenStreamThatIsThereAgainIsToldAndTheFirstIsNot) {
  BeginSession();
  EXPECT_EQ(told, Told{});
  listening->End();
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_EQ(told, Told{"rejoined"});
}

TEST_F(HttpBackendStreamsTest, A404OnAListenStreamThatHasBeenOpenMeansTheSessionIsForgotten) {
  BeginSession();
  get = [](Responder to) { to->Respond(404, {}, ""); };
  listening->End();
  loop.RunFor(absl::Seconds(60));
  EXPECT_EQ(told, Told{"session forgotten"});
  EXPECT_EQ(Count("GET"), 2u);
}

TEST_F(HttpBackendStreamsTest, A404OnTheFirstListenStreamMeansThatThereIsNone) {
  get = [](Responder to) { to->Respond(404, {}, ""); };
  BeginSession();
  loop.RunFor(absl::Minutes(10));
  EXPECT_EQ(told, Told{});
  EXPECT_EQ(Count("GET"), 1u);
}

TEST_F(HttpBackendStreamsTest, WaitsBetweenListenStreamsGrowToTenSecondsAndObeyTheServer) {
  get = [](Responder to) { to->Respond(503, {}, ""); };
  BeginSession();
  loop.RunFor(absl::Seconds(1));
  EXPECT_GE(Count("GET"), 3u);  // after 0.1, 0.3, 0.7 s, each +-25 %
  EXPECT_LE(Count("GET"), 5u);
  loop.RunFor(absl::Seconds(30));
  const size_t before = Count("GET");
  loop.RunFor(absl::Seconds(100));
  EXPECT_GE(Count("GET") - before, 8u);
  EXPECT_LE(Count("GET") - before, 14u);
  // A stream with `retry:` that ends at once.
  get = [](Responder to) {
    to->StartStream(200, Sse());
    to->Write("retry: 40000\ndata:\n\n", nullptr);
    to->End();
  };
  loop.RunFor(absl::Seconds(15));
  const size_t told_to_wait = Count("GET");
  loop.RunFor(absl::Seconds(100));
  EXPECT_GE(Count("GET") - told_to_wait, 1u);
  EXPECT_LE(Count("GET") - told_to_wait, 4u);
}

TEST_F(HttpBackendStreamsTest, FC07_ABackendThatAnswersGetWith405IsAskedOncePerSession) {
  get = [](Responder to) { to->Respond(405, {{"Allow", "POST"}}, ""); };
  BeginSession();
  loop.RunFor(absl::Minutes(10));
  EXPECT_EQ(Count("GET"), 1u);
  exchanges.push_back(Post(5));
  EXPECT_EQ(told.back(), "5 OK");
}

TEST_F(HttpBackendStreamsTest, ABackendWithoutSessionsIsNotListenedTo) {
  Begin();
  answer = [](Responder to) { to->Respond(202, {}, ""); };
  backend->SetRevision("2025-06-18");
  auto exchange = backend->Send(1, R"({"method":"notifications/initialized"})", false, {});
  loop.RunFor(absl::Seconds(5));
  EXPECT_EQ(Count("GET"), 0u);
}

// ---- resuming a reply -------------------------------------------------------------------------

TEST_F(HttpBackendStreamsTest, AReplyStreamThatIsCutIsResumedAfterTheLastEventAndTheGivenTime) {
  BeginSession();
  StreamOnPost("id: p1.1\nretry: 500\ndata:\n\nid: p1.2\ndata: {\"method\":\"n\"}\n\n");
  exchanges.push_back(Post(9));
  get = [](Responder to) {
    to->StartStream(200, Sse());
    to->Write("id: p1.3\ndata: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n\n", nullptr);
    to->End();
  };
  open->End();
  loop.RunFor(absl::Milliseconds(490));
  EXPECT_EQ(Count("GET"), 1u);
  loop.RunFor(absl::Milliseconds(50));
  ASSERT_EQ(Count("GET"), 2u);
  EXPECT_EQ(*requests.back().Header("last-event-id"), "p1.2");
  EXPECT_EQ(told, (Told{R"({"method":"n"})", R"({"jsonrpc":"2.0","id":9,"result":{}})", "9 OK"}));
}

TEST_F(HttpBackendStreamsTest, AReplyStreamThatBrokeIsResumedToo) {
  BeginSession();
  StreamOnPost("id: p1.1\ndata:\n\n");
  exchanges.push_back(Post(9));
  get = [](Responder to) {
    to->StartStream(200, Sse());
    to->Write("data: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n\n", nullptr);
    to->End();
  };
  open->Abort();
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(told.back(), "9 OK");
}

TEST_F(HttpBackendStreamsTest, ResumingEndsWhenNothingNewComes) {
  BeginSession();
  StreamOnPost("id: p1.1\ndata:\n\n");
  exchanges.push_back(Post(9));
  get = [](Responder to) {
    to->StartStream(200, Sse());
    to->End();
  };
  open->End();
  loop.RunFor(absl::Minutes(5));
  EXPECT_EQ(Count("GET"), 1u + 5u);
  EXPECT_EQ(told, (Told{"9 OK"}));  // without an answer: the session calls it an error
}

TEST_F(HttpBackendStreamsTest, AStreamThatCannotBeResumedEndsAsItWasLost) {
  BeginSession();
  StreamOnPost("id: p1.1\ndata:\n\n");
  exchanges.push_back(Post(9));
  get = [](Responder to) { to->Respond(404, {}, ""); };
  open->Abort();
  loop.RunFor(absl::Seconds(5));
  EXPECT_EQ(Count("GET"), 2u);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(code, absl::StatusCode::kUnavailable);  // never NotFound: it may have run
}

TEST_F(HttpBackendStreamsTest, AnAnsweredStreamIsNotResumed) {
  BeginSession();
  StreamOnPost("id: p1.1\ndata: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n\n");
  exchanges.push_back(Post(9));
  open->Abort();
  loop.RunFor(absl::Minutes(1));
  EXPECT_EQ(Count("GET"), 1u);
}

TEST_F(HttpBackendStreamsTest, FC06_AStreamThatEndsWithoutAnswerEndsItsExchangeAtOnce) {
  BeginSession();
  StreamOnPost(": hello\n\n");
  exchanges.push_back(Post(9));
  open->End();
  loop.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(told, (Told{"9 OK"}));
  EXPECT_EQ(Count("POST"), 3u);
}

TEST_F(HttpBackendStreamsTest, ABodyCutInTheMiddleIsLostAndMayHaveRun) {
  BeginSession();
  answer = [](Responder to) {
    to->StartStream(200, Json(), 1000);
    to->Write("{\"jsonrpc\":", nullptr);
    to->Abort();
  };
  exchanges.push_back(Post(9));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].substr(0, 2), "9 ");
  EXPECT_EQ(told[0].find("unreached"), std::string::npos);
  EXPECT_EQ(code, absl::StatusCode::kUnavailable);
}

TEST_F(HttpBackendStreamsTest, ASecondAnswerAndAForeignOneAreHandedOnForTheSessionToDrop) {
  BeginSession();
  StreamOnPost(
      "data: {\"id\":9,\"result\":1}\n\ndata: {\"id\":9,\"result\":2}\n\n"
      "data: {\"id\":77,\"result\":3}\n\n");
  exchanges.push_back(Post(9));
  open->End();
  loop.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(told.size(), 4u);
  EXPECT_EQ(told.back(), "9 OK");
}

// ---- sessions ---------------------------------------------------------------------------------

constexpr char kNoSession[] =
    R"({"jsonrpc":"2.0","id":9,"error":{"code":-32000,"message":"Bad Request: No valid session ID"}})";
constexpr char kToolsOwn[] =
    R"({"jsonrpc":"2.0","id":9,"error":{"code":-32000,"message":"render session aborted"}})";

TEST_F(HttpBackendStreamsTest, A400ThatNamesTheSessionMeansItIsForgottenIfAPingIsRefusedToo) {
  BeginSession();
  answer = [](Responder to) { to->Respond(400, Json(), kNoSession); };
  exchanges.push_back(Post(9));
  EXPECT_EQ(code, absl::StatusCode::kNotFound);
  EXPECT_EQ(told.size(), 1u) << "nobody is told of the refusal";
  EXPECT_NE(requests.back().body.find(R"("method":"ping")"), std::string::npos);
  EXPECT_EQ(*requests.back().Header("mcp-session-id"), "s1");
  EXPECT_EQ(*requests.back().Header("mcp-protocol-version"), "2025-11-25");
}

TEST_F(HttpBackendStreamsTest, AToolsOwnErrorThatNamesASessionIsItsAnswerAndItsCallIsNotSentAgain) {
  BeginSession();
  answer = [this](Responder to) {
    if (requests.back().body.find(R"("method":"ping")") == std::string::npos) {
      return to->Respond(400, Json(), kToolsOwn);
    }
    to->Respond(200, Json(), R"({"jsonrpc":"2.0","id":"session-check","result":{}})");
  };
  exchanges.push_back(Post(9));
  EXPECT_EQ(told, (Told{kToolsOwn, "9 OK"}));
}

TEST_F(HttpBackendStreamsTest, APingThatStaysWithoutAnAnswerMakesNoSessionAForgottenOne) {
  BeginSession();
  answer = [this](Responder to) {
    open = to;
    if (requests.back().body.find(R"("method":"ping")") == std::string::npos) {
      to->Respond(400, {{"Content-Type", "text/plain"}}, "the session is locked");
    }
  };
  exchanges.push_back(Post(9));
  EXPECT_EQ(told, Told{});
  loop.RunFor(absl::Seconds(4));
  EXPECT_EQ(told, Told{"9 the backend answered HTTP 400 Bad Request: the session is locked"});
  EXPECT_EQ(code, absl::StatusCode::kInternal);
}

TEST_F(HttpBackendStreamsTest, TwoRefusalsOfOneSessionForgetNoneThatHasBeenOpenedSince) {
  BeginSession();
  std::vector<Responder> pings;
  answer = [&](Responder to) {
    if (requests.back().body.find(R"("method":"ping")") == std::string::npos) {
      return to->Respond(400, Json(), kNoSession);
    }
    pings.push_back(to);
  };
  exchanges.push_back(Post(9));
  exchanges.push_back(Post(10));
  ASSERT_EQ(pings.size(), 2u);
  pings[0]->Respond(400, Json(), kNoSession);
  loop.RunFor(absl::Milliseconds(10));
  answer = [](Responder to) {
    to->Respond(200, {{"Content-Type", "application/json"}, {"Mcp-Session-Id", "s2"}}, "{}");
  };
  backend->SetRevision("");
  exchanges.push_back(Post(11));
  backend->SetRevision("2025-11-25");
  pings[1]->Respond(400, Json(), kNoSession);
  loop.RunFor(absl::Milliseconds(10));
  exchanges.push_back(Post(12));
  EXPECT_EQ(*requests.back().Header("mcp-session-id"), "s2");
}

// ---- redirects --------------------------------------------------------------------------------

TEST_F(HttpBackendStreamsTest, FC26_FollowsRedirectsOfMethodAndBodyWithinTheOrigin) {
  Begin();
  answer = [this](Responder to) {
    if (requests.back().target == "/mcp") return to->Respond(307, {{"Location", "/mcp/"}}, "x");
    to->Respond(200, Json(), R"({"jsonrpc":"2.0","id":1,"result":{}})");
  };
  exchanges.push_back(Post(1));
  EXPECT_EQ(told.back(), "1 OK");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].target, "/mcp/");
  EXPECT_EQ(requests[1].method, "POST");
  EXPECT_EQ(requests[1].body, requests[0].body);
  exchanges.push_back(Post(2));  // goes there at once
  EXPECT_EQ(requests[2].target, "/mcp/");
}

TEST_F(HttpBackendStreamsTest, FC26_FollowsNoRedirectElsewhereAndNoneThatChangesTheMethod) {
  Begin();
  const std::vector<std::pair<int, std::string>> redirects = {{301, "/mcp/"},
                                                              {302, "/mcp/"},
                                                              {303, "/mcp/"},
                                                              {307, "http://127.0.0.1:9999/mcp"},
                                                              {308, "http://elsewhere:9401/mcp"},
                                                              {307, "//elsewhere/mcp"},
                                                              {307, ""}};
  for (const auto& [status, location] : redirects) {
    answer = [&](Responder to) { to->Respond(status, {{"Location", location}}, ""); };
    requests.clear();
    exchanges.push_back(Post(1));
    EXPECT_EQ(requests.size(), 1u) << status << location;
    EXPECT_EQ(code, absl::StatusCode::kInternal);
    EXPECT_NE(told.back().find("redirect to '" + location + "', which is not followed"),
              std::string::npos)
        << told.back();
  }
  answer = [](Responder to) { to->Respond(307, {{"Location", "http://127.0.0.1:9401/mcp"}}, ""); };
  requests.clear();
  exchanges.push_back(Post(1));
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(requests.size(), 4u);  // three hops
}

TEST_F(HttpBackendStreamsTest, FC26_GetsNoFurtherOnAChainThatIsTooLongByTryingAgain) {
  Begin();
  answer = [this](Responder to) {
    to->Respond(307, {{"Location", requests.back().target + "/on"}}, "");
  };
  for (int attempt = 0; attempt < 3; ++attempt) {
    requests.clear();
    exchanges.push_back(Post(1));
    loop.RunFor(absl::Seconds(1));
    ASSERT_EQ(requests.size(), 4u) << attempt;
    EXPECT_EQ(requests.front().target, "/mcp") << attempt;
  }
}

}  // namespace
}  // namespace callboard::agent
