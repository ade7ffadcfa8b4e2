// The truth about every tool call of a world and about what changed in its DCCs, apart from what
// anybody was told.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
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

  // What is level-triggered in the DCC of that name (a resource's URI, the method of a list) has
  // changed, and it has told so.
  void Changed(const std::string& dcc, const std::string& what, absl::Time when) {
    changes_[{dcc, what}] = when;
  }
  // InfinitePast if it never has.
  absl::Time ChangedAt(const std::string& dcc, const std::string& what) const {
    const auto at = changes_.find({dcc, what});
    return at == changes_.end() ? absl::InfinitePast() : at->second;
  }

 private:
  Trace& trace_;
  std::map<std::string, Call> calls_;
  std::map<std::pair<std::string, std::string>, absl::Time> changes_;
};

}  // namespace callboard::sim
