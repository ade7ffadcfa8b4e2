// Implementation of LinkWindow.
#include "core/runtime/link_window.h"

#include <algorithm>

namespace callboard::core {
namespace {

// What was measured holds for two of these.
constexpr absl::Duration kPeriod = absl::Seconds(10);
constexpr size_t kWrittenMax = 4096;
// Of bandwidth times delay: enough that a confirmation which comes late does not let the path run
// dry, little enough that what waits in front of it costs half a round trip.
constexpr double kGain = 1.5;

}  // namespace

void LinkWindow::OnWritten(uint64_t total, absl::Time now) {
  // After a pause the pause is no part of the delivery.
  if (written_.empty()) confirmed_at_ = now;
  if (written_.size() < kWrittenMax) written_.push_back({total, now, confirmed_, confirmed_at_});
}

void LinkWindow::OnConfirmed(uint64_t total, absl::Time now) {
  if (total <= confirmed_) return;
  confirmed_ = total;
  confirmed_at_ = now;
  while (!written_.empty() && written_.front().total <= total) {
    const Written& frame = written_.front();
    const absl::Duration round_trip = now - frame.at;
    const absl::Duration took = now - frame.confirmed_at;
    round_trip_ = std::min(round_trip_, round_trip);
    if (took > absl::ZeroDuration()) {
      const double delivered = static_cast<double>(total - frame.confirmed);
      rate_ = std::max(rate_, delivered / absl::ToDoubleSeconds(took));
    }
    written_.pop_front();
  }
  if (now >= period_end_) {
    period_end_ = now + kPeriod;
    former_rate_ = rate_;
    rate_ = 0;
  }
  if (round_trip_ == absl::InfiniteDuration()) return;
  const double product = std::max(rate_, former_rate_) * absl::ToDoubleSeconds(round_trip_);
  limit_ = static_cast<uint64_t>(
      std::clamp(kGain * product, static_cast<double>(least_), static_cast<double>(most_)));
}

void LinkWindow::Reset() {
  written_.clear();
  confirmed_ = 0;
  confirmed_at_ = absl::InfinitePast();
  rate_ = former_rate_ = 0;
  round_trip_ = absl::InfiniteDuration();
  period_end_ = absl::InfinitePast();
  limit_ = least_;
}

}  // namespace callboard::core
