// Tests of the stdio face while all is well: what passes, what a client may send, and the end.
#include "tests/unit/stdio/stdio_face_fixture.h"

namespace callboard::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST_F(StdioFaceTest, InitializesWithTheClientsOwnBytes) {
  Say(std::string(kInitialize));
  EXPECT_EQ(Open("initialize")->text, kInitialize);
  EXPECT_EQ(Open("initialize")->session.session, "");
  const std::string response = Initialized("0");
  Open("initialize")->Reply(response, "s1");
  EXPECT_THAT(Heard(), ElementsAre(response));
  Say(R"({"jsonrpc":"2.0","method":"notifications/initialized"})");
  const auto note = Open("notifications/initialized");
  EXPECT_EQ(note->session.session, "s1");
  EXPECT_EQ(note->session.revision, "2025-11-25");
  EXPECT_EQ(Count("", "GET"), 0u);
  note->Take();
  EXPECT_EQ(Open("", "GET")->session.session, "s1");
}

TEST_F(StdioFaceTest, ServesClientsOf2024In2025) {
  Say(R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{}}})");
  EXPECT_THAT(Open("initialize")->text, HasSubstr(R"("protocolVersion":"2025-03-26")"));
  Open("initialize")->Reply(Initialized("0", "{}", "2025-03-26"), "s1");
  EXPECT_THAT(Heard(), ElementsAre(Initialized("0", "{}", "2024-11-05")));
  Say(Call("1"));
  EXPECT_EQ(Open("tools/call")->session.revision, "2025-03-26");
}

TEST_F(StdioFaceTest, PassesCallsAndTheirAnswersAsTheyAre) {
  Connect();
  const std::string call =
      R"({"id":"a\"1","jsonrpc":"2.0", "method":"tools/call","params":{"name":"t","arguments":{"n":9007199254740993,"f":1.0}}})";
  Say(call);
  EXPECT_EQ(Open("tools/call")->text, call);
  EXPECT_EQ(Open("tools/call")->key.size(), 32u);
  const std::string answer = R"({"jsonrpc":"2.0","id":"a\"1","result":{"content":[ ],"x":1e0}})";
  Open("tools/call")->Reply(answer);
  EXPECT_THAT(Heard(), ElementsAre(answer));
  EXPECT_EQ(face->open_requests(), 0u);
}

TEST_F(StdioFaceTest, GivesKeysOnlyToWhatMayNotRunTwice) {
  Connect();
  for (const char* method : {"tools/list", "resources/read", "prompts/get", "logging/setLevel"}) {
    Say(Request("1", method));
    EXPECT_EQ(Open(method)->key, "") << method;
    Open(method)->Reply(core::MakeResult("1", "{}"));
  }
  Say(Request("1", "vendor/do"));
  EXPECT_NE(Open("vendor/do")->key, "");
}

TEST_F(StdioFaceTest, PassesWhatTheServerSaysOnBothKindsOfStreams) {
  Connect();
  auto call = StartCall("1");
  const std::string progress =
      R"({"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}})";
  const std::string log = R"({"jsonrpc":"2.0","method":"notifications/message","params":{}})";
  call->Event("7.1.1", progress);
  Open("", "GET")->Event("0.1.1", log);
  call->Event("7.1.2", core::MakeResult("1", "{}"));
  EXPECT_THAT(Heard(), ElementsAre(progress, log, core::MakeResult("1", "{}")));
  EXPECT_EQ(call->sink, nullptr);
}

TEST_F(StdioFaceTest, LetsTheServerAskTheClient) {
  Connect();
  auto call = StartCall("1");
  const std::string ask = Request(R"("ask-9")", "sampling/createMessage");
  call->Event("7.1.1", ask);
  EXPECT_THAT(Heard(), ElementsAre(ask));
  const std::string answer = core::MakeResult(R"("ask-9")", R"({"role":"assistant"})");
  Say(answer);
  Say(answer);
  EXPECT_EQ(Count("ask-9"), 1u) << "an answer to nothing goes nowhere";
  EXPECT_EQ(Open("ask-9")->text, answer);
}

TEST_F(StdioFaceTest, TakesARequestBackWithItsNotification) {
  Connect();
  Open("", "GET")->Event("0.1.1", Request(R"("ask-9")", "roots/list"));
  const std::string cancel =
      R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ask-9"}})";
  Open("", "GET")->Event("0.1.2", cancel);
  Heard();
  Say(core::MakeResult(R"("ask-9")", "{}"));
  EXPECT_EQ(Count("ask-9"), 0u);
}

TEST_F(StdioFaceTest, PostsNotesOneAfterTheOther) {
  Connect();
  Say(R"({"jsonrpc":"2.0","method":"notifications/roots/list_changed"})");
  Say(R"({"jsonrpc":"2.0","method":"notifications/vendor"})");
  EXPECT_EQ(Count("vendor"), 0u);
  Open("roots")->Take();
  EXPECT_EQ(Count("vendor"), 1u);
  Open("vendor")->Refuse(400);
  EXPECT_THAT(Heard(), IsEmpty());
}

TEST_F(StdioFaceTest, CancelsACallAndAnswersItNoMore) {
  Connect();
  auto call = StartCall("1");
  const std::string cancel =
      R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}})";
  Say(cancel);
  EXPECT_EQ(Open("cancelled")->text, cancel);
  EXPECT_EQ(call->sink, nullptr);
  EXPECT_EQ(face->open_requests(), 0u);
  Open("cancelled")->Take();
  Say(R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}})");
  EXPECT_EQ(Count("77"), 0u);
  EXPECT_THAT(Heard(), IsEmpty());
}

TEST_F(StdioFaceTest, AnswersPingItself) {
  Say(Request("1", "ping"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("1", "{}")));
  EXPECT_TRUE(transport.requests.empty());
}

TEST_F(StdioFaceTest, AnswersJunkAndGoesOn) {
  Connect();
  Say("{oops");
  Say("\xff\xfe");
  Say(R"({"jsonrpc":"1.0","id":4,"method":"m"})");
  Say(R"({"jsonrpc":"2.0","id":null,"method":"m"})");
  Say("[]");
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 5u);
  EXPECT_THAT(heard[0], StartsWith(R"({"jsonrpc":"2.0","id":null,"error":{"code":-32700)"));
  EXPECT_THAT(heard[1], HasSubstr("-32700"));
  EXPECT_THAT(heard[2], StartsWith(R"({"jsonrpc":"2.0","id":4,"error":{"code":-32600)"));
  EXPECT_THAT(heard[3], HasSubstr(R"("id":null,"error":{"code":-32600)"));
  EXPECT_THAT(heard[4], HasSubstr("no batches"));
  Say(Call("5"));
  Open("tools/call")->Reply(core::MakeResult("5", "{}"));
  EXPECT_THAT(Heard(), ElementsAre(core::MakeResult("5", "{}")));
}

TEST_F(StdioFaceTest, TellsWhichRequestWasTooLong) {
  Connect();
  face->OnTooLongLine({R"({"jsonrpc":"2.0","id":8,"method":"m","params":")", "xx\"}", 99});
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_THAT(heard[0], StartsWith(R"({"jsonrpc":"2.0","id":8,"error":{"code":-32600)"));
  EXPECT_EQ(Reason(heard[0]), "message_too_large");
}

TEST_F(StdioFaceTest, TakesBatchesOf2025_03_26Apart) {
  Say(std::string(kInitialize));
  Open("initialize")->Reply(Initialized("0", "{}", "2025-03-26"), "s1");
  Heard();
  Say(R"([{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/list"},5])");
  Open("tools/list")->Reply(core::MakeResult("2", "{}"));
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 3u);
  EXPECT_EQ(heard[0], core::MakeResult("1", "{}"));
  EXPECT_THAT(heard[1], HasSubstr("-32600"));
  EXPECT_EQ(heard[2], core::MakeResult("2", "{}"));
}

TEST_F(StdioFaceTest, RequestWithTheIdOfInitializeIsNoAnswerToIt) {
  Say(std::string(kInitialize));
  Open("initialize")->Reply(R"({"jsonrpc":"2.0","id":0,"method":"roots/list"})");
  loop.RunReady();
  EXPECT_TRUE(Heard().empty());
  Run(absl::Seconds(1));
  Open("initialize")->Reply(Initialized("0"), "s1");
  loop.RunReady();
  EXPECT_EQ(Heard(), std::vector<std::string>{Initialized("0")});
}

TEST_F(StdioFaceTest, SendsClientsOfTheNewEraToInitialize) {
  Say(Request("1", "server/discover",
              R"({"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}})"));
  EXPECT_THAT(Heard(), ElementsAre(HasSubstr("-32601")));
  EXPECT_TRUE(transport.requests.empty());
}

TEST_F(StdioFaceTest, RefusesWhatHasNoPlaceInASession) {
  Say(Call("1"));
  EXPECT_THAT(Heard(), ElementsAre(HasSubstr("send initialize first")));
  Connect();
  Say(std::string(kInitialize));
  EXPECT_THAT(Heard(), ElementsAre(HasSubstr("initialized already")));
  Say(Call("1"));
  Say(Call("1"));
  EXPECT_EQ(Reason(Heard().at(0)), "id_in_use");
  EXPECT_EQ(Count("tools/call"), 1u);
}

TEST_F(StdioFaceTest, BoundsWhatIsNotAnswered) {
  config.requests_max = 2;
  face = Make();
  Connect();
  for (const char* id : {"1", "2", "3"}) Say(Call(id));
  const auto heard = Heard();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_THAT(heard[0], HasSubstr(R"("id":3)"));
  EXPECT_EQ(Reason(heard[0]), "too_many");
}

TEST_F(StdioFaceTest, ReadsNoMoreForAClientThatDoesNot) {
  config.output_bytes_max = 1000;
  face = Make();
  Connect();
  output.reads = false;
  auto call = StartCall("1");
  const std::string log = core::MakeNotification("notifications/message",
                                                 R"({"data":")" + std::string(600, 'x') + "\"}");
  call->Event("7.1.1", log);
  EXPECT_FALSE(transport.paused);
  call->Event("7.1.2", log);
  EXPECT_TRUE(transport.paused);
  output.unsent = 700;
  face->OnOutputRead();
  EXPECT_TRUE(transport.paused);
  output.unsent = 400;
  face->OnOutputRead();
  EXPECT_FALSE(transport.paused);
}

TEST_F(StdioFaceTest, EndsTheSessionWhenTheInputEnds) {
  Connect();
  face->OnInputEnd();
  loop.RunReady();
  EXPECT_EQ(done, 0);
  EXPECT_EQ(Open("", "DELETE")->session.session, "s1");
  Open("", "DELETE")->Refuse(200);
  loop.RunReady();
  EXPECT_EQ(done, 1);
}

TEST_F(StdioFaceTest, WaitsAMomentForAnswersWhenTheInputEnds) {
  Connect();
  Say(Call("1"));
  face->OnInputEnd();
  Run(absl::Milliseconds(100));
  EXPECT_EQ(Count("", "DELETE"), 0u);
  Open("tools/call")->Reply(core::MakeResult("1", "{}"));
  loop.RunReady();
  EXPECT_EQ(Heard().size(), 1u);
  EXPECT_EQ(Count("", "DELETE"), 1u);
  Run(absl::Seconds(1));
  EXPECT_EQ(done, 1) << "a server that does not answer is not waited for";
}

TEST_F(StdioFaceTest, StopsAtOnceAndWithoutASessionWithoutAWord) {
  face->Stop();
  loop.RunReady();
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(transport.requests.empty());
}

TEST_F(StdioFaceTest, EndsOnceHoweverOftenItIsTold) {
  face->OnInputEnd();
  face->Stop();
  face->Stop();
  Run(absl::Seconds(2));
  EXPECT_EQ(done, 1);
  face = Make();
  Connect();
  face->Stop();
  face->Stop();
  EXPECT_EQ(Count("", "DELETE"), 1u);
  Run(absl::Seconds(2));
  EXPECT_EQ(Count("", "DELETE"), 1u);
  EXPECT_EQ(done, 2);
}

TEST_F(StdioFaceTest, StopsInTheMiddleOfACall) {
  Connect();
  auto call = StartCall("1");
  face->Stop();
  EXPECT_EQ(call->sink, nullptr);
  EXPECT_EQ(Count("", "DELETE"), 1u);
  Run(absl::Seconds(1));
  EXPECT_EQ(done, 1);
  EXPECT_THAT(Heard(), IsEmpty());
}

}  // namespace
}  // namespace callboard::apps
