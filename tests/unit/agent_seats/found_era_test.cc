// Tests of what is believed of a backend's era, for how long, and what ends that.
#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {
namespace {

constexpr char kBoth[] =
    R"({"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"extensions":{"x":{}}}})";
constexpr char kModernCapabilities[] = R"({"extensions":{"x":{}}})";
constexpr char kEarlier[] = R"({"supportedVersions":["2025-11-25"],"capabilities":{}})";

class FoundEra : public SeatFixture {
 protected:
  void Begin(bool is_http = true) {
    backend->is_http = is_http;
    backend->asked_for_its_era = true;
    backend->initialize_result =
        R"({"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x"}})";
    BringUp();
  }
  void Tell(const char* discover_result) {
    backend->Answer(backend->Last("server/discover").exchange, discover_result);
    loop.RunFor(absl::Milliseconds(1));
  }
  void Again() {
    backend->ForgetSession();
    loop.RunFor(absl::Milliseconds(1));
  }
  std::string Capabilities() const { return seat->State().modern_capabilities(); }
  size_t Asked() const { return backend->Count("server/discover"); }
  size_t Opened() const { return backend->Count("initialize"); }
};

TEST_F(FoundEra, IsBelievedForADay) {
  Begin();
  EXPECT_EQ(Opened(), 0u) << "asked before initialize";
  Tell(kBoth);
  EXPECT_EQ(Opened(), 1u);
  loop.RunFor(absl::Hours(23));
  Again();
  EXPECT_EQ(Opened(), 2u);
  EXPECT_EQ(Asked(), 1u);
  EXPECT_EQ(Capabilities(), kModernCapabilities);
  loop.RunFor(absl::Hours(1));
  Again();
  EXPECT_EQ(Asked(), 2u);
  Tell(kEarlier);
  EXPECT_EQ(Opened(), 3u);
  EXPECT_EQ(Capabilities(), "");
  Again();
  EXPECT_EQ(Asked(), 2u);
  EXPECT_EQ(Opened(), 4u);
}

TEST_F(FoundEra, OfASilentBackendIsWaitedForOnce) {
  Begin();
  loop.RunFor(absl::Seconds(4));
  EXPECT_EQ(Opened(), 1u);
  EXPECT_EQ(Asked(), 2u) << "and once more, for which nobody waits";
  loop.RunFor(absl::Seconds(10));
  Again();
  EXPECT_EQ(Opened(), 2u) << "at once";
  EXPECT_EQ(Asked(), 2u);
}

TEST_F(FoundEra, IsAskedAnewOfAnotherServer) {
  Begin();
  Tell(kBoth);
  backend->initialize_result =
      R"({"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"2"}})";
  Again();
  EXPECT_EQ(Opened(), 2u);
  EXPECT_EQ(Asked(), 2u) << "after initialize, which told that it is another";
  Tell(kEarlier);
  EXPECT_EQ(Capabilities(), "");
}

TEST_F(FoundEra, EndsWithTheProcessAndNotWithAnAbsence) {
  Begin();
  Tell(kBoth);
  backend->Refuse("connection refused");
  backend->Up();
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(Asked(), 1u);
  EXPECT_EQ(Capabilities(), kModernCapabilities);
  backend->Refuse("connection refused");
  backend->process = 4712;
  backend->Up();
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(Asked(), 2u) << "another process";
  Tell(kEarlier);
  backend->Die(9);
  backend->Up();
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(Asked(), 3u);
}

TEST_F(FoundEra, BehindAPipeIsThatOfTheProcess) {
  Begin(/*is_http=*/false);
  EXPECT_EQ(Opened(), 1u);
  Tell(kBoth);
  Again();
  EXPECT_EQ(Asked(), 1u);
  backend->Refuse("the pipe is closed");
  backend->Up();
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(Asked(), 2u);
}

TEST_F(FoundEra, IsAskedAnewWhenTheBackendAnswersAsTheOther) {
  const auto modern = [&](const std::string& id) {
    CallSpec spec = Tool(id);
    spec.modern = true;
    Submit(std::move(spec));
  };
  Begin();
  Tell(kBoth);
  modern("A");
  backend->Say(core::MakeErrorResponse(fmt::format("{}", LastCall()), core::kUnsupportedVersion,
                                       "unsupported", R"({"supported":["2025-11-25"]})"));
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(End("A").outcome_class, v1::RPC_ERROR);
  EXPECT_EQ(Asked(), 2u);
  Tell(kEarlier);
  EXPECT_EQ(Capabilities(), "");
  modern("B");
  EXPECT_EQ(backend->Last("tools/call").text.find("protocolVersion"), std::string::npos);
  backend->Answer(LastCall(), "{}");
  loop.RunReady();
  Again();
  EXPECT_EQ(Asked(), 2u);
}

TEST_F(FoundEra, OfARefusedInitializeIsFoundOut) {
  Begin();
  Tell(kEarlier);
  backend->answers_initialize = false;
  Again();
  backend->Say(core::MakeErrorResponse(fmt::format("{}", backend->Last("initialize").exchange),
                                       -32601, "Method not found"));
  loop.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(Asked(), 2u);
  Tell(R"({"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}})");
  EXPECT_EQ(Capabilities(), R"({"tools":{}})");
}

}  // namespace
}  // namespace callboard::agent
