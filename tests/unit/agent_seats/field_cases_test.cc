// Field cases that belong to the agent's seats: what people reported of gateways beside an
// application.
#include <vector>

#include "backend_agent/backends/sse_message_reader.h"
#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {
namespace {

using FieldCaseSeat = SeatFixture;

TEST_F(FieldCaseSeat, FC06_AReplyThatEndsWithoutAnAnswerIsAnErrorAtOnceAndNotSentAgain) {
  BringUp();
  Submit(Tool("A"));
  backend->End(LastCall(), absl::OkStatus(), true);
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end LOST BACKEND_PROTOCOL_ERROR UNKNOWN");
  EXPECT_EQ(backend->Count("tools/call"), 1u);
}

TEST_F(FieldCaseSeat, FC09_ABackendThatNeedsTwentySecondsToInitializeIsWaitedFor) {
  backend->answers_initialize = false;
  backend->Up();
  Submit(Tool("A"));
  loop.RunFor(absl::Seconds(20));
  EXPECT_EQ(backend->Count("initialize"), 1u);
  EXPECT_EQ(backend->Count("tools/call"), 0u);
  backend->Answer(backend->Last("initialize").exchange, backend->initialize_result);
  loop.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(told.back(), "A starting 1");
}

TEST_F(FieldCaseSeat, FC09_ABackendThatHasNotInitializedYetIsNotSaidToBeWell) {
  backend->answers_initialize = false;
  backend->Up();
  loop.RunFor(absl::Seconds(5));
  EXPECT_EQ(seat->State().health().main_thread(), v1::NOT_KNOWN);
  backend->Answer(backend->Last("initialize").exchange, backend->initialize_result);
  loop.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(seat->State().health().main_thread(), v1::HEALTHY);
}

TEST_F(FieldCaseSeat, FC09_ABackendThatNeverInitializesIsAskedAgainAndItsCallExpires) {
  backend->answers_initialize = false;
  backend->Up();
  CallSpec spec = Tool("A");
  spec.queue_deadline = loop.Now() + absl::Seconds(10);
  Submit(std::move(spec));
  loop.RunFor(absl::Seconds(10));
  EXPECT_EQ(told.back(), "A end EXPIRED QUEUE_BUDGET_SPENT NOT_STARTED");
  loop.RunFor(absl::Minutes(2));
  EXPECT_GE(backend->Count("initialize"), 3u);
  EXPECT_LE(backend->Count("initialize"), 6u);
}

TEST_F(FieldCaseSeat, FC12_ASilentCallOfSixMinutesIsWaitedForAndProgressIsPassedOnAtOnce) {
  BringUp();
  CallSpec spec = Tool("A");
  spec.wants_progress = true;
  Submit(std::move(spec));
  loop.RunFor(absl::Minutes(6));
  backend->Say(fmt::format(
      R"({{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":1}}}})",
      LastCall()));
  loop.RunReady();
  EXPECT_EQ(told.back(), R"(A progress {"progress":1})");
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  EXPECT_EQ(told.back(), "A end RESULT REASON_UNSPECIFIED FINISHED");
}

TEST_F(FieldCaseSeat, FC23_AllPagesAreReadAndAnEndlessListEndsAtTheRepeatedCursor) {
  std::string first;
  std::string second;
  for (int i = 0; i < 14; ++i) {
    std::string& page = i < 8 ? first : second;
    page += fmt::format(R"({}{{"name":"t{}"}})", page.empty() ? "" : ",", i);
  }
  backend->pages = {{"", R"({"tools":[)" + first + R"(],"nextCursor":"8"})"},
                    {"8", R"({"tools":[)" + second + "]}"}};
  BringUp();
  EXPECT_EQ(seat->Catalogue().view(), R"({"tools":[)" + first + "," + second + "]}");
  EXPECT_EQ(backend->Count("tools/list"), 2u);
  EXPECT_EQ(seat->State().health().reason(), "");

  MakeSeat({});
  backend->pages = {{"", R"({"tools":[)" + first + R"(],"nextCursor":"8"})"},
                    {"8", R"({"tools":[)" + second + R"(],"nextCursor":"8"})"}};
  BringUp();
  EXPECT_EQ(seat->Catalogue().view(), R"({"tools":[)" + first + "," + second + "]}");
  EXPECT_EQ(backend->Count("tools/list"), 2u);
  EXPECT_EQ(seat->State().health().reason(),
            "of its list of tools only the first 14 are taken: the next page is the one just read");
}

TEST_F(FieldCaseSeat, FC29_ACancelIsOneOutcomeAndReachesTheBackendUnderItsOwnId) {
  BringUp();
  Submit(Tool("A"));
  const uint64_t id = LastCall();
  seat->Cancel("A", v1::Cancel::CLIENT);
  loop.RunReady();
  EXPECT_NE(
      backend->Last("notifications/cancelled").text.find(fmt::format(R"("requestId":{})", id)),
      std::string::npos);
  // One backend answers with an error, and then once more.
  backend->Say(fmt::format(
      R"({{"jsonrpc":"2.0","id":{},"error":{{"code":0,"message":"Request cancelled"}}}})", id));
  backend->Answer(id, "{}");
  loop.RunReady();
  size_t outcomes = 0;
  for (const std::string& line : told) outcomes += line.starts_with("A end") ? 1 : 0;
  EXPECT_EQ(outcomes, 1u);
  Submit(Tool("B"));
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  EXPECT_EQ(told.back(), "B end RESULT REASON_UNSPECIFIED FINISHED");
}

TEST_F(FieldCaseSeat, FC34_ABusyMainThreadKeepsTheSeatAndOtherLanesOpen) {
  BringUp();
  Submit(Tool("A", "blocks"));
  loop.RunFor(absl::Seconds(60));
  Submit(Tool("B"));
  CallSpec list;
  list.call_id = "C";
  list.method = "resources/list";
  list.lane = v1::FREE;
  Submit(std::move(list));
  EXPECT_EQ(backend->Count("tools/call"), 1u);
  EXPECT_EQ(backend->Count("resources/list"), 1u);
  const v1::SeatState state = seat->State();
  EXPECT_EQ(state.health().process(), v1::HEALTHY);
  EXPECT_EQ(state.health().endpoint(), v1::HEALTHY);
  EXPECT_EQ(state.health().main_thread(), v1::BUSY);
  EXPECT_EQ(state.queue_depth(), 1u);
}

TEST_F(FieldCaseSeat, FC37_CallsForTheFormerProcessNeverReachTheOneThatTookItsPort) {
  BringUp();
  Submit(Tool("A"));
  CallSpec pinned = Tool("B");
  pinned.expect_incarnation = 1;
  Submit(std::move(pinned));
  auto next = std::make_unique<PlayedBackend>(loop);
  PlayedBackend* other = next.get();
  other->process = 5000;
  seat->ReplaceBackend(std::move(next), {.seat_id = "5ea7", .name = "blender", .app = "blender"});
  other->Up();
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(End("A").outcome_class, v1::LOST);
  EXPECT_EQ(End("B").reason, v1::WRONG_INCARNATION);
  pinned = Tool("C");
  pinned.expect_incarnation = 1;
  Submit(std::move(pinned));
  EXPECT_EQ(End("C").reason, v1::WRONG_INCARNATION);
  EXPECT_EQ(other->Count("tools/call"), 0u);
}

// ---- FC-20 ------------------------------------------------------------------------------------

struct SseCase {
  const char* name;
  std::vector<std::string> chunks;
  std::vector<std::string> messages;
  std::string last_id = "";
  std::optional<absl::Duration> retry = std::nullopt;
};

TEST(FieldCaseSse, FC20_LineRulesHold) {
  const std::vector<SseCase> cases = {
      {"no blank after the colon", {"data:{\"a\":1}\n\n"}, {"{\"a\":1}"}},
      {"CR LF split between chunks",
       {"data: {\"a\":1}\r", "\n\r", "\ndata: {\"b\":2}\r\n\r\n"},
       {"{\"a\":1}", "{\"b\":2}"}},
      {"lone CR", {"data: 1\r\rdata: 2\r\r"}, {"1", "2"}},
      // A JSON text is kept on one line, whatever blanks are between its parts.
      {"several data lines", {"data: {\"a\":\ndata: 1}\n\n"}, {"{\"a\": 1}"}},
      {"comment and unknown field", {": hb\nfoo: x\ndata: 1\n\n"}, {"1"}},
      {"id without data sets the cursor", {"id: 7\n\ndata: 1\n\n"}, {"1"}, "7"},
      {"empty data line", {"data\n\n"}, {}},
      {"retry", {"retry: 2500\n\n"}, {}, "", absl::Milliseconds(2500)},
      {"unfinished event is dropped", {"data: 1\n\nid: 9\ndata: 2\n"}, {"1"}},
      {"character split over three chunks",
       {"data: \xe2", "\x80", "\xa8x\xe2\x80\xa9\n\n"},
       {"\xe2\x80\xa8x\xe2\x80\xa9"}},
      {"line separators are no line ends",
       {"data: a\xe2\x80\xa8"
        "b\xc2\x85"
        "c\n\n"},
       {"a\xe2\x80\xa8"
        "b\xc2\x85"
        "c"}},
      {"byte order mark at the start",
       {"\xef\xbb\xbf"
        "data: 1\n\n"},
       {"1"}},
  };
  for (const SseCase& sse : cases) {
    tests::MemorySpool spool;
    SseMessageReader reader(spool, 1000);
    std::vector<std::string> messages;
    for (const std::string& chunk : sse.chunks) {
      EXPECT_TRUE(
          reader.Feed(chunk, [&](Payload message) { messages.emplace_back(message.view()); }).ok());
    }
    EXPECT_EQ(messages, sse.messages) << sse.name;
    EXPECT_EQ(reader.last_id(), sse.last_id) << sse.name;
    EXPECT_EQ(reader.retry(), sse.retry) << sse.name;
  }
}

}  // namespace
}  // namespace callboard::agent
