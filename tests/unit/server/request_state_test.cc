// Tests of the requestState of parked calls.
#include "server/flows/request_state.h"

#include <gtest/gtest.h>

#include <string>

#include "core/runtime/random.h"

namespace callboard::server {
namespace {

class RequestStates : public testing::Test {
 protected:
  absl::StatusCode Code(std::string_view state, std::string_view binding = "seat\ntools/call",
                        int64_t now = 999) {
    return states.Open(state, binding, now).status().code();
  }

  core::SeededRandom random{1};
  RequestState states{"key", random};
  const CallId call = CallId::New(random, 1);
  const std::string text = states.Seal({call, 1000}, "seat\ntools/call");
};

TEST_F(RequestStates, AreOpenedByTheirOwnRequest) {
  EXPECT_EQ(states.MakerOf(text), RequestState::Maker::kUs);
  EXPECT_EQ(text.find("callboard1."), 0u);
  EXPECT_EQ(text.find("." + call.hex() + ".1000."), 19u);
  const auto parked = states.Open(text, "seat\ntools/call", 999);
  ASSERT_TRUE(parked.ok());
  EXPECT_EQ(parked->call, call);
  EXPECT_EQ(parked->expires_unix_ms, 1000);
}

TEST_F(RequestStates, SurviveTheProcessWithTheirKey) {
  RequestState again("key", random);
  EXPECT_TRUE(again.Open(text, "seat\ntools/call", 999).ok());
  RequestState other("other", random);
  EXPECT_FALSE(other.Open(text, "seat\ntools/call", 999).ok());
  RequestState first("", random);
  RequestState second("", random);
  const std::string sealed = first.Seal({call, 1000}, "x");
  EXPECT_TRUE(first.Open(sealed, "x", 0).ok());
  EXPECT_FALSE(second.Open(sealed, "x", 0).ok());
}

TEST_F(RequestStates, AreRefusedWhereAnythingDiffers) {
  EXPECT_EQ(Code(text, "seat\nprompts/get"), absl::StatusCode::kInvalidArgument);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_EQ(Code(changed), absl::StatusCode::kInvalidArgument) << changed;
  }
  for (const std::string& broken :
       {std::string(), std::string("callboard1."), text + "0", text + ".", text.substr(1),
        text.substr(0, text.size() - 1), std::string("callboard1.zz.1000.00"),
        std::string(10'000, '.'), "callboard1." + call.hex() + ".1000." + text.substr(58),
        text.substr(0, 20) + call.hex() + ".+1000." + text.substr(58)}) {
    EXPECT_EQ(Code(broken), absl::StatusCode::kInvalidArgument) << broken;
  }
}

TEST_F(RequestStates, SayWhoseTheyAre) {
  using Maker = RequestState::Maker;
  RequestState other("other", random);
  EXPECT_EQ(other.MakerOf(text), Maker::kAnotherCallboard);
  EXPECT_EQ(RequestState("key", random).MakerOf(text), Maker::kUs);
  EXPECT_EQ(states.MakerOf(text + "0"), Maker::kUs) << "changed, and still to be refused here";
  EXPECT_EQ(states.MakerOf("callboard1."), Maker::kAnotherCallboard);
  EXPECT_EQ(states.MakerOf("opaque"), Maker::kSomebodyElse);
  EXPECT_EQ(states.MakerOf(""), Maker::kSomebodyElse);
  // It gives nothing of the key away, and differs from key to key.
  EXPECT_EQ(text.find("key"), std::string::npos);
  EXPECT_NE(other.Seal({call, 1000}, "x").substr(0, 20), text.substr(0, 20));
}

TEST_F(RequestStates, ExpireWithTheirCall) {
  EXPECT_EQ(Code(text, "seat\ntools/call", 1000), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace callboard::server
