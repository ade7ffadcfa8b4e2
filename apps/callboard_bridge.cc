// callboard-bridge: MCP over HTTP in front of a control plane that runs elsewhere.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/admin_port.h"
#include "apps/bridge_settings.h"
#include "apps/mcp_face.h"
#include "apps/program.h"
#include "apps/program_options.h"
#include "apps/settings_source.h"
#include "bridge/grpc_client/grpc_control_plane_client.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/random.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::apps {
namespace {

struct Options : ProgramOptions {
  std::string control_plane = "127.0.0.1:9766";
  std::string host = "127.0.0.1";
  uint16_t port = 9765;
  std::string name = "callboard";
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "callboard-bridge: %s\n", std::string(status.message()).c_str());
  return 2;
}

bool IsHot(std::string_view key) { return key == "log.level"; }

// Everything that lives as long as the process, in the order of construction.
int Serve(const Options& options, const std::vector<std::string>& addresses,
          LoneBridgeSettings settings, EffectiveSettings effective) {
  core::AsioEventLoop loop;
  core::SecureRandom random;
  bridge::BridgeConfig config = settings.bridge.config;
  config.name = options.name;
  config.version = CALLBOARD_VERSION;
  auto client =
      bridge::MakeGrpcControlPlaneClient(loop, {.addresses = addresses,
                                                .connect_wait = settings.bridge.control_plane_wait,
                                                .unary_wait = config.unary_wait,
                                                .skill_wait = config.hard_wait,
                                                .keepalive = settings.bridge.control_plane_ping});
  McpFace face(loop, random, *client, config, settings.bridge.peer_timeout);
  if (auto status = face.Listen(options.host, options.port); !status.ok()) return Fail(status);
  auto admin = AdminPort::Open(loop, settings.admin,
                               [&face](core::MetricsText& text) { face.WriteMetrics(text); });
  if (!admin.ok()) return Fail(admin.status());
  face.Serve();

  std::vector<std::pair<std::string_view, uint16_t>> ports = {{"http", face.port()}};
  if (*admin != nullptr) ports.emplace_back("admin", (*admin)->port());
  if (auto status = WritePorts(options.state_dir, ports); !status.ok()) return Fail(status);
  core::LogInfo("ready", {{"http", fmt::format("{}:{}", options.host, face.port())},
                          {"control_plane", options.control_plane},
                          {"admin", AdminAddress(*admin)},
                          {"stream_heartbeat", absl::FormatDuration(config.heartbeat)}});
  std::printf("callboard-bridge ready http=%s:%u\n", options.host.c_str(), face.port());
  std::fflush(stdout);

  auto hangups = OnHangup(loop, [&] {
    ReloadSettings<LoneBridgeSettings>(options, ReadLoneBridgeSettings, IsHot, &effective);
  });
  auto signals = OnTermination(loop, [&] {
    core::LogInfo("draining", {{"grace", absl::FormatDuration(settings.bridge.drain)}});
    face.Drain(settings.bridge.drain, [&loop] { loop.Stop(); });
  });
  auto watchdog = WatchLoop(loop, settings.watchdog);
  if (*admin != nullptr) (*admin)->Serve(*watchdog);
  loop.Run();
  watchdog = nullptr;
  core::LogInfo("stopped");
  return 0;
}

int Main(int argc, char** argv) {
  PrepareProcess();
  RaiseFileLimit();
  Options options;
  CLI::App app("Callboard's bridge: MCP on HTTP in front of a control plane on gRPC.");
  AddProgramOptions(app, "bridge.heartbeat=10s", &options);
  app.add_option("--control-plane", options.control_plane,
                 "HOST:PORT of callboardd's gRPC port; others after commas, for when it is away")
      ->capture_default_str();
  app.add_option("--host", options.host, "Address the port listens on")->capture_default_str();
  app.add_option("--port", options.port, "HTTP port for MCP clients; 0 picks a free one")
      ->capture_default_str();
  app.add_option("--name", options.name, "Name shown to clients and other gateways")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  auto addresses = ParseAddresses("--control-plane", options.control_plane);
  if (!addresses.ok()) return Fail(addresses.status());
  if (options.state_dir.empty()) options.state_dir = DefaultStateFolder("bridge");
  EffectiveSettings effective;
  auto settings = LoadSettings(options, ReadLoneBridgeSettings, &effective);
  if (!settings.ok()) return Fail(settings.status());
  if (auto status = EnsureFolder(options.state_dir); !status.ok()) return Fail(status);
  return RunLogged(*settings,
                   [&] { return Serve(options, *addresses, *settings, std::move(effective)); });
}

}  // namespace
}  // namespace callboard::apps

int main(int argc, char** argv) { return callboard::apps::Main(argc, argv); }
