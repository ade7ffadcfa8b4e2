// Plants known bugs and demands that the simulation finds each: sim_planted BUG, or sim_planted
// all.
#include <cstdio>
#include <string_view>
#include <utility>

#include "core/runtime/planted_bug.h"
#include "tests/sim/seeds.h"

namespace callboard::sim {
namespace {

constexpr absl::Duration kFaultsFor = absl::Seconds(60);
constexpr uint64_t kSeedsMax = 12;

constexpr std::pair<std::string_view, core::PlantedBug> kBugs[] = {
    {"lost_ack", core::PlantedBug::kLostAck},
    {"double_terminal", core::PlantedBug::kDoubleTerminal},
    {"skipped_event", core::PlantedBug::kSkippedEvent},
    {"wrong_session", core::PlantedBug::kWrongSession},
    {"rerun_after_cut", core::PlantedBug::kRerunAfterCut},
    {"answer_twice", core::PlantedBug::kAnswerTwice},
    {"answer_of_others", core::PlantedBug::kAnswerOfOthers},
    {"shown_before_durable", core::PlantedBug::kShownBeforeDurable},
    {"settled_before_durable", core::PlantedBug::kSettledBeforeDurable},
    {"term_not_raised", core::PlantedBug::kTermNotRaised},
    {"replay_from_wrong_term", core::PlantedBug::kReplayFromWrongTerm},
    {"receipt_lost", core::PlantedBug::kReceiptLost},
};

// The first seed that shows a violation; 0 if none does.
uint64_t FindWith(core::PlantedBug bug) {
  core::g_planted_bug = bug;
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    const WorldReport report = RunSeed(seed, kFaultsFor);
    if (report.ok) continue;
    std::printf("  %s\n", report.violation.c_str());
    return seed;
  }
  return 0;
}

int Main(std::string_view wanted) {
  int missed = 0;
  bool known = wanted == "all" || wanted == "none";
  for (const auto& [name, bug] : kBugs) {
    if (wanted != "all" && wanted != name) continue;
    known = true;
    const uint64_t seed = FindWith(bug);
    std::printf("%s %s\n", std::string(name).c_str(), seed == 0 ? "was NOT found" : "was found");
    if (seed == 0) ++missed;
  }
  if (wanted == "all" || wanted == "none") {
    const uint64_t seed = FindWith(core::PlantedBug::kNone);
    std::printf("without a planted bug %s\n",
                seed == 0 ? "nothing is found" : "something IS found");
    if (seed != 0) ++missed;
  }
  if (!known) std::printf("unknown bug; known: all, none and those of kBugs\n");
  return missed == 0 && known ? 0 : 1;
}

}  // namespace
}  // namespace callboard::sim

int main(int argc, char** argv) { return callboard::sim::Main(argc > 1 ? argv[1] : "all"); }
