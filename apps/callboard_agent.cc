// callboard-agent: stands beside the DCCs of one machine and dials out to the control plane.
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "apps/admin_port.h"
#include "apps/agent_settings.h"
#include "apps/program.h"
#include "apps/program_options.h"
#include "apps/seat_roster.h"
#include "apps/settings_source.h"
#include "backend_agent/agent.h"
#include "backend_agent/discovery/file_incarnation_store.h"
#include "backend_agent/grpc_link/grpc_dialer.h"
#include "backend_agent/incarnation_counter.h"
#include "backend_agent/storage/posix_journal_file.h"
#include "backend_agent/storage/posix_spool.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/random.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::apps {
namespace {

struct Options : ProgramOptions {
  std::string control_plane = "127.0.0.1:9766";
  std::string registry_dir;
  std::string name;
  std::string url;
  std::vector<std::string> command;
  bool backend_configured = false;  // by settings, not on the command line
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "callboard-agent: %s\n", std::string(status.message()).c_str());
  return 2;
}

v1::Software DescribeSoftware() {
  v1::Software software;
  software.set_name("callboard-agent");
  software.set_version(CALLBOARD_VERSION);
  utsname system{};
  if (uname(&system) == 0) {
    software.set_host(system.nodename);
    software.set_os(std::string(system.sysname) + " " + system.release);
  }
  if (const char* user = std::getenv("USER"); user != nullptr) software.set_user(user);
  software.set_pid(getpid());
  return software;
}

// Says once on stdout that the control plane has welcomed us.
class ReadyLine {
 public:
  ReadyLine(core::EventLoop& loop, const agent::Agent& agent) : loop_(loop), agent_(agent) {
    Check();
  }

 private:
  void Check() {
    if (agent_.gauges().linked) {
      std::printf("callboard-agent ready\n");
      std::fflush(stdout);
      return;
    }
    timer_ = loop_.After(absl::Milliseconds(20), [this] { Check(); });
  }

  core::EventLoop& loop_;
  const agent::Agent& agent_;
  core::Timer timer_;
};

// The orderly end: what runs gets `grace` to finish, then the backends end, then the links.
class Ending {
 public:
  Ending(core::AsioEventLoop& loop, agent::Agent& agent, SeatRoster& roster, absl::Duration grace)
      : loop_(loop), agent_(agent), roster_(roster), grace_(grace) {}

  void Begin() {
    agent_.Drain();
    core::LogInfo("stopping",
                  {{"grace", absl::FormatDuration(grace_)}, {"calls", agent_.gauges().running}});
    over_ = loop_.Now() + grace_;
    Check();
  }

 private:
  void Check() {
    constexpr absl::Duration kToWrite = absl::Seconds(2);
    if (agent_.gauges().running == 0) {
      // The links first: the control planes find seats that are away, not dead, and keep what
      // waits.
      return agent_.Stop(kToWrite, [this] { roster_.Stop([this] { loop_.Stop(); }); });
    }
    if (loop_.Now() >= over_) {
      // The links last: whatever ends on the way is told.
      return roster_.Stop([this] { agent_.Stop(kToWrite, [this] { loop_.Stop(); }); });
    }
    timer_ = loop_.After(absl::Milliseconds(20), [this] { Check(); });
  }

  core::AsioEventLoop& loop_;
  agent::Agent& agent_;
  SeatRoster& roster_;
  const absl::Duration grace_;
  absl::Time over_;
  core::Timer timer_;
};

// The server that the settings name, unless the command line has named one.
void TakeBackend(const AgentSettings& settings, Options* options) {
  options->name = settings.backend_name;
  options->url = settings.backend_url;
  options->command.clear();
  if (!settings.backend_command.empty()) {
    options->command = {"/bin/sh", "-c", settings.backend_command};
  }
}

class Reload {
 public:
  Reload(Options options, SeatRoster& roster, EffectiveSettings effective)
      : options_(std::move(options)), roster_(roster), effective_(std::move(effective)) {}

  void Run() {
    const auto settings =
        ReloadSettings<AgentSettings>(options_, ReadAgentSettings, IsHotAgentSetting, &effective_);
    if (!settings || !options_.backend_configured || settings->backend_name != options_.name) {
      return;
    }
    Options changed = options_;
    TakeBackend(*settings, &changed);
    if (changed.url == options_.url && changed.command == options_.command) return;
    options_ = std::move(changed);
    roster_.Replace(options_.name, options_.url, options_.command);
  }

 private:
  Options options_;
  SeatRoster& roster_;
  EffectiveSettings effective_;
};

int Serve(const Options& options, AgentSettings settings, EffectiveSettings effective) {
  core::AsioEventLoop loop;
  core::SecureRandom random;
  auto agent_id = StableId(options.state_dir + "/agent_id", random);
  if (!agent_id.ok()) return Fail(agent_id.status());
  settings.config.agent_id = *agent_id;
  settings.config.software = DescribeSoftware();
  // Labels that everybody expects; a configured one of the same name wins.
  settings.config.labels.emplace("host", settings.config.software.host());
  if (!settings.config.software.user().empty()) {
    settings.config.labels.emplace("user", settings.config.software.user());
  }

  auto journal = agent::PosixJournalFile::Open(options.state_dir + "/journal");
  if (!journal.ok()) return Fail(journal.status());
  auto spool = agent::PosixSpool::Open(options.state_dir + "/spool", settings.spool_bytes_max);
  if (!spool.ok()) return Fail(spool.status());
  agent::FileIncarnationStore incarnation_store(options.state_dir + "/incarnations.json");
  agent::IncarnationCounter incarnations(incarnation_store);
  if (!incarnations.last_error().ok()) {
    core::LogWarn("incarnations_lost", {{"reason", incarnations.last_error().ToString()}});
  }
  auto dialer = agent::MakeGrpcDialer(
      loop, {.keepalive_interval = settings.keepalive, .keepalive_timeout = settings.keepalive});

  agent::Agent agent(loop, random, *dialer, **journal, **spool, settings.config);
  if (auto status = agent.Recover(); !status.ok()) {
    core::LogWarn("journal_begun_anew", {{"reason", status.ToString()}});
  }
  SeatRoster roster(loop, random, **spool, agent, incarnations,
                    {.agent_id = *agent_id,
                     .transport = settings.transport,
                     .seat_limits = settings.seat,
                     .result_bytes_max = settings.config.limits.result_bytes_max,
                     .empty_seat_life = settings.empty_seat_life});
  if (!options.url.empty()) {
    if (auto status = roster.AddUrl(options.name, options.url); !status.ok()) return Fail(status);
  } else if (!options.command.empty()) {
    roster.AddCommand(options.name, options.command);
  }
  if (!options.registry_dir.empty()) {
    roster.FollowRegistry(options.registry_dir);
  } else if (options.name.empty()) {
    roster.FollowRegistry(agent::DefaultRegistryFolder());
  }
  auto admin = AdminPort::Open(loop, settings.admin,
                               [&agent](core::MetricsText& text) { agent.WriteMetrics(text); });
  if (!admin.ok()) return Fail(admin.status());
  if (*admin != nullptr) {
    const auto status = WritePorts(options.state_dir, {{"admin", (*admin)->port()}});
    if (!status.ok()) return Fail(status);
  }
  agent.Start();
  core::LogInfo("started", {{"agent", *agent_id},
                            {"control_planes", options.control_plane},
                            {"admin", AdminAddress(*admin)}});

  ReadyLine ready(loop, agent);
  Reload reload(options, roster, std::move(effective));
  auto hangups = OnHangup(loop, [&reload] { reload.Run(); });
  Ending ending(loop, agent, roster, settings.drain);
  auto signals = OnTermination(loop, [&ending] { ending.Begin(); });
  auto watchdog = WatchLoop(loop, settings.watchdog);
  if (*admin != nullptr) (*admin)->Serve(*watchdog);
  loop.Run();
  watchdog = nullptr;
  core::LogInfo("stopped");
  return 0;
}

int Main(int argc, char** argv) {
  PrepareProcess();
  Options options;
  CLI::App app("Callboard's agent: serves the DCCs of this machine to a control plane.");
  AddProgramOptions(app, "labels.show=alpha", &options);
  app.add_option("--control-plane", options.control_plane,
                 "HOST:PORT of callboardd's gRPC port; several with commas between")
      ->capture_default_str();
  app.add_option(
      "--registry-dir", options.registry_dir,
      "dcc-mcp registry folder to follow (default: dcc-mcp's own, unless --name is given)");
  auto* name = app.add_option("--name", options.name, "Name of one server to serve");
  app.add_option("--url", options.url, "Its MCP endpoint, http://127.0.0.1:PORT/mcp")->needs(name);
  app.add_option("command", options.command, "Or its command, after --");
  CLI11_PARSE(app, argc, argv);

  auto addresses = ParseAddresses("--control-plane", options.control_plane);
  if (!addresses.ok()) return Fail(addresses.status());
  if (!options.name.empty() && options.url.empty() == options.command.empty()) {
    return Fail(absl::InvalidArgumentError("--name " + options.name +
                                           ": give either --url URL or -- COMMAND"));
  }
  if (options.name.empty() && !options.command.empty()) {
    return Fail(absl::InvalidArgumentError("a command needs --name NAME before the --"));
  }
  if (options.state_dir.empty()) options.state_dir = DefaultStateFolder("agent");
  EffectiveSettings effective;
  auto settings = LoadSettings(options, ReadAgentSettings, &effective);
  if (!settings.ok()) return Fail(settings.status());
  settings->config.control_planes = *std::move(addresses);
  if (options.name.empty() && !settings->backend_name.empty()) {
    options.backend_configured = true;
    TakeBackend(*settings, &options);
  }
  if (auto status = EnsureFolder(options.state_dir); !status.ok()) return Fail(status);
  return RunLogged(*settings, [&] { return Serve(options, *settings, std::move(effective)); });
}

}  // namespace
}  // namespace callboard::apps

int main(int argc, char** argv) { return callboard::apps::Main(argc, argv); }
