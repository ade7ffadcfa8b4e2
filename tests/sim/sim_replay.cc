// Runs one seed and prints all that happens: sim_replay SEED [--minutes M].
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/sim/seeds.h"

namespace callboard::sim {
namespace {

int Main(int argc, char** argv) {
  uint64_t seed = 1;
  double minutes = 1;
  CLI::App app("Replays one simulated world.");
  app.add_option("seed", seed, "The world's seed")->required();
  app.add_option("--minutes", minutes, "Virtual minutes of faults (1 in the tests)")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const WorldReport report = RunSeed(seed, absl::Minutes(minutes), /*print=*/true);
  std::printf(
      "%s\nhash %016llx after %llu steps\n", report.ok ? "no violation" : report.violation.c_str(),
      static_cast<unsigned long long>(report.hash), static_cast<unsigned long long>(report.steps));
  return report.ok ? 0 : 1;
}

}  // namespace
}  // namespace callboard::sim

int main(int argc, char** argv) { return callboard::sim::Main(argc, argv); }
