// A child process with pipes: spawned, watched and reaped on the loop, never outliving the agent.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend_agent/process_watch.h"
#include "core/runtime/asio_event_loop.h"

namespace callboard::agent {

struct StdioCommand {
  std::vector<std::string> arguments;  // [0] is looked for in PATH
  std::string working_directory;       // empty: the agent's
  // Added to the environment of the agent, which is passed through.
  std::vector<std::pair<std::string, std::string>> environment;
};

// In a process group of its own, killed with the agent: the leader by a parent-death signal, the
// rest by a warden, a shell beside the group that waits for the agent's end. Loop thread only.
// Destroying it kills the whole group at once. Callbacks come from the loop, never inline; none
// comes after the destruction, and they may destroy the child.
class StdioChild {
 public:
  // Bytes waiting for the child's stdin are bounded by this.
  static constexpr size_t kUnwrittenMax = 16 * 1024 * 1024;

  struct Callbacks {
    absl::AnyInvocable<void(std::string_view)> on_output;  // of stdout
    absl::AnyInvocable<void(std::string_view)> on_error;   // of stderr
    // The leader has ended and its output is read to the end; its group has been killed.
    absl::AnyInvocable<void(ProcessEnd)> on_end;
  };

  // Internal: no pipe or no process could be made; the message names the program and the cause. A
  // program that is not there shows as exit status 127 and a line on stderr.
  static absl::StatusOr<std::unique_ptr<StdioChild>> Spawn(core::AsioEventLoop& loop,
                                                           const StdioCommand& command,
                                                           Callbacks callbacks);
  ~StdioChild();

  // Queues bytes; `written` runs when the pipe has taken them. ResourceExhausted beyond
  // kUnwrittenMax: nothing is queued.
  absl::Status Write(std::string bytes, absl::AnyInvocable<void()> written);
  // Asks the group to end (closes stdin, SIGTERM); on_end follows if it does.
  void Terminate();
  // SIGKILL to the group.
  void Kill();

  int64_t pid() const;

 private:
  struct State;
  explicit StdioChild(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace callboard::agent
