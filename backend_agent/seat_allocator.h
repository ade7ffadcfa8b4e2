// Gives each process of a DCC its seat: a slot that the next process of the same app takes over.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace callboard::agent {

// A plain table. The slot is the configured name, else the lowest number of the app that is free;
// so a restarted DCC comes back to the seat it had. Loop thread only.
class SeatAllocator {
 public:
  struct Place {
    std::string seat_id;  // 32 hex digits
    std::string name;     // "blender", "blender-2", or the configured name
    std::string app;
    std::string slot;
  };

  explicit SeatAllocator(std::string agent_id) : agent_id_(std::move(agent_id)) {}

  // `process` names the process for as long as it lives (an instance id, a configuration key): the
  // same one has the same place until Release. `configured` is a slot of its own, if not empty and
  // not taken by another process. `former_seat_id` is where this very process sat before the agent
  // was restarted (IncarnationCounter::FindSeat); it is taken again if it is free.
  Place Assign(const std::string& app, const std::string& process,
               const std::string& configured = "", const std::string& former_seat_id = "");
  // The process has gone: its slot is free.
  void Release(const std::string& process);

  size_t size() const { return places_.size(); }

  static std::string SeatId(const std::string& agent_id, const std::string& app,
                            const std::string& slot);

 private:
  bool IsFree(const std::string& app, const std::string& slot) const;
  Place Take(const std::string& app, const std::string& process, std::string slot,
             std::string name);

  std::string agent_id_;
  std::map<std::string, Place> places_;                               // by process
  std::map<std::pair<std::string, std::string>, std::string> taken_;  // (app, slot) -> process
};

}  // namespace callboard::agent
