// Implementation of SeatRoster.
#include "apps/seat_roster.h"

#include <fmt/format.h>

#include <utility>

#include "backend_agent/backends/http_backend.h"
#include "backend_agent/backends/sse_backend.h"
#include "backend_agent/backends/stdio_backend.h"
#include "backend_agent/backends/url_backend.h"
#include "backend_agent/discovery/process_table.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "net/tcp.h"

namespace callboard::apps {
namespace {

// What a selector may ask for without anybody having configured it (L8).
std::map<std::string, std::string> OwnLabels(const agent::SeatDescription& description) {
  std::map<std::string, std::string> labels = {{"app", description.app}};
  if (!description.version.empty()) labels["version"] = description.version;
  if (!description.scene.empty()) labels["scene"] = description.scene;
  return labels;
}

agent::SeatDescription Describe(const agent::SeatAllocator::Place& place,
                                const agent::RegistryRow& row) {
  agent::SeatDescription description;
  description.seat_id = place.seat_id;
  description.name = place.name;
  description.app = place.app;
  description.version = row.version;
  description.scene = row.scene;
  description.instance_id = row.instance_id;
  description.local_mcp_url = row.mcp_url;
  description.discovery_row = row.raw;
  description.labels = OwnLabels(description);
  return description;
}

// The process whose end is the end of the DCC.
int64_t DccPid(const agent::RegistryRow& row) { return row.host_pid != 0 ? row.host_pid : row.pid; }

}  // namespace

SeatRoster::SeatRoster(core::AsioEventLoop& loop, core::Random& random, agent::Spool& spool,
                       agent::Agent& agent, agent::IncarnationCounter& incarnations,
                       Options options)
    : loop_(loop),
      random_(random),
      spool_(spool),
      agent_(agent),
      incarnations_(incarnations),
      options_(std::move(options)),
      allocator_(options_.agent_id),
      watcher_(loop) {}

std::unique_ptr<agent::Backend> SeatRoster::MakeHttpBackend(const std::string& name,
                                                            const agent::HttpUrl& url,
                                                            const std::string& host, int64_t pid) {
  agent::HttpBackendConfig config;
  config.url = url;
  config.pid = pid;
  config.name = name;
  config.result_bytes_max = options_.result_bytes_max;
  auto backend = std::make_unique<agent::HttpBackend>(loop_, random_, spool_,
                                                      net::MakeTcpConnector(loop_, host, url.port),
                                                      &watcher_, std::move(config));
  backend->SetAnother([this, name, url, host] { return MakeHttpBackend(name, url, host, 0); });
  return backend;
}

std::unique_ptr<agent::Backend> SeatRoster::MakeSseBackend(const std::string& name,
                                                           const agent::HttpUrl& url,
                                                           const std::string& host, int64_t pid) {
  agent::SseBackendConfig config;
  config.url = url;
  config.pid = pid;
  config.name = name;
  config.result_bytes_max = options_.result_bytes_max;
  return std::make_unique<agent::SseBackend>(loop_, random_, spool_,
                                             net::MakeTcpConnector(loop_, host, url.port),
                                             &watcher_, std::move(config));
}

std::unique_ptr<agent::Backend> SeatRoster::MakeUrlBackend(const std::string& name,
                                                           const agent::HttpUrl& url,
                                                           const std::string& host, int64_t pid) {
  if (options_.transport == Transport::kHttp) return MakeHttpBackend(name, url, host, pid);
  if (options_.transport == Transport::kSse) return MakeSseBackend(name, url, host, pid);
  return std::make_unique<agent::UrlBackend>(
      loop_, [this, name, url, host, pid] { return MakeHttpBackend(name, url, host, pid); },
      [this, name, url, host, pid] { return MakeSseBackend(name, url, host, pid); });
}

agent::McpSeat* SeatRoster::AddSeat(std::unique_ptr<agent::Backend> backend,
                                    agent::SeatDescription description) {
  const std::string seat_id = description.seat_id;
  auto seat = std::make_unique<agent::McpSeat>(
      loop_, random_, spool_, agent_.call_observer(), agent_.seat_observer(), std::move(backend),
      std::move(description),
      [this, seat_id](int64_t pid) {
        return incarnations_.Next(seat_id, agent::IdentifyProcess(pid),
                                  agent_.known_incarnation(seat_id));
      },
      options_.seat_limits);
  auto* raw = seat.get();
  agent_.AddSeat(std::move(seat));
  return raw;
}

std::unique_ptr<agent::Backend> SeatRoster::MakeStdioBackend(const std::string& name,
                                                             std::vector<std::string> arguments) {
  agent::StdioBackendConfig config;
  config.command.arguments = std::move(arguments);
  config.name = name;
  config.result_bytes_max = options_.result_bytes_max;
  return std::make_unique<agent::StdioBackend>(
      loop_, random_, spool_, std::move(config), [name](std::string_view line) {
        core::LogInfo("backend_output", {{"seat", name}, {"line", line}});
      });
}

agent::SeatDescription SeatRoster::DescribeConfigured(const std::string& name,
                                                      const std::string& url) {
  agent::SeatDescription description;
  description.seat_id = allocator_.Assign(name, "configured:" + name, name).seat_id;
  description.name = name;
  description.app = name;
  description.local_mcp_url = url;
  description.labels = OwnLabels(description);
  return description;
}

absl::Status SeatRoster::AddUrl(const std::string& name, const std::string& url) {
  auto parsed = agent::ParseHttpUrl(url);
  if (!parsed.ok()) return parsed.status();
  configured_[name] =
      AddSeat(MakeUrlBackend(name, *parsed, parsed->host, 0), DescribeConfigured(name, url));
  core::LogInfo("seat_configured", {{"seat", name}, {"url", url}});
  return absl::OkStatus();
}

void SeatRoster::AddCommand(const std::string& name, std::vector<std::string> arguments) {
  core::LogInfo("seat_configured", {{"seat", name}, {"command", arguments.front()}});
  configured_[name] =
      AddSeat(MakeStdioBackend(name, std::move(arguments)), DescribeConfigured(name, ""));
}

void SeatRoster::Replace(const std::string& name, const std::string& url,
                         std::vector<std::string> arguments) {
  agent::McpSeat* const seat = configured_.at(name);
  core::LogInfo("seat_replaced", {{"seat", name}, {"url", url}});
  seat->Stop([this, seat, name, url, arguments = std::move(arguments)]() mutable {
    // Later: it is the former backend that has called.
    loop_.Post([this, seat, name, url, arguments = std::move(arguments)]() mutable {
      std::unique_ptr<agent::Backend> backend;
      if (url.empty()) {
        backend = MakeStdioBackend(name, std::move(arguments));
      } else if (auto parsed = agent::ParseHttpUrl(url); parsed.ok()) {
        backend = MakeUrlBackend(name, *parsed, parsed->host, 0);
      }
      seat->ReplaceBackend(std::move(backend), DescribeConfigured(name, url));
    });
  });
}

void SeatRoster::FollowRegistry(const std::string& folder) {
  registry_ = std::make_unique<agent::FileRegistry>(
      loop_, agent::FileRegistryConfig{.folder = folder},
      agent::FileRegistry::Callbacks{
          .on_row = [this](const agent::RegistryRow& row) { OnRow(row); },
          .on_row_gone = [this](const agent::RegistryRow& row) { OnRowGone(row); },
          .log = [](std::string_view line) { core::LogWarn("registry", {{"reason", line}}); },
      });
  registry_->Start();
  core::LogInfo("registry_followed", {{"folder", folder}});
}

// A restarted DCC may write its new row before the old one is seen to be dead; its seat must be
// free by then, or the new process would get another.
void SeatRoster::ReleaseDeadProcesses() {
  for (auto& [seat_id, found] : found_) {
    if (!found.occupied) continue;
    const int64_t pid = DccPid(found.row);
    if (pid == 0) continue;
    const auto process = agent::ReadProcess(pid);
    if (!process.has_value() || !process->alive) Vacate(found, "its process has ended");
  }
}

void SeatRoster::OnRow(const agent::RegistryRow& row) {
  ReleaseDeadProcesses();
  const auto process = agent::IdentifyProcess(DccPid(row));
  const auto place =
      allocator_.Assign(row.dcc_type, row.instance_id, "", incarnations_.FindSeat(process));
  auto description = Describe(place, row);
  Found& found = found_[place.seat_id];
  const bool same_process = found.occupied && found.row.instance_id == row.instance_id &&
                            found.row.mcp_url == row.mcp_url && found.row.pid == row.pid;
  found.place = place;
  found.row = row;
  if (same_process) return found.seat->UpdateDescription(std::move(description));

  auto url = agent::ParseHttpUrl(row.mcp_url);
  if (!url.ok()) {
    core::LogWarn("row_unusable",
                  {{"instance", row.instance_id}, {"reason", core::Message(url.status())}});
    return;
  }
  auto backend = MakeUrlBackend(place.name, *url, row.connect_host, DccPid(row));
  found.occupied = true;
  found.removal.Cancel();
  if (found.seat == nullptr) {
    found.seat = AddSeat(std::move(backend), std::move(description));
  } else {
    found.seat->ReplaceBackend(std::move(backend), std::move(description));
  }
  core::LogInfo("seat_found", {{"seat", place.name},
                               {"instance", row.instance_id},
                               {"url", row.mcp_url},
                               {"pid", row.pid}});
}

void SeatRoster::OnRowGone(const agent::RegistryRow& row) {
  for (auto& [seat_id, found] : found_) {
    if (found.occupied && found.row.instance_id == row.instance_id) {
      return Vacate(found, "its registry row has gone");
    }
  }
}

void SeatRoster::Vacate(Found& found, const std::string& why) {
  found.occupied = false;
  allocator_.Release(found.row.instance_id);
  core::LogInfo("seat_vacated", {{"seat", found.place.name}, {"reason", why}});
  if (found.seat == nullptr) return;
  found.seat->ReplaceBackend(nullptr, Describe(found.place, found.row));
  const std::string seat_id = found.place.seat_id;
  found.removal = loop_.After(options_.empty_seat_life, [this, seat_id] {
    agent_.RemoveSeat(seat_id, "no process has taken this seat for a long time");
    found_.erase(seat_id);
  });
}

void SeatRoster::Stop(absl::AnyInvocable<void()> done) {
  registry_ = nullptr;
  auto left = std::make_shared<size_t>(configured_.size() + 1);
  auto finish = std::make_shared<absl::AnyInvocable<void()>>(std::move(done));
  const auto one_done = [left, finish] {
    if (--*left == 0) (*finish)();
  };
  // DCCs of the registry are other people's processes and stay; ours end with us.
  for (auto& [name, seat] : configured_) seat->Stop(one_done);
  one_done();
}

}  // namespace callboard::apps
