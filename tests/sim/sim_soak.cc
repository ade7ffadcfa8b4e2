// Runs many seeds for long: sim_soak --seeds N --minutes M [--first-seed S].
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "tests/sim/seeds.h"

namespace callboard::sim {
namespace {

int Main(int argc, char** argv) {
  uint64_t seeds = 100;
  double minutes = 5;
  uint64_t first_seed = 1;
  CLI::App app("Simulates whole Callboards in virtual time and checks every promise.");
  app.add_option("--seeds", seeds, "How many worlds")->capture_default_str();
  app.add_option("--minutes", minutes, "Virtual minutes of faults in each; calm comes on top")
      ->capture_default_str();
  app.add_option("--first-seed", first_seed, "Seed of the first world")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  Totals totals;
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    const WorldReport report = RunSeed(seed, absl::Minutes(minutes));
    totals.Add(report);
    if (!report.ok) std::printf("%s\n", report.failure.c_str());
    std::fflush(stdout);
  }
  std::string line = fmt::format("{} seeds, {:.0f} virtual minutes", totals.seeds,
                                 absl::ToDoubleMinutes(totals.lasted));
  for (const auto& [what, count] : totals.counted) line.append(fmt::format(", {} {}", count, what));
  std::printf("%s, %llu violations\n", line.c_str(),
              static_cast<unsigned long long>(totals.violations));
  return totals.violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace callboard::sim

int main(int argc, char** argv) { return callboard::sim::Main(argc, argv); }
