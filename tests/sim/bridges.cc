// SimWorld: bridges that are processes of their own, and what goes wrong with them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/checked_client.h"
#include "tests/sim/sim_world.h"

namespace callboard::sim {

bool SimWorld::AllBridgesServe() const {
  return std::all_of(bridges_.begin(), bridges_.end(),
                     [](const auto& bridge) { return bridge != nullptr; });
}

void SimWorld::StartBridge(size_t number) {
  const std::string name = fmt::format("bridge{}", number);
  trace_.Add(fmt::format("{} starts", name));
  Disturb("");
  bridges_[number] = std::make_unique<BridgeProcess>(
      loop_, random_, settings_,
      MakeCheckedClient(loop_, trace_, witness_, bridge_network_.MakeClient(name)),
      *http_networks_[number]);
}

void SimWorld::BridgeFault() {
  const size_t number = random_.Below(bridges_.size());
  if (bridges_[number] == nullptr) return;
  const std::string name = fmt::format("bridge{}", number);
  Disturb("");
  if (random_.Below(2) == 0) {
    trace_.Add(fmt::format("fault: the connection of {} to the control plane breaks", name));
    return bridge_network_.Break(name);
  }
  trace_.Add(fmt::format("fault: {} is killed", name));
  bridges_[number].reset();
  HealLater(Span(0.1, 4), [this, number] { StartBridge(number); });
}

}  // namespace callboard::sim
