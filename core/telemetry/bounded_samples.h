// Samples of one metric a thing, up to a bound; the things beyond it together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/telemetry/metrics_text.h"

namespace callboard::core {

// Begun after the metric itself; its end writes what was beyond the bound, as "other". So a farm
// does not become a series a machine.
class BoundedSamples {
 public:
  static constexpr size_t kTold = 200;

  // Names of the two labels that tell things apart and name them.
  BoundedSamples(MetricsText& text, std::string_view id_label, std::string_view name_label)
      : text_(text), id_label_(id_label), name_label_(name_label) {}
  BoundedSamples(const BoundedSamples&) = delete;
  BoundedSamples& operator=(const BoundedSamples&) = delete;
  ~BoundedSamples() {
    if (count_ > kTold) text_.Sample(others_, {{id_label_, "other"}, {name_label_, "other"}});
  }

  void Add(std::string_view id, std::string_view name, uint64_t value) {
    if (++count_ > kTold) {
      others_ += value;
    } else {
      text_.Sample(value, {{id_label_, id}, {name_label_, name}});
    }
  }

 private:
  MetricsText& text_;
  const std::string_view id_label_;
  const std::string_view name_label_;
  size_t count_ = 0;
  uint64_t others_ = 0;
};

}  // namespace callboard::core
