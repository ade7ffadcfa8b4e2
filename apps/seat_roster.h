// Which seats this agent has: one per configured server and one per process found in the registry.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backend_agent/agent.h"
#include "backend_agent/backends/http_url.h"
#include "backend_agent/discovery/file_registry.h"
#include "backend_agent/discovery/linux_process_watcher.h"
#include "backend_agent/incarnation_counter.h"
#include "backend_agent/mcp_seat.h"
#include "backend_agent/seat_allocator.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/random.h"

namespace callboard::apps {

// Makes backends and seats and gives them to the agent. Loop thread only; everything passed by
// reference outlives it. A seat whose process has gone stays, without a backend, so that the next
// process of the same application takes it over; after `empty_seat_life` it is removed.
class SeatRoster {
 public:
  // How URLs are spoken to, configured or found; auto: Streamable HTTP first, else HTTP+SSE.
  enum class Transport { kAuto, kHttp, kSse };

  struct Options {
    std::string agent_id;
    Transport transport = Transport::kAuto;
    agent::SeatLimits seat_limits;
    uint64_t result_bytes_max = 256ull << 20;
    absl::Duration empty_seat_life = absl::Hours(1);
  };

  SeatRoster(core::AsioEventLoop& loop, core::Random& random, agent::Spool& spool,
             agent::Agent& agent, agent::IncarnationCounter& incarnations, Options options);

  // A server that is always there: an HTTP endpoint, or a child process of ours.
  absl::Status AddUrl(const std::string& name, const std::string& url);
  void AddCommand(const std::string& name, std::vector<std::string> arguments);
  // That server is another from now on: the former one ends in order, then the new one begins.
  // `url` is well formed, or empty for a command.
  void Replace(const std::string& name, const std::string& url, std::vector<std::string> arguments);

  // Follows the rows of a registry folder from now on.
  void FollowRegistry(const std::string& folder);

  // Ends every backend in order; `done` runs after the last.
  void Stop(absl::AnyInvocable<void()> done);

 private:
  // A seat found in the registry. `row` is that of its present or last process.
  struct Found {
    agent::McpSeat* seat = nullptr;
    agent::RegistryRow row;
    agent::SeatAllocator::Place place;
    bool occupied = false;
    core::Timer removal;
  };

  void OnRow(const agent::RegistryRow& row);
  void OnRowGone(const agent::RegistryRow& row);
  void ReleaseDeadProcesses();
  void Vacate(Found& found, const std::string& why);
  // `host`: where to connect, the URL's own or another name of this machine.
  std::unique_ptr<agent::Backend> MakeHttpBackend(const std::string& name,
                                                  const agent::HttpUrl& url,
                                                  const std::string& host, int64_t pid);
  std::unique_ptr<agent::Backend> MakeSseBackend(const std::string& name, const agent::HttpUrl& url,
                                                 const std::string& host, int64_t pid);
  std::unique_ptr<agent::Backend> MakeUrlBackend(const std::string& name, const agent::HttpUrl& url,
                                                 const std::string& host, int64_t pid);
  std::unique_ptr<agent::Backend> MakeStdioBackend(const std::string& name,
                                                   std::vector<std::string> arguments);
  agent::SeatDescription DescribeConfigured(const std::string& name, const std::string& url);
  agent::McpSeat* AddSeat(std::unique_ptr<agent::Backend> backend,
                          agent::SeatDescription description);

  core::AsioEventLoop& loop_;
  core::Random& random_;
  agent::Spool& spool_;
  agent::Agent& agent_;
  agent::IncarnationCounter& incarnations_;
  Options options_;
  agent::SeatAllocator allocator_;
  agent::LinuxProcessWatcher watcher_;
  std::map<std::string, agent::McpSeat*> configured_;  // by name
  std::map<std::string, Found> found_;                 // by seat_id
  std::unique_ptr<agent::FileRegistry> registry_;
};

}  // namespace callboard::apps
