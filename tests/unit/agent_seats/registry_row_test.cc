// Tests of reading rows of the FileRegistry.
#include "backend_agent/discovery/registry_row.h"

#include <gtest/gtest.h>

namespace callboard::agent {
namespace {

TEST(RegistryRow, ReadsTheArrayForm) {
  auto rows = ParseRegistry(R"([
    {"schema_version":1,"dcc_type":"__gateway__","instance_id":"g","host":"127.0.0.1","port":9765},
    {"schema_version":1,"dcc_type":"blender","instance_id":"i1","host":"localhost","port":9401,
     "version":"5.0.1","scene":null,"pid":42,"sentinel_path":"/r/locks/l","metadata":{},
     "registered_at":{"secs_since_epoch":1,"nanos_since_epoch":2},"status":"available"}])");
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->rows.size(), 1u);
  const RegistryRow& row = rows->rows[0];
  EXPECT_EQ(row.dcc_type, "blender");
  EXPECT_EQ(row.mcp_url, "http://127.0.0.1:9401/mcp");
  EXPECT_EQ(row.pid, 42);
  EXPECT_EQ(row.version, "5.0.1");
  EXPECT_EQ(row.scene, "");
  EXPECT_EQ(row.raw.find('\n'), std::string::npos);
  EXPECT_TRUE(rows->ignored.empty());
}

TEST(RegistryRow, ReadsTheDictFormWithFloatTimes) {
  auto rows = ParseRegistry(
      R"({"__gateway__:127.0.0.1:9765":{"host":"127.0.0.1","port":9765},
          "i7":{"dcc_type":"maya","host":"[::1]","port":9402,"last_heartbeat":1.5e9}})");
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->rows.size(), 1u);
  EXPECT_EQ(rows->rows[0].instance_id, "i7");
  EXPECT_EQ(rows->rows[0].host, "127.0.0.1");
}

TEST(RegistryRow, PrefersTheUrlOfTheMetadataOnThisMachine) {
  auto rows = ParseRegistry(
      R"([{"dcc_type":"a","instance_id":"1","host":"0.0.0.0","port":1,
           "metadata":{"mcp_url":"http://localhost:7000/x/mcp"}}])");
  ASSERT_EQ(rows->rows.size(), 1u);
  EXPECT_EQ(rows->rows[0].mcp_url, "http://127.0.0.1:7000/x/mcp");
}

TEST(RegistryRow, LeavesOutWithAWordWhatItCannotUse) {
  auto rows = ParseRegistry(
      R"([{"schema_version":2,"dcc_type":"a","instance_id":"new","host":"localhost","port":1},
          {"dcc_type":"a","instance_id":"far","host":"10.0.0.5","port":1},
          {"dcc_type":"a","instance_id":"fake","host":"localhost.evil.org","port":1},
          {"dcc_type":"a","instance_id":"noport"}, 17])");
  ASSERT_TRUE(rows.ok());
  EXPECT_TRUE(rows->rows.empty());
  ASSERT_EQ(rows->ignored.size(), 5u);
  EXPECT_EQ(rows->ignored[0],
            "registry row 'new' has schema version 2, up to 1 is known; it is ignored");
}

TEST(RegistryRow, EmptyFormsHaveNoRowsAndDamagedOnesAreErrors) {
  for (const char* text : {"", " \n", "[]", "{}"}) {
    EXPECT_TRUE(ParseRegistry(text).ok()) << text;
    EXPECT_TRUE(ParseRegistry(text)->rows.empty());
  }
  for (const char* text : {"[{", "7", "[{\"a\":1}] x"}) EXPECT_FALSE(ParseRegistry(text).ok());
}

TEST(RegistryRow, ZeroBytesAfterAPowerCutArePassedOverAndAFileOfThemIsDamaged) {
  std::string text = R"([{"dcc_type":"a","instance_id":"1","port":1}])";
  EXPECT_EQ(ParseRegistry(text + std::string(4096, '\0'))->rows.size(), 1u);
  EXPECT_FALSE(ParseRegistry(text.substr(0, 20) + std::string(4096, '\0')).ok());
  EXPECT_FALSE(ParseRegistry(std::string(4096, '\0')).ok());
  EXPECT_FALSE(ParseRegistry(std::string(8, '\0') + text).ok());
}

TEST(RegistryRow, BothFormsOfTimeInBothFormsOfFileAreTheSameRow) {
  const std::string wide = R"("last_heartbeat":{"secs_since_epoch":1,"nanos_since_epoch":2})";
  const std::string narrow = R"("registered_at":1795995983.6,"last_heartbeat":1.5e9)";
  std::vector<RegistryRow> rows;
  for (const std::string& time : {wide, narrow}) {
    const std::string row = R"({"dcc_type":"maya","instance_id":"i7","port":9402,)" + time + "}";
    for (const std::string& text : {"[" + row + "]", R"({"maya:127.0.0.1:9402":)" + row + "}"}) {
      auto parsed = ParseRegistry(text);
      ASSERT_TRUE(parsed.ok());
      ASSERT_EQ(parsed->rows.size(), 1u) << text;
      rows.push_back(parsed->rows[0]);
    }
  }
  for (const RegistryRow& row : rows) EXPECT_EQ(row, rows[0]);
}

TEST(RegistryRow, ReadsTheFileOfARealStudioMachine) {
  // A sidecar that cannot serve yet, with its host's process beside its own.
  auto rows = ParseRegistry(R"([
    {"schema_version":1,"dcc_type":"maya","instance_id":"8e0dcfb6","host":"127.0.0.1","port":40943,
     "version":null,"scene":null,"pid":3610,"host_pid":3605,"sentinel_path":"/r/locks/m.lock",
     "metadata":{"mcp_url":"http://127.0.0.1:40943/mcp","dispatch_status":"unavailable"},
     "registered_at":{"secs_since_epoch":1795996136,"nanos_since_epoch":321230576},
     "last_heartbeat":{"secs_since_epoch":1795996156,"nanos_since_epoch":638620544},
     "status":"booting","unknown_member":[1,{"x":null}]}])");
  ASSERT_EQ(rows->rows.size(), 1u);
  EXPECT_EQ(rows->rows[0].pid, 3610);
  EXPECT_EQ(rows->rows[0].host_pid, 3605);
  EXPECT_EQ(rows->rows[0].version, "");
}

TEST(RegistryRow, FC32_AServerIsLookedForWhereItSaysItListens) {
  const std::vector<std::pair<std::string, std::string>> hosts = {
      {"127.0.0.1", "127.0.0.1"}, {"localhost", "localhost"}, {"::1", "::1"},
      {"[::1]", "::1"},           {"0.0.0.0", "localhost"},   {"127.0.1.1", "127.0.1.1"}};
  for (const auto& [host, expected] : hosts) {
    auto rows =
        ParseRegistry(R"([{"dcc_type":"a","instance_id":"1","port":1,"host":")" + host + "\"}]");
    ASSERT_EQ(rows->rows.size(), 1u) << host;
    EXPECT_EQ(rows->rows[0].connect_host, expected);
  }
  auto rows = ParseRegistry(
      R"([{"dcc_type":"a","instance_id":"1","metadata":{"mcp_url":"http://[::1]:7/mcp"}}])");
  EXPECT_EQ(rows->rows[0].connect_host, "::1");
  EXPECT_EQ(rows->rows[0].mcp_url, "http://127.0.0.1:7/mcp");
}

TEST(RegistryRow, AHeartbeatIsNoChange) {
  auto a = ParseRegistry(R"([{"dcc_type":"a","instance_id":"1","port":1,"last_heartbeat":1.0}])");
  auto b = ParseRegistry(R"([{"dcc_type":"a","instance_id":"1","port":1,"last_heartbeat":2.0}])");
  EXPECT_EQ(a->rows[0], b->rows[0]);
}

}  // namespace
}  // namespace callboard::agent
