// Plants known bugs and demands that the simulation finds each: sim_planted BUG, or sim_planted
// all.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/planted_bug.h"
#include "tests/sim/seeds.h"

namespace callboard::sim {
namespace {

constexpr absl::Duration kFaultsFor = absl::Seconds(60);
constexpr uint64_t kSeedsMax = 30;
constexpr uint64_t kSoundSeeds = 12;

struct Bug {
  std::string_view name;
  core::PlantedBug bug;
  // The promises that it breaks, as the simulation calls them. Any other violation is no proof that
  // this bug is seen.
  std::vector<std::string_view> breaks;
};

const std::vector<Bug>& Bugs() {
  static const std::vector<Bug> bugs = {
      {"lost_ack", core::PlantedBug::kLostAck, {"every request ends within its budget"}},
      {"double_terminal",
       core::PlantedBug::kDoubleTerminal,
       {"every call has exactly one outcome, always last"}},
      {"skipped_event",
       core::PlantedBug::kSkippedEvent,
       {"no event is missing without a gap being told"}},
      {"wrong_session",
       core::PlantedBug::kWrongSession,
       {"an ask comes on the stream of its call", "nothing reaches another session",
        "nothing reaches another session or call",
        "a resource's news reach only who has subscribed",
        "what concerns a seat is told on the streams of its sessions",
        "what has changed is told at last"}},
      {"rerun_after_cut",
       core::PlantedBug::kRerunAfterCut,
       {"a tool that is not idempotent runs at most once per call"}},
      {"answer_twice", core::PlantedBug::kAnswerTwice, {"an answer is never delivered twice"}},
      {"answer_of_others",
       core::PlantedBug::kAnswerOfOthers,
       {"an ask is answered by the client it was for"}},
      {"shown_before_durable",
       core::PlantedBug::kShownBeforeDurable,
       {"nothing is shown that is not in the store"}},
      {"settled_before_durable",
       core::PlantedBug::kSettledBeforeDurable,
       {"nothing is settled that is not in the store"}},
      {"term_not_raised",
       core::PlantedBug::kTermNotRaised,
       {"a stream's ids are its own and grow", "no event comes twice or out of order"}},
      {"replay_from_wrong_term",
       core::PlantedBug::kReplayFromWrongTerm,
       {"every request ends within its budget", "no event comes twice or out of order",
        "no event is missing without a gap being told"}},
      {"receipt_lost",
       core::PlantedBug::kReceiptLost,
       {"nothing is settled that is not in the store"}},
      {"settled_before_body",
       core::PlantedBug::kSettledBeforeBody,
       {"nothing is settled whose large result is not kept"}},
  };
  return bugs;
}

bool Breaks(const Bug& bug, std::string_view violation) {
  return std::any_of(bug.breaks.begin(), bug.breaks.end(), [&](std::string_view promise) {
    return violation.find(fmt::format(": {}: ", promise)) != std::string_view::npos;
  });
}

// Whether a world breaks a promise that belongs to the bug.
bool IsFound(const Bug& bug) {
  core::g_planted_bug = bug.bug;
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    const WorldReport report = RunSeed(seed, kFaultsFor);
    if (report.ok) continue;
    const bool belongs = Breaks(bug, report.violation);
    std::printf("  %s%s\n", belongs ? "" : "(does not count) ", report.violation.c_str());
    if (belongs) return true;
  }
  return false;
}

bool IsSound() {
  core::g_planted_bug = core::PlantedBug::kNone;
  for (uint64_t seed = 1; seed <= kSoundSeeds; ++seed) {
    const WorldReport report = RunSeed(seed, kFaultsFor);
    if (report.ok) continue;
    std::printf("  %s\n", report.violation.c_str());
    return false;
  }
  return true;
}

int Main(std::string_view wanted) {
  int missed = 0;
  bool known = wanted == "all" || wanted == "none";
  for (const Bug& bug : Bugs()) {
    if (wanted != "all" && wanted != bug.name) continue;
    known = true;
    const bool found = IsFound(bug);
    std::printf("%s %s\n", std::string(bug.name).c_str(), found ? "was found" : "was NOT found");
    if (!found) ++missed;
  }
  if (wanted == "all" || wanted == "none") {
    const bool sound = IsSound();
    std::printf("without a planted bug %s\n", sound ? "nothing is found" : "something IS found");
    if (!sound) ++missed;
  }
  if (!known) std::printf("unknown bug; known: all, none and those of Bugs()\n");
  return missed == 0 && known ? 0 : 1;
}

}  // namespace
}  // namespace callboard::sim

int main(int argc, char** argv) { return callboard::sim::Main(argc > 1 ? argv[1] : "all"); }
