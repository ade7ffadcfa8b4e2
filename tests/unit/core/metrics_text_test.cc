// Tests of the histogram, of the text Prometheus reads, and of the process' own figures.
#include "core/telemetry/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "core/telemetry/process_metrics.h"

namespace callboard::core {
namespace {

constexpr std::array<absl::Duration, 2> kBounds = {absl::Milliseconds(250), absl::Seconds(1)};

TEST(MetricsText, WritesCountersAndGaugesWithTheirLabels) {
  MetricsText text;
  text.Counter("calls_total", "Calls.").Sample(uint64_t{1} << 63);
  text.Gauge("seats", "Seats, by state.")
      .Sample(2, {{"state", "up"}})
      .Sample(false, {{"state", "down"}, {"app", "maya"}});
  text.Gauge("lag_seconds", "Lag.").Sample(absl::Milliseconds(1500));
  EXPECT_EQ(text.Take(),
            "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total "
            "9223372036854775808\n"
            "# HELP seats Seats, by state.\n# TYPE seats gauge\nseats{state=\"up\"} 2\n"
            "seats{state=\"down\",app=\"maya\"} 0\n"
            "# HELP lag_seconds Lag.\n# TYPE lag_seconds gauge\nlag_seconds 1.5\n");
  EXPECT_EQ(text.Take(), "");
}

TEST(MetricsText, NothingInALabelOrATextBreaksALine) {
  MetricsText text;
  text.Gauge("seats", "a\\b\n\"c\"").Sample(1, {{"name", "sh\"ot\\1\nx"}});
  EXPECT_EQ(
      text.Take(),
      "# HELP seats a\\\\b\\n\"c\"\n# TYPE seats gauge\nseats{name=\"sh\\\"ot\\\\1\\nx\"} 1\n");
}

TEST(MetricsText, HistogramsAreCumulativeAndABoundIsInItsBucket) {
  DurationHistogram lives(kBounds);
  for (const int ms : {100, 250, 251, 5000}) lives.Observe(absl::Milliseconds(ms));
  EXPECT_EQ(lives.counts(), (std::vector<uint64_t>{2, 1, 1}));
  EXPECT_EQ(lives.count(), 4u);
  MetricsText text;
  text.Histogram("life_seconds", "Lives.").Sample(lives, {{"of", "x"}});
  EXPECT_EQ(text.Take(),
            "# HELP life_seconds Lives.\n# TYPE life_seconds histogram\n"
            "life_seconds_bucket{of=\"x\",le=\"0.25\"} 2\n"
            "life_seconds_bucket{of=\"x\",le=\"1\"} 3\n"
            "life_seconds_bucket{of=\"x\",le=\"+Inf\"} 4\n"
            "life_seconds_sum{of=\"x\"} 5.601\nlife_seconds_count{of=\"x\"} 4\n");
}

TEST(ProcessMetrics, TellWhatTheSystemKnowsOfThisProcess) {
  MetricsText text;
  WriteProcessMetrics(text);
  const std::string figures = text.Take();
  const auto value = [&](const std::string& name) {
    const std::string start = "\n" + name + " ";
    const size_t at = figures.find(start);
    return at == std::string::npos ? -1.0 : std::stod(figures.substr(at + start.size()));
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GE(value("process_max_fds"), value("process_open_fds"));
  EXPECT_GE(value("process_cpu_seconds_total"), 0);
  EXPECT_GT(value("process_start_time_seconds"), 1.6e9);
  EXPECT_THAT(figures,
              testing::HasSubstr("callboard_build_info{version=\"" CALLBOARD_VERSION "\"} 1\n"));
}

}  // namespace
}  // namespace callboard::core
