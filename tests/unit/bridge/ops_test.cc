// Tests of the operational endpoints, as unchanged dcc-mcp adapters see them.
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

using Ops = BridgeTest;

TEST_F(Ops, HealthIsThatOfADccMcpGateway) {
  Restart({.name = "show-x"});
  EXPECT_EQ(Send("GET", "/health", {})->body,
            R"({"ok":true,"service":"dcc-mcp-gateway","name":"show-x"})");
  EXPECT_EQ(Send("GET", "/v1/healthz", {})->body, R"({"ok":true})");
}

TEST_F(Ops, ReadinessListsInstancesUnderOurOwnAddress) {
  v1::InstanceRow row = Row("maya-1", "aabbccdd00112233");
  row.set_instance_id("623be34c-3162-4a95-8167-02ea287e98cd");
  v1::InstanceRow stuck = Row("maya-2", "ee");
  stuck.set_status("unresponsive");
  plane_.instances = {row, stuck};
  const Answer answer = Send("GET", "/v1/readyz", {{"Host", "localhost:9765"}});
  EXPECT_EQ(answer->status, 200);
  EXPECT_TRUE(answer->body.starts_with(
      R"({"ok":true,"checks":[{"name":"gateway","ok":true}],"live_instance_count":2,)"
      R"("ready_instance_count":1,"not_ready_instance_count":1,)"))
      << answer->body;
  EXPECT_NE(
      answer->body.find(R"("instances":[{"instance_id":"623be34c-3162-4a95-8167-02ea287e98cd",)"
                        R"("instance_short":"623be34c","display_id":"maya@unknown-623be34c",)"
                        R"("dcc_type":"maya","status":"available",)"),
      std::string::npos);
  EXPECT_NE(answer->body.find(R"("mcp_url":"http://localhost:9765/mcp/aabbccdd00112233")"),
            std::string::npos);
}

TEST_F(Ops, SeatsWhoseAgentIsAwayAreListedButNotLive) {
  v1::InstanceRow away = Row("maya-2", "ee");
  away.set_status("reconnecting");
  v1::InstanceRow fresh = Row("maya-3", "ff");
  fresh.set_status("starting");
  plane_.instances = {Row("maya-1", "aa"), away, fresh};
  const Answer answer = Send("GET", "/v1/readyz", {});
  EXPECT_NE(answer->body.find(R"("live_instance_count":2,"ready_instance_count":1,)"
                              R"("not_ready_instance_count":1,)"),
            std::string::npos)
      << answer->body;
  EXPECT_NE(answer->body.find(R"("status":"reconnecting")"), std::string::npos);
}

TEST_F(Ops, ReadinessTurnsWithTheControlPlane) {
  plane_.list_error = absl::UnavailableError("store: disk full");
  const Answer answer = Send("GET", "/v1/readyz", {});
  EXPECT_EQ(answer->status, 503);
  EXPECT_TRUE(answer->body.starts_with(R"({"ok":false,)"));
  EXPECT_NE(answer->body.find("store: disk full"), std::string::npos);
}

TEST_F(Ops, ReadinessTurnsWithTheStoreAndSaysWhy) {
  plane_.store_fault = "the store /s/callboard.db cannot be written";
  plane_.instances = {Row("maya-1", "aa")};
  const Answer answer = Send("GET", "/v1/readyz", {});
  EXPECT_EQ(answer->status, 503);
  EXPECT_TRUE(
      answer->body.starts_with(R"({"ok":false,"checks":[{"name":"store","ok":false,)"
                               R"("message":"the store /s/callboard.db cannot be written"}],)"))
      << answer->body;
  plane_.store_fault.clear();
  EXPECT_EQ(Send("GET", "/v1/readyz", {})->status, 200);
}

TEST_F(Ops, AdminHealthLeavesNothingToPreempt) {
  Restart({.name = "show-x", .version = "1.2.3"});
  EXPECT_EQ(Send("GET", "/admin/api/health", {})->body,
            R"({"ok":true,"status":"ok","version":"9999.0.0","callboard_version":"1.2.3",)"
            R"("gateway":{"current":{"name":"show-x","role":"active","version":"9999.0.0"},)"
            R"("candidates":[]}})");
}

TEST_F(Ops, YieldIsRefused) {
  const Answer answer = Send("POST", "/gateway/yield", {}, R"({"challenger_version":"99.0.0"})");
  EXPECT_EQ(answer->status, 409);
  EXPECT_TRUE(answer->body.starts_with(
      R"({"ok":false,"success":false,"capability":"cooperative_yield","fallback":"polling",)"
      R"("current_version":"9999.0.0","challenger_version":"99.0.0",)"
      R"("error":{"kind":"optional-capability-unsupported",)"))
      << answer->body;
  EXPECT_EQ(Send("POST", "/gateway/yield", {}, "junk")->status, 409);
}

}  // namespace
}  // namespace callboard::tests
