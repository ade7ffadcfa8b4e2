// Tests of the stdio face when the server is lost, forgets or refuses: each request ends once.
#include <algorithm>

#include "tests/unit/stdio/stdio_face_fixture.h"

namespace callboard::apps {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StdioFaceLosses : public StdioFaceTest {
 protected:
  // Everything that is open breaks, as when the server is killed.
  void KillServer() {
    for (const auto& request : std::deque(transport.requests)) request->Break(true, 0);
    loop.RunReady();
  }
  // All attempts for so long meet nobody.
  void RunWithoutServer(absl::Duration time) {
    const absl::Time end = loop.Now() + time;
    while (loop.Now() < end) {
      Run(absl::Milliseconds(100));
      for (const auto& request : std::deque(transport.requests)) request->Break(false);
      loop.RunReady();
    }
  }
};

TEST_F(StdioFaceLosses, ResumesACallWhereItsStreamWas) {
  Connect();
  auto call = StartCall("1");
  call->Event("7.1.3", R"({"jsonrpc":"2.0","method":"notifications/progress","params":{}})");
  Open("", "GET")->Event("0.1.5", "");
  Heard();
  KillServer();
  EXPECT_EQ(face->state(), LinkState::kResuming);
  Run(absl::Milliseconds(500));
  EXPECT_EQ(Open("ping")->session.session, "s1");
  AnswerProbe();
  EXPECT_EQ(face->state(), LinkState::kConnected);
  EXPECT_EQ(Open("0.1.5", "GET")->session.session, "s1");
  auto resumed = Open("7.1.3", "GET");
  resumed->Head(200, true);
  resumed->Event("7.2.1", core::MakeResult("1", R"({"content":[]})"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("1", R"({"content":[]})")));
  EXPECT_EQ(Count("tools/call"), 1u) << "it was sent once";
}

TEST_F(StdioFaceLosses, AsksAgainUnderTheSameKeyWhereThereWasNoStreamYet) {
  Connect();
  Say(Call("1"));
  const auto first = Open("tools/call");
  const std::string key = first->key;
  KillServer();
  Run(absl::Milliseconds(500));
  AnswerProbe();
  const auto again = Open("tools/call");
  EXPECT_NE(again, first);
  EXPECT_EQ(again->key, key);
  EXPECT_EQ(again->text, first->text);
  again->Reply(core::MakeResult("1", "{}"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("1", "{}")));
}

TEST_F(StdioFaceLosses, SendsLaterWhatComesMeanwhile) {
  Connect();
  KillServer();
  Say(Call("1"));
  Say(R"({"jsonrpc":"2.0","method":"notifications/roots/list_changed"})");
  EXPECT_EQ(Count("tools/call") + Count("roots"), 0u);
  Run(absl::Milliseconds(500));
  AnswerProbe();
  EXPECT_EQ(Count("tools/call"), 1u);
  EXPECT_EQ(Count("roots"), 1u);
}

TEST_F(StdioFaceLosses, NeverSendsWhatWasCancelledMeanwhile) {
  Connect();
  auto running = StartCall("1");
  KillServer();
  Say(Call("2"));
  for (const char* id : {"1", "2"}) {
    Say(core::MakeNotification("notifications/cancelled",
                               core::JsonObject().Raw("requestId", id).Take()));
  }
  Run(absl::Milliseconds(500));
  AnswerProbe();
  EXPECT_EQ(Count("tools/call"), 1u) << "the first one, before";
  EXPECT_EQ(Open("cancelled")->text,
            R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}})");
  Open("cancelled")->Take();
  EXPECT_THAT(Heard(), IsEmpty());
}

TEST_F(StdioFaceLosses, ASuccessWithoutAKnownSessionIsNone) {
  Connect();
  KillServer();
  Run(absl::Milliseconds(500));
  // Somebody answers there, but not under this session.
  Open("ping")->Refuse(404);
  EXPECT_EQ(face->state(), LinkState::kReRegistering);
  EXPECT_EQ(Open("ping")->session.session, "s1") << "the old id once more";
}

TEST_F(StdioFaceLosses, ReInitializesBehindTheClientsBackOn404) {
  Connect(R"({"tools":{"listChanged":true},"resources":{}})");
  Say(Request("1", "logging/setLevel", R"({"level":"debug"})"));
  Open("setLevel")->Reply(core::MakeResult("1", "{}"));
  Say(Request("2", "resources/subscribe", R"({"uri":"scene://a"})"));
  Open("subscribe")->Reply(core::MakeResult("2", "{}"));
  Say(Request("3", "tools/list"));
  Open("tools/list")
      ->Reply(core::MakeResult(
          "3",
          R"({"tools":[{"name":"look","annotations":{"readOnlyHint":true}},{"name":"bake"}]})"));
  Open("", "GET")->Event("0.1.1", Request(R"("ask-1")", "roots/list"));
  StartCall("10", "bake");
  StartCall("11", "look");
  Heard();
  Say(Call("12", "bake"));
  Open("\"id\":12")->Refuse(404);
  loop.RunReady();
  transport.requests.erase(
      std::remove_if(transport.requests.begin(), transport.requests.end(),
                     [](const auto& request) { return request->sink == nullptr; }),
      transport.requests.end());
  OpenAnotherSession();

  EXPECT_EQ(face->state(), LinkState::kConnected);
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 3u);
  EXPECT_THAT(heard[0], AllOf(HasSubstr("notifications/cancelled"), HasSubstr("ask-1")));
  EXPECT_THAT(heard[1], AllOf(HasSubstr("\"id\":10"), HasSubstr("tool_call_failed")));
  EXPECT_EQ(Reason(heard[1]), "session_lost");
  EXPECT_EQ(Certainty(heard[1]), "unknown");
  EXPECT_EQ(heard[2], R"({"jsonrpc":"2.0","method":"notifications/tools/list_changed"})");
  // What may run twice, what has never run, and what the session is to be told again.
  for (const char* part : {"\"id\":11", "\"id\":12", "setLevel", "scene://a"}) {
    EXPECT_EQ(Open(part)->session.session, "s2") << part;
  }
  EXPECT_EQ(Open("", "GET")->session.session, "s2");
  Open("setLevel")->Reply(core::MakeResult(*core::FindMember(Open("setLevel")->text, "id"), "{}"));
  Open("\"id\":12")->Reply(core::MakeResult("12", "{}"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("12", "{}")));
  Say(core::MakeResult(R"("ask-1")", "{}"));
  EXPECT_EQ(Count("ask-1"), 0u) << "an answer for the former session";
}

TEST_F(StdioFaceLosses, DeclareTheClientsCapabilitiesAgain) {
  Connect();
  KillServer();
  Run(absl::Milliseconds(500));
  Open("ping")->Refuse(404);
  Open("ping")->Refuse(404);
  const auto again = Open("\"initialize\"");
  EXPECT_EQ(again->session.session, "");
  EXPECT_EQ(core::FindMember(again->text, "params"), core::FindMember(kInitialize, "params"));
}

TEST_F(StdioFaceLosses, FailWithAReasonAndAreIdleAgain) {
  Connect();
  StartCall("1");
  KillServer();
  Say(Call("2"));
  RunWithoutServer(absl::Seconds(121));
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 2u);
  for (const std::string& answer : heard) {
    EXPECT_THAT(answer, AllOf(HasSubstr(R"("code":-32000,"message":"tool_call_failed: )"),
                              HasSubstr("http://127.0.0.1:9765/mcp"), HasSubstr("call_age_ms"),
                              HasSubstr("reconnect_results")));
    EXPECT_EQ(Reason(answer), "reconnect_budget_spent");
  }
  EXPECT_EQ(Certainty(heard[0]), "unknown");
  EXPECT_EQ(Certainty(heard[1]), "not_started");
  EXPECT_EQ(face->state(), LinkState::kIdle);
  EXPECT_EQ(face->open_requests(), 0u);
  // Nothing is tried until somebody wants something.
  transport.requests.clear();
  Run(absl::Minutes(10));
  EXPECT_TRUE(transport.requests.empty());

  Say(Call("3"));
  Open("\"initialize\"")->Reply(Initialized(R"("callboard-initialize")"), "s2");
  Open("notifications/initialized")->Take();
  loop.RunReady();
  EXPECT_EQ(Open("tools/call")->session.session, "s2");
  Open("tools/call")->Reply(core::MakeResult("3", "{}"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("3", "{}")));
}

TEST_F(StdioFaceLosses, StopOn401And403) {
  for (const auto& [status, reason] : {std::pair{401, "unauthenticated"}, {403, "forbidden"}}) {
    transport.requests.clear();
    face = Make();
    Connect();
    StartCall("1");
    Say(Call("2"));
    Open("\"id\":2")->Refuse(status, R"({"error":{"message":"not you"}})");
    loop.RunReady();
    const auto heard = Heard();
    ASSERT_EQ(heard.size(), 2u);
    EXPECT_EQ(Reason(heard[0]), reason);
    EXPECT_EQ(Certainty(heard[0]), "unknown");
    EXPECT_EQ(Certainty(heard[1]), "not_started");
    EXPECT_THAT(heard[1], HasSubstr("not you"));
    EXPECT_EQ(face->state(), LinkState::kIdle);
    const size_t before = transport.requests.size();
    Run(absl::Minutes(5));
    EXPECT_EQ(transport.requests.size(), before) << "no attempt follows";
    // The client's next request is one attempt, and one answer.
    Say(Call("3"));
    Open("\"initialize\"")->Refuse(status);
    loop.RunReady();
    EXPECT_EQ(Reason(Heard().at(0)), reason);
  }
}

TEST_F(StdioFaceLosses, EndACallWhoseOwnTimeIsOver) {
  Connect();
  Say(Request("1", "tools/call", R"({"name":"bake","_meta":{"dcc":{"timeout_ms":5000}}})"));
  StartCall("2");
  KillServer();
  RunWithoutServer(absl::Seconds(6));
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(Reason(heard[0]), "timed_out");
  EXPECT_EQ(face->open_requests(), 1u);
}

TEST_F(StdioFaceLosses, LookForTheServerAsLongAsACallMayTake) {
  Connect();
  Say(Request("1", "tools/call", R"({"name":"bake","_meta":{"dcc":{"timeout_ms":600000}}})"));
  KillServer();
  RunWithoutServer(absl::Seconds(500));
  EXPECT_EQ(face->open_requests(), 1u);
  RunWithoutServer(absl::Seconds(101));
  EXPECT_EQ(face->open_requests(), 0u);
  EXPECT_EQ(face->state(), LinkState::kIdle);
}

TEST_F(StdioFaceLosses, AskAgainWhatAServerThatEndsCouldNotAnswer) {
  Connect();
  Say(Call("1"));
  const std::string key = Open("tools/call")->key;
  Open("tools/call")
      ->Reply(
          R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"shutting down","data":{"reason":"draining","certainty":"unknown"}}})");
  EXPECT_THAT(Heard(), IsEmpty());
  Run(absl::Milliseconds(500));
  EXPECT_EQ(Open("tools/call")->key, key);
  Open("tools/call")->Reply(core::MakeResult("1", "{}"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("1", "{}")));
}

TEST_F(StdioFaceLosses, TellAnOutcomeThatStaysUnknown) {
  Connect();
  Say(Call("1"));
  const std::string unknown =
      R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"?","data":{"reason":"outcome_unknown","certainty":"unknown"}}})";
  for (int i = 0; i < 6; ++i) {
    Open("tools/call")->Reply(unknown);
    EXPECT_THAT(Heard(), IsEmpty());
    Run(absl::Seconds(20));
  }
  Open("tools/call")->Reply(unknown);
  EXPECT_THAT(Heard(), ElementsAre(unknown));
}

TEST_F(StdioFaceLosses, GoOnWithoutAKeyWhereTheStoreFails) {
  Connect();
  Say(Call("1"));
  Open("tools/call")
      ->Reply(
          R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"disk full","data":{"reason":"store_unavailable","certainty":"not_started"}}})");
  Run(absl::Milliseconds(500));
  EXPECT_EQ(Open("tools/call")->key, "");
  // Lost without a key, it may have run, and is not sent again.
  KillServer();
  Run(absl::Milliseconds(500));
  AnswerProbe();
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(Reason(heard[0]), "outcome_unknown");
  EXPECT_EQ(Certainty(heard[0]), "unknown");
  EXPECT_EQ(Count("tools/call"), 2u);
}

TEST_F(StdioFaceLosses, PassAnErrorOfTheServerOn) {
  Connect();
  Say(Call("1"));
  Open("tools/call")->Refuse(413);
  EXPECT_THAT(Heard(), ElementsAre(AllOf(HasSubstr("\"id\":1"), HasSubstr("HTTP 413"))));
  Say(Call("2"));
  Open("tools/call")
      ->Refuse(400, R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}})");
  EXPECT_THAT(Heard(),
              ElementsAre(R"({"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"no"}})"));
  EXPECT_EQ(face->state(), LinkState::kConnected);
}

TEST_F(StdioFaceLosses, HoldWhatABusyServerRefuses) {
  Connect();
  Say(Call("1"));
  Open("tools/call")->Refuse(503);
  loop.RunReady();
  EXPECT_EQ(face->state(), LinkState::kResuming);
  Run(absl::Milliseconds(500));
  AnswerProbe();
  Open("tools/call")->Reply(core::MakeResult("1", "{}"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("1", "{}")));
}

TEST_F(StdioFaceLosses, FollowAStreamThatEndsInOrder) {
  Connect();
  auto call = StartCall("1");
  call->sink->OnEvent({"7.1.4", "", absl::Seconds(3)});
  call->End(200);
  loop.RunReady();
  EXPECT_EQ(face->state(), LinkState::kConnected) << "that is no loss";
  Run(absl::Milliseconds(2900));
  EXPECT_EQ(Count("7.1.4", "GET"), 0u);
  Run(absl::Milliseconds(200));
  Open("7.1.4", "GET")->Head(204);
  Open("7.1.4", "GET")->End(204);
  // There is nothing left to tell: the call itself is asked for.
  Run(absl::Seconds(2));
  Open("tools/call")->Reply(core::MakeResult("1", "{}"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("1", "{}")));
}

TEST_F(StdioFaceLosses, ComeBackToTheSessionsOwnStream) {
  Connect();
  Open("", "GET")->Event("0.1.9", "");
  Open("", "GET")->End(200);
  Run(absl::Seconds(1));
  EXPECT_EQ(Open("0.1.9", "GET")->session.session, "s1");
  Open("0.1.9", "GET")->Refuse(503);
  EXPECT_EQ(face->state(), LinkState::kConnected);
  Run(absl::Seconds(3));
  Open("0.1.9", "GET")->Refuse(405);
  const size_t before = transport.requests.size();
  Run(absl::Hours(1));
  EXPECT_EQ(transport.requests.size(), before) << "there is none";
}

TEST_F(StdioFaceLosses, EndARequestOfWhichNothingIsHeard) {
  Connect();
  Say(Call("1"));
  StartCall("2");
  Run(absl::Minutes(14) + absl::Seconds(1));
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(Reason(heard[0]), "hard_timer");
  EXPECT_THAT(heard[0], HasSubstr("\"id\":1"));
  EXPECT_EQ(face->open_requests(), 1u) << "the stream of the other lives";
  Run(absl::Hours(25));
  EXPECT_EQ(face->open_requests(), 0u);
}

TEST_F(StdioFaceLosses, AskAgainForWhatMayHaveDiedWithoutAWord) {
  Connect();
  Say(Call("1"));
  const auto silent = Open("tools/call");
  Open("", "GET")->Break(true, 200);
  loop.RunReady();
  Run(absl::Milliseconds(500));
  AnswerProbe();
  EXPECT_EQ(silent->sink, nullptr);
  EXPECT_EQ(Open("tools/call")->key, silent->key);
}

TEST_F(StdioFaceLosses, WaitForAServerThatIsStartedLater) {
  Say(std::string(kInitialize));
  RunWithoutServer(absl::Seconds(9));
  EXPECT_THAT(Heard(), IsEmpty());
  Run(absl::Seconds(5));
  Open("initialize")->Reply(Initialized("0"), "s1");
  EXPECT_THAT(Heard(), ElementsAre(Initialized("0")));
}

TEST_F(StdioFaceLosses, TellAClientThatNobodyIsThere) {
  Say(std::string(kInitialize));
  Say(Call("1"));
  RunWithoutServer(absl::Seconds(31));
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_THAT(heard[0], HasSubstr("\"id\":1"));
  EXPECT_THAT(heard[1], AllOf(HasSubstr("\"id\":0"),
                              HasSubstr("nobody answers at http://127.0.0.1:9765/mcp")));
  EXPECT_EQ(face->state(), LinkState::kIdle);
  Say(std::string(kInitialize));
  Open("initialize")->Reply(Initialized("0"), "s1");
  EXPECT_THAT(Heard(), ElementsAre(Initialized("0")));
}

TEST_F(StdioFaceLosses, PassOnWhyInitializeWasRefused) {
  Say(std::string(kInitialize));
  Say(Call("1"));
  const std::string error =
      R"({"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"instance 'x' is not connected"}})";
  Open("initialize")->Refuse(404, error);
  EXPECT_THAT(Heard(), ElementsAre(error, HasSubstr("\"id\":1")));
  EXPECT_EQ(face->state(), LinkState::kIdle);
  EXPECT_EQ(face->open_requests(), 0u);
}

TEST_F(StdioFaceLosses, WaitForASeatThatIsNotBackYet) {
  Connect();
  KillServer();
  Run(absl::Milliseconds(500));
  Open("ping")->Refuse(404);
  Open("ping")->Refuse(404);
  Open("\"initialize\"")
      ->Refuse(404,
               R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"not connected"}})");
  EXPECT_EQ(face->state(), LinkState::kResuming);
  EXPECT_THAT(Heard(), IsEmpty());
}

}  // namespace
}  // namespace callboard::apps
