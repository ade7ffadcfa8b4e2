// Simulated DCCs: an MCP server with quick, slow, dying, babbling tools, and the place it lives in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "backend_agent/backend.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"
#include "tests/sim/ledger.h"
#include "tests/sim/trace.h"

namespace callboard::sim {

class SimDcc;
class SimBackend;

// Whether the DCC is a child of its agent (and dies with it) or an HTTP server of its own.
enum class DccKind { kStdio, kHttp };

// Where one DCC process at a time lives. Outlives agents and DCCs. Loop thread only. Somebody
// starts a kHttp DCC again a few seconds after its end; a kStdio one is started by its agent.
class DccPlace {
 public:
  DccPlace(core::EventLoop& loop, core::Random& random, Trace& trace, Ledger& ledger,
           std::string name, DccKind kind);
  ~DccPlace();

  const std::string& name() const { return name_; }
  DccKind kind() const { return kind_; }
  // 0: nobody lives here.
  int64_t pid() const;

  // A new process, with other tools than the former.
  void Start();
  void Kill(std::string_view why);
  // Nothing that needs the main thread goes on for so long.
  void Freeze(absl::Duration duration);
  // The exchanges under way break; the process lives on.
  void BreakExchanges();
  // From now on nothing changes in it by itself.
  void StopChanging() { changes_ = false; }
  // All that somebody has subscribed to, and every list, changes once.
  void ChangeAll();
  // Asks that nobody has answered, in words; empty if there are none.
  std::string OpenAsks() const;
  // Whether the session all clients share is told of that resource.
  bool TellsShared(const std::string& uri) const;

  // Runs after each Start and Kill, later. For whoever discovers DCCs.
  void OnChange(absl::AnyInvocable<void()> callback) { on_change_ = std::move(callback); }

  // The carrier for the process that is there now (kHttp), or that it will spawn (kStdio).
  std::unique_ptr<agent::Backend> MakeBackend();

 private:
  friend class SimDcc;
  friend class SimBackend;

  void Changed();

  core::EventLoop& loop_;
  core::Random& random_;
  Trace& trace_;
  Ledger& ledger_;
  const std::string name_;
  const DccKind kind_;
  // kHttp: has MCP sessions, any number, each with a listen stream. Else it is a stateless server.
  const bool has_sessions_;
  bool changes_ = true;
  std::unique_ptr<SimDcc> dcc_;
  std::map<uint64_t, SimBackend*> backends_;  // by serial
  int64_t last_pid_ = 100;
  uint64_t last_backend_ = 0;
  uint64_t last_connection_ = 0;  // initialized by a client
  absl::AnyInvocable<void()> on_change_;
  core::Timer change_timer_;
  core::Timer restart_timer_;
  core::Lifetime lifetime_;
};

// Names of the tools that clients call, and whether they may be repeated.
bool MayRepeat(std::string_view tool);
// Whether a tool takes several steps and reports each; of a tool that may be repeated they begin
// anew with each run.
bool GoesInSteps(std::string_view tool);

}  // namespace callboard::sim
