// Tests of how log lines are written, as text and as JSON.
#include "core/telemetry/log.h"

#include <gtest/gtest.h>

#include "core/mcp/json.h"

namespace callboard::core {
namespace {

// What Log() writes of one event, without its time.
std::string Line(LogFormat format, std::initializer_list<LogField> fields) {
  testing::internal::CaptureStderr();
  StartLogging(LogLevel::kInfo, format);
  LogDebug("unheard");
  LogWarn("call_ended", fields);
  StopLogging();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, TextQuotesWhatWouldBreakALine) {
  const std::string line = Line(LogFormat::kText, {{"call", "ab"},
                                                   {"", "left out"},
                                                   {"reason", "a \"b\"\nc"},
                                                   {"duration_ms", 5},
                                                   {"is_error", false}});
  EXPECT_EQ(line.substr(line.find(' ')),
            " warn call_ended call=ab reason=\"a \\\"b\\\" c\" duration_ms=5 is_error=false\n");
}

TEST(Log, JsonIsOneObjectALineWithNumbersAsNumbers) {
  const std::string line = Line(LogFormat::kJson, {{"call", "ab"},
                                                   {"", "left out"},
                                                   {"reason", "a \"b\"\nc \xff"},
                                                   {"duration_ms", int64_t{-5}},
                                                   {"is_error", true},
                                                   {"client", R"({"name":"x"})"}});
  ASSERT_TRUE(line.ends_with("}\n"));
  const std::string object = line.substr(0, line.size() - 1);
  ASSERT_TRUE(ValidateJson(object, 4).ok()) << object;
  EXPECT_EQ(object.substr(object.find(",\"level\"")),
            ",\"level\":\"warn\",\"event\":\"call_ended\",\"call\":\"ab\","
            "\"reason\":\"a \\\"b\\\"\\nc \xef\xbf\xbd\",\"duration_ms\":-5,\"is_error\":true,"
            "\"client\":\"{\\\"name\\\":\\\"x\\\"}\"}");
  // A time that says where it counts from.
  EXPECT_EQ(FindString(object, "time")->size(),
            std::string("2026-11-30T12:00:00.000+00:00").size());
}

}  // namespace
}  // namespace callboard::core
