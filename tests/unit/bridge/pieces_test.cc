// Tests of the bridge's pure pieces: routes, media types, event ids, reasons, the session cache.
#include <gtest/gtest.h>

#include "bridge/content_negotiation.h"
#include "bridge/errors.h"
#include "bridge/event_pump.h"
#include "bridge/facade/arguments.h"
#include "bridge/routes.h"
#include "bridge/session_cache.h"
#include "bridge/translator.h"
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

using namespace callboard::bridge;  // NOLINT: the subject of every test here

TEST(Routes, DecodeTheInstance) {
  EXPECT_EQ(FindRoute("/mcp/maya%20hero/").instance, "maya hero");
  EXPECT_EQ(FindRoute("/mcp/a%zz").instance, "a%zz");
  EXPECT_EQ(FindRoute("/mcp/a/b").endpoint, Endpoint::kUnknown);
  EXPECT_EQ(FindRoute("/mcp//").endpoint, Endpoint::kUnknown);
  EXPECT_EQ(FindRoute("/").endpoint, Endpoint::kUnknown);
}

TEST(Negotiation, TheMostSpecificRangeDecides) {
  EXPECT_FALSE(Accepts("text/*, text/event-stream;q=0.0", "text/event-stream"));
  EXPECT_TRUE(Accepts("TEXT/event-stream; q=0.1", "text/event-stream"));
  EXPECT_FALSE(Accepts("text/html, ;;,", "text/event-stream"));
}

TEST(Heartbeat, IsTheLeastThatThePathAsksFor) {
  const absl::Duration wanted = absl::Seconds(15);
  EXPECT_EQ(HeartbeatFor(wanted, {}, false), absl::Seconds(15));
  EXPECT_EQ(HeartbeatFor(wanted, {}, true), absl::Seconds(10));
  EXPECT_EQ(HeartbeatFor(wanted, {absl::Seconds(60)}, false), absl::Seconds(15));
  EXPECT_EQ(HeartbeatFor(wanted, {absl::Seconds(60), absl::Seconds(30)}, false), absl::Seconds(12));
  EXPECT_EQ(HeartbeatFor(wanted, {absl::Seconds(10)}, true), absl::Seconds(4));
}

TEST(EventIds, SurviveTheRoundTrip) {
  const auto id = ParseEventId("18446744073709551615.2.3");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(FormatEventId(*id), "18446744073709551615.2.3");
}

TEST(Asks, AreTakenBackUnderTheIdTheyWereAskedWith) {
  v1::AskEvent ask;
  ask.set_ask_id("ab.1.2");
  ask.set_method("roots/list");
  EXPECT_EQ(AskText(ask), R"({"jsonrpc":"2.0","id":"ask-ab.1.2","method":"roots/list"})");
  v1::StreamEvent cancelled;
  cancelled.set_method("notifications/cancelled");
  cancelled.set_params(R"({"reason":"late","requestId":"ab.1.2"})");
  EXPECT_EQ(NotificationText(cancelled), R"({"jsonrpc":"2.0","method":"notifications/cancelled",)"
                                         R"("params":{"reason":"late","requestId":"ask-ab.1.2"}})");
}

TEST(Reasons, OfANewerControlPlaneFallBackToTheirHundred) {
  EXPECT_EQ(DescribeReason(static_cast<v1::Reason>(599)).kind, "not_started");
  EXPECT_EQ(DescribeReason(static_cast<v1::Reason>(7000)).reason, "unspecified");
  for (int reason = v1::Reason_MIN; reason <= v1::Reason_MAX; ++reason) {
    if (!v1::Reason_IsValid(reason) || reason == 0) continue;
    EXPECT_NE(DescribeReason(static_cast<v1::Reason>(reason)).reason, "rejected")
        << v1::Reason_Name(static_cast<v1::Reason>(reason));
  }
}

TEST(Slugs, KeepDotsInTheToolsName) {
  const auto slug = SplitSlug("maya.1f2e3d4c.a.b");
  ASSERT_TRUE(slug.has_value());
  EXPECT_EQ(slug->tool, "a.b");
  EXPECT_FALSE(SplitSlug("maya.1f2e3d4c").has_value());
  EXPECT_FALSE(SplitSlug("maya..x").has_value());
}

TEST(SessionCache, ForgetsTheLeastRecentlyUsed) {
  SessionCache cache(2, absl::Seconds(30));
  const absl::Time now = absl::FromUnixSeconds(1);
  cache.Confirm({.id = "a"}, now);
  cache.Confirm({.id = "b"}, now);
  EXPECT_NE(cache.Find("a", now), nullptr);
  cache.Confirm({.id = "c"}, now);
  EXPECT_EQ(cache.Find("b", now), nullptr);
  EXPECT_NE(cache.Find("a", now + absl::Seconds(30)), nullptr);
  EXPECT_EQ(cache.Find("a", now + absl::Seconds(31)), nullptr);
}

TEST(SessionCache, ForgetsAbandonedSessionsWhenNewOnesCome) {
  SessionCache cache(100, absl::Seconds(30));
  const absl::Time now = absl::FromUnixSeconds(1);
  for (int i = 0; i < 50; ++i) cache.Confirm({.id = std::to_string(i)}, now);
  cache.Confirm({.id = "kept"}, now + absl::Seconds(20));
  EXPECT_EQ(cache.size(), 51u);
  cache.Confirm({.id = "new"}, now + absl::Seconds(31));
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_NE(cache.Find("kept", now + absl::Seconds(31)), nullptr);
}

TEST(EventPump, NeedsNoStackForInlineEvents) {
  auto script = std::make_shared<SourceScript<int>>();
  for (int i = 0; i < 100'000; ++i) script->Push(i);
  int64_t sum = 0;
  EventPump<int>* self = nullptr;
  EventPump<int> pump(std::make_unique<ScriptedSource<int>>(script),
                      [&](absl::StatusOr<int> event) {
                        sum += *event;
                        self->Ask();
                      });
  self = &pump;
  pump.Ask();
  EXPECT_EQ(sum, 4999950000);
  script->Push(50);
  EXPECT_EQ(sum, 4999950050);
}

TEST(EventPump, MayBeDestroyedByItsHandler) {
  auto script = std::make_shared<SourceScript<int>>();
  script->Push(1);
  std::optional<EventPump<int>> pump;
  pump.emplace(std::make_unique<ScriptedSource<int>>(script),
               [&](const absl::StatusOr<int>&) { pump.reset(); });
  pump->Ask();
  EXPECT_TRUE(script->destroyed);
}

}  // namespace
}  // namespace callboard::tests
