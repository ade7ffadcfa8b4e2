// Implementation of the figures about calls.
#include "server/domain/execution_metrics.h"

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"

namespace callboard::server {
namespace {

constexpr v1::CallPhase kOpenPhases[] = {v1::CALL_QUEUED, v1::CALL_CONNECTING, v1::CALL_SENDING,
                                         v1::CALL_WAITING, v1::CALL_RETRYING};

// "queued" of CALL_QUEUED.
std::string PhaseLabel(v1::CallPhase phase) {
  constexpr std::string_view kPrefix = "CALL_";
  return absl::AsciiStrToLower(v1::CallPhase_Name(phase)).substr(kPrefix.size());
}

std::string ReasonLabel(v1::Reason reason) {
  return reason == v1::REASON_UNSPECIFIED ? "none" : absl::AsciiStrToLower(v1::Reason_Name(reason));
}

}  // namespace

v1::Reason ExecutionMetrics::Known(v1::Reason reason) {
  return v1::Reason_IsValid(reason) ? reason : v1::REASON_UNSPECIFIED;
}

void ExecutionMetrics::PhaseLeft(v1::CallPhase from, v1::CallPhase to, absl::Duration stayed) {
  --Open(from);
  ++Open(to);
  stays_.try_emplace(from, kStays).first->second.Observe(stayed);
}

void ExecutionMetrics::Ended(v1::CallPhase last, absl::Duration stayed, v1::OutcomeClass outcome,
                             bool is_error, v1::Reason reason, absl::Duration age) {
  --Open(last);
  stays_.try_emplace(last, kStays).first->second.Observe(stayed);
  const bool result = outcome == v1::RESULT;
  (result ? result_ages_ : failure_ages_).Observe(age);
  if (result && is_error) {
    ++tool_errors_;
    return;
  }
  if (!v1::OutcomeClass_IsValid(outcome)) outcome = v1::OUTCOME_CLASS_UNSPECIFIED;
  ++ended_[{outcome, Known(reason)}];
}

void ExecutionMetrics::BeginAnew() {
  const auto open = open_;
  *this = ExecutionMetrics();
  open_ = open;
}

void ExecutionMetrics::Write(core::MetricsText& text) const {
  text.Gauge("callboard_calls_open", "Calls that have not ended, by state.");
  for (const v1::CallPhase phase : kOpenPhases) {
    text.Sample(open_[static_cast<size_t>(phase)], {{"state", PhaseLabel(phase)}});
  }
  text.Histogram("callboard_call_state_seconds",
                 "How long calls stayed in a state they have left.");
  for (const auto& [phase, stays] : stays_) text.Sample(stays, {{"state", PhaseLabel(phase)}});
  text.Histogram("callboard_call_duration_seconds",
                 "From taking a call to its end: with a result of the tool, or without.")
      .Sample(result_ages_, {{"outcome", "result"}})
      .Sample(failure_ages_, {{"outcome", "failure"}});
  text.Counter("callboard_calls_ended_total", "Calls ended, by outcome and reason.")
      .Sample(tool_errors_, {{"outcome", "tool_error"}, {"reason", "none"}});
  for (const auto& [key, count] : ended_) {
    const std::string outcome = absl::AsciiStrToLower(v1::OutcomeClass_Name(key.first));
    text.Sample(count, {{"outcome", outcome}, {"reason", ReasonLabel(key.second)}});
  }
  text.Counter("callboard_calls_refused_total",
               "Requests for calls refused before they became one, by reason.");
  for (const auto& [reason, count] : refused_) {
    text.Sample(count, {{"reason", ReasonLabel(reason)}});
  }
  text.Counter("callboard_call_retries_total", "Further attempts of idempotent calls.")
      .Sample(retries_);
  text.Counter("callboard_call_retries_exhausted_total",
               "Idempotent calls whose last attempt was lost, too.")
      .Sample(retries_exhausted_);
}

}  // namespace callboard::server
