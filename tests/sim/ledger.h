// The truth about every tool call of a world, as the simulated DCCs saw it, apart from what anybody
// was told.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/sim/trace.h"

namespace callboard::sim {

// Calls are known by a tag that their client put into the arguments, unique in the world.
class Ledger {
 public:
  struct Call {
    bool may_repeat = false;  // read-only or idempotent tool
    int runs = 0;
    int running = 0;
    bool cancel_reached = false;
    bool detached = false;  // nobody is left whose call it is: its agent or its connection is gone
  };

  explicit Ledger(Trace& trace) : trace_(trace) {}

  // A client sends it. `may_repeat` is what the tool's annotations say.
  void Sent(const std::string& tag, bool may_repeat) { calls_[tag].may_repeat = may_repeat; }
  // The tool begins its work in a DCC.
  void Begins(const std::string& tag) {
    Call& call = calls_[tag];
    ++call.running;
    if (++call.runs > 1 && !call.may_repeat) {
      trace_.Violate("a tool that is not idempotent runs at most once per call",
                     tag + " ran " + std::to_string(call.runs) + " times");
    }
  }
  // Its work is over, whether answered or not.
  void Ends(const std::string& tag) { --calls_[tag].running; }
  void Detached(const std::string& tag) { calls_[tag].detached = true; }
  void CancelReached(const std::string& tag) { calls_[tag].cancel_reached = true; }

  const Call& Of(const std::string& tag) { return calls_[tag]; }

 private:
  Trace& trace_;
  std::map<std::string, Call> calls_;
};

}  // namespace callboard::sim
