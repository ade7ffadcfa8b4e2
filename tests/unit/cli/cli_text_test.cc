// Tests of the command line's text: seats, selection, exit codes, clients' entries, settings.
#include <gtest/gtest.h>

#include "apps/cli/client_config.h"
#include "apps/cli/exit_codes.h"
#include "apps/cli/seat_table.h"
#include "apps/server_settings.h"
#include "apps/settings_source.h"
#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

v1::InstanceRow Seat(const std::string& name, const std::string& status) {
  v1::InstanceRow row;
  row.set_name(name);
  row.set_seat_id("0123456789abcdef0123456789abcdef");
  row.set_app("blender");
  row.set_status(status);
  (*row.mutable_labels())["show"] = "alpha";
  return row;
}

TEST(SeatTable, IsSortedAndShowsWhatRuns) {
  v1::InstanceRow busy = Seat("b", "busy");
  busy.add_running()->set_tool("render");
  EXPECT_EQ(RenderSeatTable({busy, Seat("a\x1b[2J", "dead")}, false),
            "NAME   ID        APP      VERSION  STATE  QUEUE  TOOL\n"
            "a [2J  01234567  blender  -        down   0      -\n"
            "b      01234567  blender  -        busy   0      render\n");
}

TEST(SeatTable, ConditionsLookAtLabelsAndColumns) {
  const auto holds = [](std::string_view text, const std::string& status = "available") {
    auto conditions = ParseSeatConditions(text);
    EXPECT_TRUE(conditions.ok()) << text;
    return conditions.ok() && Holds(*conditions, Seat("a", status));
  };
  EXPECT_TRUE(holds("show=alpha,state!=busy"));
  EXPECT_FALSE(holds("show=alpha,state!=busy", "busy"));
  EXPECT_TRUE(holds("show in (beta, alpha) , app notin (maya,houdini)"));
  EXPECT_FALSE(holds("show in (beta)"));
  EXPECT_FALSE(holds("app notin (maya,blender)"));
  EXPECT_TRUE(holds("show,!farm_job"));
  EXPECT_FALSE(holds("farm_job"));
  EXPECT_FALSE(holds("!show"));
  EXPECT_TRUE(holds("farm_job!=7")) << "what has no such label is not that";
  for (const char* wrong :
       {"!=x", "=x", "show on (a)", "in (a)", "show in a)", "show in (a", "!", "a b", "(a)"}) {
    EXPECT_FALSE(ParseSeatConditions(wrong).ok()) << wrong;
  }
}

TEST(ExitCodes, TellAnUnknownOutcomeFromAFailedCall) {
  v1::CallOutcome outcome;
  outcome.set_class_(v1::LOST);
  outcome.set_certainty(v1::UNKNOWN);
  EXPECT_EQ(ExitCodeOf(outcome), 7);
  outcome.set_class_(v1::EXPIRED);
  EXPECT_EQ(ExitCodeOf(outcome), 6);
  outcome.set_class_(v1::RESULT);
  EXPECT_EQ(ExitCodeOf(outcome), 0);
  outcome.mutable_facts()->set_is_error(true);
  EXPECT_EQ(ExitCodeOf(outcome), 1);
  outcome.set_class_(v1::REJECTED);
  outcome.set_reason(v1::QUEUE_FULL);
  EXPECT_EQ(ExitCodeOf(outcome), 5);
}

TEST(ClientConfig, QuotesWhatItIsGiven) {
  auto config = MakeClientConfig("vscode", "my \"board\"", "http://h/mcp", "/opt/callboard");
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(core::ValidateJson(config->content).ok()) << config->content;
  EXPECT_FALSE(MakeClientConfig("emacs", "a", "b", "c").ok());
  for (const char* client : {"windsurf", "opencode"}) {
    auto one = MakeClientConfig(client, "callboard", "http://h/mcp", "/opt/callboard");
    ASSERT_TRUE(one.ok());
    EXPECT_TRUE(core::ValidateJson(one->content).ok()) << one->content;
    EXPECT_NE(one->content.find("http://h/mcp"), std::string::npos);
  }
}

TEST(ClientConfig, StartsTheStdioFaceForAClientThatSpeaksNothingElse) {
  auto config = MakeClientConfig("claude-desktop", "callboard", "http://h/mcp", "/opt/callboard");
  ASSERT_TRUE(config.ok());
  EXPECT_NE(config->content.find(
                R"({"command":"/opt/callboard","args":["mcp-stdio","--url","http://h/mcp"]})"),
            std::string::npos)
      << config->content;
}

TEST(Settings, TellTheHeartbeatThatFollowsFromThePath) {
  core::Settings settings;
  settings.AddAssignment("bridge.path_idle_timeouts=60s, 30s");
  settings.AddAssignment("bridge.path=wan");
  ServerSettings server;
  ASSERT_TRUE(ReadServerSettings(settings, &server).ok());
  EXPECT_EQ(server.bridge.config.heartbeat, absl::Seconds(10));
  std::string shown;
  for (const auto& row : settings.effective()) {
    if (row.key.starts_with("bridge.heartbeat") || row.key.starts_with("bridge.path")) {
      shown += row.key + "=" + row.value + "\n";
    }
  }
  EXPECT_EQ(shown,
            "bridge.heartbeat=15s\nbridge.path_idle_timeouts=1m,30s\nbridge.path=wan\n"
            "bridge.heartbeat, effective=10s\n");
}

TEST(Settings, RefuseAPathThatNoHeartbeatHolds) {
  const auto refusal = [](std::string_view assignment) {
    core::Settings settings;
    settings.AddAssignment(assignment);
    ServerSettings server;
    return std::string(ReadServerSettings(settings, &server).message());
  };
  EXPECT_NE(refusal("bridge.path_idle_timeouts=2s").find("would be 800ms"), std::string::npos);
  EXPECT_NE(refusal("bridge.path_idle_timeouts=60s,x").find("\"60s,100s\""), std::string::npos);
  EXPECT_NE(refusal("bridge.path=moon").find("'moon': expected \"local\" or \"wan\""),
            std::string::npos);
}

TEST(Settings, TellEachValueWithItsSource) {
  core::Settings settings;
  settings.AddAssignment("budgets.queue=5m");
  ServerSettings server;
  ASSERT_TRUE(ReadServerSettings(settings, &server).ok());
  std::map<std::string, std::string> values;
  for (const auto& [key, value, source] : settings.effective()) values[key] = value + " " + source;
  EXPECT_EQ(values["budgets.queue"], "5m --set");
  EXPECT_EQ(values["budgets.connect"], "3s default");
}

TEST(Settings, OfTheStoreAreWordsSizesAndTimes) {
  const auto read = [](std::string_view assignment, ServerSettings* server) {
    core::Settings settings;
    settings.AddAssignment(assignment);
    return ReadServerSettings(settings, server);
  };
  ServerSettings server;
  EXPECT_TRUE(read("store.sync=full", &server).ok());
  EXPECT_TRUE(read("store.kind=memory", &server).ok());
  EXPECT_TRUE(read("store.pending_bytes_max=1MiB", &server).ok());
  EXPECT_TRUE(server.store_sync_full);
  EXPECT_EQ(server.store_kind, StoreKind::kMemory);
  EXPECT_EQ(server.store_pending_bytes_max, 1u << 20);
  EXPECT_EQ(read("store.kind=redis", &server),
            absl::InvalidArgumentError("store.kind = 'redis': expected sqlite or memory"));
  EXPECT_EQ(read("store.sync=often", &server),
            absl::InvalidArgumentError("store.sync = 'often': expected normal or full"));
}

TEST(Settings, OfToolsAreSelectorsAndTheLengthOfNames) {
  const auto read = [](std::string_view assignment, ServerSettings* server) {
    core::Settings settings;
    settings.AddAssignment(assignment);
    return std::string(core::Message(ReadServerSettings(settings, server)));
  };
  ServerSettings server;
  EXPECT_TRUE(server.pinned_tools.empty());
  EXPECT_EQ(read("tools.pinned=usd, Maya.*.bake", &server), "");
  EXPECT_EQ(server.pinned_tools.text(), "maya.*.bake,usd.*.*");
  EXPECT_EQ(read("tools.name_characters_max=60", &server), "");
  EXPECT_EQ(server.limits.tool_name_characters_max, 60u);
  EXPECT_EQ(server.limits.selected_tools_max, 128u) << "many clients take no more";
  EXPECT_EQ(read("tools.selected_max=1000", &server), "");
  EXPECT_EQ(server.limits.selected_tools_max, 1'000u);
  EXPECT_NE(read("tools.selected_max=1001", &server), "");
  EXPECT_TRUE(IsHotServerSetting("tools.pinned"));

  const std::string selector = read("tools.pinned=usd,maya..x", &server);
  EXPECT_NE(selector.find("tools.pinned = 'usd,maya..x': selector 'maya..x' has a dot"),
            std::string::npos)
      << selector;
  const std::string itself = read("tools.pinned=pinned", &server);
  EXPECT_NE(itself.find("tools.pinned = 'pinned': 'pinned' cannot stand for itself"),
            std::string::npos)
      << itself;
  for (const char* length : {"31", "129", "many"}) {
    EXPECT_NE(read(std::string("tools.name_characters_max=") + length, &server), "") << length;
  }
}

TEST(Settings, NameEveryFaultAtOnce) {
  core::Settings settings;
  for (const char* text : {"budgets.queue", "budgets.connect=soon", "log.level=loud", "no.such=1",
                           "budgets.link_read_idle=200s", "budgets.heartbeat=150s"}) {
    settings.AddAssignment(text);
  }
  ServerSettings server;
  const std::string faults(ReadServerSettings(settings, &server).message());
  for (const char* named :
       {"--set budgets.queue: expected key=value", "budgets.connect = \"soon\"",
        "log.level = \"loud\" (--set): expected one of debug, info, warn, error, off",
        "no.such = \"1\"", "link_read_idle (3m20s) must be less than quick_call (30s)",
        "twice heartbeat (5m) must be less than link_read_idle (3m20s)"}) {
    EXPECT_NE(faults.find(named), std::string::npos) << named << "\nin\n" << faults;
  }
}

TEST(Settings, OnlyHotOnesAreTakenWhileAProgramRuns) {
  EffectiveSettings now = {{"log.level", "info", "default"}, {"bridge.retry", "3s", "default"}};
  const EffectiveSettings next = {
      {"log.level", "debug", "a.toml"}, {"bridge.retry", "5s", "a.toml"}, {"labels.x", "1", "b"}};
  const SettingsChange change = TakeHotSettings(next, IsHotServerSetting, &now);
  EXPECT_EQ(change.taken, std::vector<std::string>{"log.level=debug"});
  EXPECT_EQ(change.kept, (std::vector<std::string>{"bridge.retry", "labels.x"}));
  EXPECT_EQ(now[0].value, "debug");
  EXPECT_EQ(now[1].value, "3s");
  EXPECT_TRUE(TakeHotSettings(now, IsHotServerSetting, &now).kept.empty());
}

}  // namespace
}  // namespace callboard::apps
