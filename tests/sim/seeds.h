// Runs worlds by seed and tells what came of them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tests/sim/sim_world.h"

namespace callboard::sim {

inline WorldReport RunSeed(uint64_t seed, absl::Duration faults_for, bool print = false) {
  SimWorld world({.seed = seed, .faults_for = faults_for, .print = print});
  return world.Run();
}

// What a soak adds up.
struct Totals {
  uint64_t seeds = 0;
  uint64_t steps = 0;
  absl::Duration lasted;
  uint64_t violations = 0;
  std::map<std::string, uint64_t, std::less<>> counted;

  void Add(const WorldReport& report) {
    ++seeds;
    steps += report.steps;
    lasted += report.lasted;
    violations += report.ok ? 0 : 1;
    for (const auto& [what, count] : report.totals) counted[what] += count;
  }
};

}  // namespace callboard::sim
