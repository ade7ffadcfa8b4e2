// The figures of a program in the text format of Prometheus (version 0.0.4), and its histogram.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace callboard::core {

// Durations counted by upper bound: no allocation and a few comparisons an event. A plain table,
// for one thread.
class DurationHistogram {
 public:
  // `bounds` ascend and outlive it; one more count is for what exceeds them all.
  explicit DurationHistogram(std::span<const absl::Duration> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void Observe(absl::Duration value);

  std::span<const absl::Duration> bounds() const { return bounds_; }
  // Of each bucket alone.
  const std::vector<uint64_t>& counts() const { return counts_; }
  absl::Duration sum() const { return sum_; }
  uint64_t count() const;

 private:
  std::span<const absl::Duration> bounds_;
  std::vector<uint64_t> counts_;
  absl::Duration sum_;
};

using MetricLabels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// Collects metrics: Counter(), Gauge() or Histogram() begins one, its samples follow. Names follow
// Prometheus' rules: counters end in _total, durations are in seconds and say so. A name is begun
// once, and no two of its samples have the same labels. Values of labels and texts may be anything.
class MetricsText {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  MetricsText& Counter(std::string_view name, std::string_view help) {
    return Begin(name, help, "counter");
  }
  MetricsText& Gauge(std::string_view name, std::string_view help) {
    return Begin(name, help, "gauge");
  }
  MetricsText& Histogram(std::string_view name, std::string_view help) {
    return Begin(name, help, "histogram");
  }

  MetricsText& Sample(absl::Duration value, MetricLabels labels = {});
  template <class T>
    requires std::is_arithmetic_v<T>
  MetricsText& Sample(T value, MetricLabels labels = {}) {
    if constexpr (std::is_same_v<T, bool>) return AddSample({}, labels, {}, value ? "1" : "0");
    return AddSample({}, labels, {}, fmt::format("{}", value));
  }
  MetricsText& Sample(const DurationHistogram& histogram, MetricLabels labels = {});

  std::string Take() { return std::exchange(text_, {}); }

 private:
  MetricsText& Begin(std::string_view name, std::string_view help, std::string_view type);
  // `upper`: the bound of a bucket, or empty.
  MetricsText& AddSample(std::string_view suffix, MetricLabels labels, std::string_view upper,
                         std::string_view value);

  std::string text_;
  std::string name_;
};

}  // namespace callboard::core
