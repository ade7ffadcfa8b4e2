// Implementation of SeatAllocator.
#include "backend_agent/seat_allocator.h"

#include <utility>

#include "core/runtime/digest.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

// Slots of a former run are looked for up to this number.
constexpr int kFormerSlotsMax = 256;

}  // namespace

std::string SeatAllocator::SeatId(const std::string& agent_id, const std::string& app,
                                  const std::string& slot) {
  std::string text = agent_id;
  text.push_back('\0');
  text += app;
  text.push_back('\0');
  text += slot;
  return core::Sha256Hex(text).substr(0, 32);
}

bool SeatAllocator::IsFree(const std::string& app, const std::string& slot) const {
  return !taken_.contains({app, slot});
}

SeatAllocator::Place SeatAllocator::Take(const std::string& app, const std::string& process,
                                         std::string slot, std::string name) {
  Place place{SeatId(agent_id_, app, slot), std::move(name), app, std::move(slot)};
  taken_[{app, place.slot}] = process;
  places_[process] = place;
  return place;
}

SeatAllocator::Place SeatAllocator::Assign(const std::string& app, const std::string& process,
                                           const std::string& configured,
                                           const std::string& former_seat_id) {
  if (auto at = places_.find(process); at != places_.end()) return at->second;
  if (!configured.empty() && IsFree(app, configured)) {
    return Take(app, process, configured, configured);
  }
  const auto name_of = [&](int number) {
    return number == 1 ? app : fmt::format("{}-{}", app, number);
  };
  if (!former_seat_id.empty()) {
    for (int number = 1; number <= kFormerSlotsMax; ++number) {
      std::string slot = fmt::format("{}", number);
      if (IsFree(app, slot) && SeatId(agent_id_, app, slot) == former_seat_id) {
        return Take(app, process, std::move(slot), name_of(number));
      }
    }
  }
  int number = 1;
  while (!IsFree(app, fmt::format("{}", number))) ++number;
  return Take(app, process, fmt::format("{}", number), name_of(number));
}

void SeatAllocator::Release(const std::string& process) {
  auto at = places_.find(process);
  if (at == places_.end()) return;
  taken_.erase({at->second.app, at->second.slot});
  places_.erase(at);
}

}  // namespace callboard::agent
