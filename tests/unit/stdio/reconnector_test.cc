// Tests of the levels: when a lost session is tried, how, and what ends the trying.
#include "apps/stdio/reconnector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/virtual_loop.h"

namespace callboard::apps {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

// Records what is asked of it with its time, and answers attempts as the test says.
class Levels : public testing::Test, public Reconnector::Host {
 protected:
  void Probe() override { Attempted("probe"); }
  void Initialize() override { Attempted("initialize"); }
  void Abandon() override { told.push_back("abandon"); }
  void OnConnected(Reconnector::Success success) override {
    told.push_back(success == Reconnector::Success::kOpened    ? "opened"
                   : success == Reconnector::Success::kResumed ? "resumed"
                                                               : "re-registered");
  }
  void OnFailed(const Reconnector::Failure& failure) override {
    EXPECT_EQ(machine.state(), LinkState::kFailed);
    told.push_back(fmt::format("failed {} at {}", failure.reason, Seconds()));
  }

  void Attempted(const std::string& what) {
    told.push_back(fmt::format("{} at {} {}", what, Seconds(), StateName(machine.state())));
    if (!answer) return;
    loop.Post([this, given = *answer] { machine.Tried(given, "said so"); });
  }
  double Seconds() const { return absl::ToDoubleSeconds(loop.Now() - begin); }

  void Connect() {
    answer = Attempt::kValid;
    machine.Open();
    loop.RunReady();
    ASSERT_EQ(machine.state(), LinkState::kConnected);
    told.clear();
    begin = loop.Now();
  }
  std::vector<std::string> Attempts() const {
    std::vector<std::string> attempts;
    for (const std::string& entry : told) {
      if (entry.starts_with("probe") || entry.starts_with("initialize")) attempts.push_back(entry);
    }
    return attempts;
  }

  tests::VirtualLoop loop;
  absl::Time begin = loop.Now();
  std::optional<Attempt> answer;  // to every attempt
  std::vector<std::string> told;
  Reconnector machine{loop, ReconnectConfig{}, *this};
};

TEST_F(Levels, BeginIdleAndOpenOnDemand) {
  EXPECT_EQ(machine.state(), LinkState::kIdle);
  answer = Attempt::kValid;
  machine.Open();
  EXPECT_EQ(machine.state(), LinkState::kConnecting);
  loop.RunReady();
  EXPECT_THAT(told, ElementsAre("initialize at 0 connecting", "opened"));
}

TEST_F(Levels, OneAskTheSameSessionAfterHalfASecond) {
  Connect();
  machine.Lost(false, "cut", absl::Seconds(120));
  EXPECT_EQ(machine.state(), LinkState::kResuming);
  loop.RunFor(absl::Seconds(1));
  EXPECT_THAT(told, ElementsAre("probe at 0.5 resuming", "resumed"));
  EXPECT_EQ(machine.counts().resumed, 1u);
  EXPECT_EQ(machine.counts().re_registered, 0u);
}

TEST_F(Levels, AlternateAfterTwoFailuresWithWaitsUpToFourSeconds) {
  Connect();
  answer = Attempt::kFailed;
  machine.Lost(false, "cut", absl::Seconds(120));
  loop.RunFor(absl::Seconds(24));
  EXPECT_THAT(Attempts(), ElementsAre("probe at 0.5 resuming", "probe at 1.5 resuming",
                                      "probe at 3.5 re-registering", "probe at 7.5 resuming",
                                      "probe at 11.5 resuming", "probe at 15.5 re-registering",
                                      "probe at 19.5 resuming", "probe at 23.5 resuming"));
}

TEST_F(Levels, TwoReInitializeOnlyOn404) {
  Connect();
  answer = Attempt::kFailed;
  machine.Lost(false, "cut", absl::Seconds(120));
  loop.RunFor(absl::Seconds(3));
  ASSERT_EQ(machine.state(), LinkState::kReRegistering);
  answer = std::nullopt;
  loop.RunFor(absl::Seconds(1));
  machine.Tried(Attempt::kValid, "");  // the old id is known after all
  EXPECT_EQ(told.back(), "resumed");
  EXPECT_EQ(machine.counts().resumed, 1u);
}

TEST_F(Levels, GoFromA404AtLevelOneOverTheOldIdOnceMoreToANewSession) {
  Connect();
  answer = Attempt::kGone;
  machine.Lost(false, "cut", absl::Seconds(120));
  loop.RunFor(absl::Milliseconds(500));
  EXPECT_THAT(Attempts(), ElementsAre("probe at 0.5 resuming", "probe at 0.5 re-registering",
                                      "initialize at 0.5 re-registering"));
}

TEST_F(Levels, ReRegisterAtOnceWhenARequestWasAnsweredWith404) {
  Connect();
  answer = std::nullopt;
  machine.Lost(true, "404", absl::Seconds(120));
  EXPECT_THAT(told, ElementsAre("probe at 0 re-registering"));
  machine.Tried(Attempt::kGone, "");
  machine.Tried(Attempt::kValid, "");
  EXPECT_THAT(told, ElementsAre("probe at 0 re-registering", "initialize at 0 re-registering",
                                "re-registered"));
  EXPECT_EQ(machine.counts().re_registered, 1u);
  EXPECT_EQ(machine.counts().resumed, 0u);
}

TEST_F(Levels, CountAnAttemptWithoutAnAnswerAsFailed) {
  Connect();
  answer = std::nullopt;
  machine.Lost(false, "cut", absl::Seconds(120));
  loop.RunFor(absl::Seconds(12));
  EXPECT_THAT(told, ElementsAre("probe at 0.5 resuming", "abandon", "probe at 11.5 resuming"));
  machine.Tried(Attempt::kValid, "");
  EXPECT_EQ(machine.state(), LinkState::kConnected);
  machine.Tried(Attempt::kGone, "late");
  EXPECT_EQ(machine.state(), LinkState::kConnected) << "what nobody waits for says nothing";
}

TEST_F(Levels, FailWhenTheBudgetIsSpentAndAreIdleAgain) {
  Connect();
  answer = Attempt::kFailed;
  machine.Lost(false, "cut", absl::Seconds(20));
  loop.RunFor(absl::Seconds(300));
  EXPECT_EQ(told.back(), "failed reconnect_budget_spent at 20");
  EXPECT_EQ(machine.state(), LinkState::kIdle);
  EXPECT_EQ(machine.counts().failed, 1u);
  EXPECT_EQ(machine.attempts(), 7);
  EXPECT_EQ(machine.results().back(), "resuming: said so");
  answer = Attempt::kValid;
  machine.Open();
  loop.RunReady();
  EXPECT_EQ(machine.state(), LinkState::kConnected);
}

TEST_F(Levels, FailInTheMiddleOfAnAttempt) {
  Connect();
  answer = std::nullopt;
  machine.Lost(false, "cut", absl::Seconds(2));
  loop.RunFor(absl::Seconds(30));
  EXPECT_THAT(
      told, ElementsAre("probe at 0.5 resuming", "abandon", "failed reconnect_budget_spent at 2"));
}

TEST_F(Levels, StopOn401And403) {
  for (const auto& [refusal, reason] : {std::pair{Attempt::kUnauthenticated, "unauthenticated"},
                                        {Attempt::kForbidden, "forbidden"}}) {
    Connect();
    answer = refusal;
    machine.Lost(false, "cut", absl::Seconds(120));
    loop.RunFor(absl::Seconds(100));
    EXPECT_THAT(told,
                ElementsAre("probe at 0.5 resuming", StartsWith(std::string("failed ") + reason)));
    EXPECT_EQ(machine.state(), LinkState::kIdle);
  }
  Connect();
  machine.Refused(Attempt::kUnauthenticated, "a call was");
  EXPECT_THAT(told, ElementsAre("failed unauthenticated at 0"));
  machine.Refused(Attempt::kUnauthenticated, "another, too");
  EXPECT_EQ(told.size(), 1u);
}

TEST_F(Levels, BeginTheirWaitsAnewOnlyOnceSomethingWasHeard) {
  Connect();
  machine.Lost(false, "cut", absl::Seconds(120));
  loop.RunFor(absl::Seconds(1));
  machine.Lost(false, "cut again", absl::Seconds(120));
  loop.RunFor(absl::Seconds(1));
  machine.Heard();
  machine.Lost(false, "and again", absl::Seconds(120));
  loop.RunFor(absl::Seconds(1));
  EXPECT_THAT(Attempts(),
              ElementsAre("probe at 0.5 resuming", "probe at 2 resuming", "probe at 2.5 resuming"));
}

TEST_F(Levels, AreQuietAfterStop) {
  Connect();
  machine.Lost(false, "cut", absl::Seconds(120));
  machine.Stop();
  loop.RunFor(absl::Seconds(300));
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(machine.state(), LinkState::kIdle);
}

}  // namespace
}  // namespace callboard::apps
