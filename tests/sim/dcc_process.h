// One process of a simulated DCC: its tools, its main thread and the calls it is working on.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/mcp/jsonrpc.h"
#include "tests/sim/sim_dcc.h"

namespace callboard::sim {

// Owned by its place; destroying it is the end of the process: what runs is over, nobody is told.
// Answers go to the backend they were asked by, if it is still there.
class SimDcc {
 public:
  SimDcc(DccPlace& place, int64_t pid);
  ~SimDcc();

  int64_t pid() const { return pid_; }
  // One JSON-RPC message of exchange `id` of the backend `serial`.
  void Receive(uint64_t serial, uint64_t id, std::string_view text);
  // That exchange of that backend is no more; what it asked for goes on.
  void Detach(uint64_t serial, uint64_t exchange);
  void Freeze(absl::Duration duration);

 private:
  struct Run {
    uint64_t serial = 0;
    uint64_t exchange = 0;
    std::string raw_id;
    std::string tool;
    std::string nonce;
    std::string tag;
    std::string progress_token;  // raw
    absl::Duration duration;
    int steps = 0;
    int step = 0;
    int64_t bytes = 0;
    bool begun = false;
    bool main_thread = true;
    core::Timer timer;
  };

  void Reply(uint64_t serial, uint64_t exchange, std::string text, bool last);
  void Notify(std::string_view method);
  std::string ToolsPage(std::string_view params) const;
  void Call(uint64_t serial, uint64_t exchange, const core::JsonRpcMessage& message);
  void Cancel(uint64_t serial, std::string_view params);
  // Begins what the main thread is free for.
  void Turn();
  void Begin(uint64_t number);
  void Step(uint64_t number);
  void Finish(uint64_t number);
  void Progress(const Run& run, int step);
  std::string ResultText(const Run& run) const;
  void Forget(uint64_t number);

  DccPlace& place_;
  const int64_t pid_;
  std::vector<std::string> tools_;  // raw definitions
  std::set<std::string> loaded_;
  std::map<uint64_t, Run> runs_;
  std::deque<uint64_t> waiting_;  // for the main thread
  uint64_t on_main_thread_ = 0;
  uint64_t last_run_ = 0;
  absl::Time frozen_until_ = absl::InfinitePast();
  core::Timer turn_timer_;
};

}  // namespace callboard::sim
