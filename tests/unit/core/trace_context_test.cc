// Tests of what counts as a sound trace context.
#include "core/telemetry/trace_context.h"

#include <gtest/gtest.h>

namespace callboard::core {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kParent = "00-" + kTrace + "-00f067aa0ba902b7-01";

TEST(TraceContext, SoundOnesPassUnchanged) {
  const TraceContext checked = CheckedTraceContext(kParent, "a=1,b@c=2", "show=alpha;x");
  EXPECT_EQ(checked.traceparent, kParent);
  EXPECT_EQ(checked.tracestate, "a=1,b@c=2");
  EXPECT_EQ(checked.baggage, "show=alpha;x");
  EXPECT_EQ(TraceIdOf(kParent), kTrace);
}

TEST(TraceContext, LaterVersionsMayBeLonger) {
  EXPECT_TRUE(IsTraceparent("cc" + kParent.substr(2)));
  EXPECT_TRUE(IsTraceparent("cc" + kParent.substr(2) + "-what-will-be"));
  EXPECT_FALSE(IsTraceparent("cc" + kParent.substr(2) + ".what-will-be"));
  EXPECT_FALSE(IsTraceparent("cc" + kParent.substr(2) + "-" + std::string(300, 'x')));
  EXPECT_FALSE(IsTraceparent("cc" + kParent.substr(2) + "-\r\nX-Evil: 1"));
}

TEST(TraceContext, WhatBreaksTheRulesIsDroppedWithItsState) {
  std::string upper = kParent;
  upper[5] = 'F';
  for (const std::string& bad :
       {std::string(), std::string("00-1-2-01"), kParent + "-x", kParent.substr(0, 54), upper,
        "ff" + kParent.substr(2), "0g" + kParent.substr(2),
        "00-" + std::string(32, '0') + "-00f067aa0ba902b7-01",
        "00-" + kTrace + "-" + std::string(16, '0') + "-01",
        "00-" + kTrace + "_00f067aa0ba902b7-01", kParent + "\n"}) {
    const TraceContext checked = CheckedTraceContext(bad, "a=1", "show=alpha");
    EXPECT_EQ(checked.traceparent, "") << bad;
    EXPECT_EQ(checked.tracestate, "") << bad;
    EXPECT_EQ(checked.baggage, "show=alpha") << bad;
    EXPECT_EQ(TraceIdOf(bad), "") << bad;
  }
}

TEST(TraceContext, StateAndBaggageAreBoundedAndNeverBreakAHeader) {
  EXPECT_EQ(CheckedTraceContext(kParent, std::string(512, 'a'), "").tracestate.size(), 512u);
  EXPECT_EQ(CheckedTraceContext(kParent, std::string(513, 'a'), "").tracestate, "");
  EXPECT_EQ(CheckedTraceContext(kParent, "a=1\r\nX-Evil: 1", "b=\n").tracestate, "");
  EXPECT_EQ(CheckedTraceContext(kParent, "", "b=\n").baggage, "");
  EXPECT_EQ(CheckedTraceContext(kParent, "", std::string(8193, 'b')).baggage, "");
  EXPECT_TRUE(CheckedTraceContext("", "a=1", "").empty());
}

}  // namespace
}  // namespace callboard::core
