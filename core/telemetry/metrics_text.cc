// Implementation of the histogram and of the text format.
#include "core/telemetry/metrics_text.h"

#include <numeric>

namespace callboard::core {
namespace {

void AppendEscaped(std::string* out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\n') {
      out->append("\\n");
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) out->push_back('\\');
    out->push_back(c);
  }
}

std::string Seconds(absl::Duration value) {
  return fmt::format("{}", absl::ToDoubleSeconds(value));
}

}  // namespace

void DurationHistogram::Observe(absl::Duration value) {
  size_t place = 0;
  while (place < bounds_.size() && value > bounds_[place]) ++place;
  ++counts_[place];
  sum_ += value;
}

uint64_t DurationHistogram::count() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

MetricsText& MetricsText::Sample(absl::Duration value, MetricLabels labels) {
  return AddSample({}, labels, {}, Seconds(value));
}

MetricsText& MetricsText::Sample(const DurationHistogram& histogram, MetricLabels labels) {
  uint64_t below = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    below += histogram.counts()[i];
    const bool last = i == histogram.bounds().size();
    AddSample("_bucket", labels, last ? "+Inf" : Seconds(histogram.bounds()[i]),
              fmt::format("{}", below));
  }
  AddSample("_sum", labels, {}, Seconds(histogram.sum()));
  return AddSample("_count", labels, {}, fmt::format("{}", below));
}

MetricsText& MetricsText::Begin(std::string_view name, std::string_view help,
                                std::string_view type) {
  name_ = name;
  text_.append("# HELP ").append(name).push_back(' ');
  AppendEscaped(&text_, help, /*quotes=*/false);
  text_.append("\n# TYPE ").append(name).append(" ").append(type).push_back('\n');
  return *this;
}

MetricsText& MetricsText::AddSample(std::string_view suffix, MetricLabels labels,
                                    std::string_view upper, std::string_view value) {
  text_.append(name_).append(suffix);
  char before = '{';
  const auto add = [&](std::string_view name, std::string_view label) {
    text_.push_back(std::exchange(before, ','));
    text_.append(name).append("=\"");
    AppendEscaped(&text_, label, /*quotes=*/true);
    text_.push_back('"');
  };
  for (const auto& [name, label] : labels) add(name, label);
  if (!upper.empty()) add("le", upper);
  if (before == ',') text_.push_back('}');
  text_.append(" ").append(value).push_back('\n');
  return *this;
}

}  // namespace callboard::core
