// What happened to calls so far, in figures.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "callboard/v1/control.pb.h"
#include "callboard/v1/types.pb.h"
#include "core/telemetry/metrics_text.h"

namespace callboard::server {

// Plain counts, for one thread; told by ExecutionTable and by the flow of calls. Bounded by the
// number of phases, outcomes and reasons there are.
class ExecutionMetrics {
 public:
  void Opened(v1::CallPhase phase) { ++Open(phase); }
  void PhaseLeft(v1::CallPhase from, v1::CallPhase to, absl::Duration stayed);
  // An open call of that phase has ended at the age `age`.
  void Ended(v1::CallPhase last, absl::Duration stayed, v1::OutcomeClass outcome, bool is_error,
             v1::Reason reason, absl::Duration age);
  // Rejected before it became a call.
  void Refused(v1::Reason reason) { ++refused_[Known(reason)]; }
  void Retried() { ++retries_; }
  // What it ran on was gone, and it had had all its attempts.
  void RetriesExhausted() { ++retries_exhausted_; }
  // What was counted until now happened in a former process; calls that are open stay so.
  void BeginAnew();

  void Write(core::MetricsText& text) const;

 private:
  static constexpr std::array<absl::Duration, 12> kAges = {
      absl::Milliseconds(5),    absl::Milliseconds(20),  absl::Milliseconds(50),
      absl::Milliseconds(100),  absl::Milliseconds(250), absl::Seconds(1),
      absl::Milliseconds(2500), absl::Seconds(10),       absl::Seconds(30),
      absl::Minutes(2),         absl::Minutes(10),       absl::Hours(1)};
  static constexpr std::array<absl::Duration, 7> kStays = {
      absl::Milliseconds(10), absl::Milliseconds(100), absl::Seconds(1), absl::Seconds(10),
      absl::Minutes(1),       absl::Minutes(10),       absl::Hours(1)};

  uint64_t& Open(v1::CallPhase phase) { return open_[static_cast<size_t>(phase)]; }
  // Peers may be newer.
  static v1::Reason Known(v1::Reason reason);

  std::array<uint64_t, v1::CallPhase_ARRAYSIZE> open_ = {};
  std::map<v1::CallPhase, core::DurationHistogram> stays_;
  core::DurationHistogram result_ages_{kAges};
  core::DurationHistogram failure_ages_{kAges};
  std::map<std::pair<v1::OutcomeClass, v1::Reason>, uint64_t> ended_;
  std::map<v1::Reason, uint64_t> refused_;
  uint64_t tool_errors_ = 0;
  uint64_t retries_ = 0;
  uint64_t retries_exhausted_ = 0;
};

}  // namespace callboard::server
