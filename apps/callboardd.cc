// callboardd: control plane and bridge in one process, on one control thread.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "apps/admin_port.h"
#include "apps/local_control_plane_client.h"
#include "apps/mcp_face.h"
#include "apps/program.h"
#include "apps/program_options.h"
#include "apps/server_settings.h"
#include "apps/settings_source.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/offload.h"
#include "core/runtime/random.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "server/flows/control_plane.h"
#include "server/rpc/grpc_server.h"
#include "server/store/body_files.h"
#include "server/store/memory_bodies.h"
#include "server/store/memory_store.h"
#include "server/store/sqlite_file.h"
#include "server/store/sqlite_store.h"

namespace callboard::apps {
namespace {

struct Options : ProgramOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 9765;
  uint16_t grpc_port = 9766;
  std::string name = "callboard";
  bool check_store = false;
};

constexpr uint64_t kMemoryStoreOutcomes = 64 << 20;
// An orderly end waits that long for the store's last commit.
constexpr absl::Duration kFlushMax = absl::Seconds(5);
constexpr size_t kClusterIdChars = 32;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "callboardd: %s\n", std::string(status.message()).c_str());
  return 2;
}

// What a bridge of its own may send: parameters, and some room for what goes with them.
int MessageBytesMax(const server::Limits& limits) {
  constexpr uint64_t kBeside = 1 << 20;
  return static_cast<int>(
      std::min<uint64_t>(limits.params_bytes_max + kBeside, std::numeric_limits<int>::max()));
}

std::string StorePath(const Options& options, const ServerSettings& settings) {
  return settings.store_path.empty() ? options.state_dir + "/callboard.db" : settings.store_path;
}

absl::StatusOr<std::unique_ptr<server::Store>> OpenStore(const Options& options,
                                                         const ServerSettings& settings,
                                                         core::EventLoop& loop,
                                                         core::Random& random) {
  const std::string id_file = options.state_dir + "/cluster_id";
  if (settings.store_kind == StoreKind::kMemory) {
    auto cluster_id = StableId(id_file, random);
    if (!cluster_id.ok()) return cluster_id.status();
    return std::make_unique<server::MemoryStore>(loop, *cluster_id);
  }
  server::SqliteStoreConfig config;
  config.path = StorePath(options, settings);
  // An installation that had no file for its store keeps its identity.
  const auto former = ReadSmallFile(id_file);
  config.new_cluster_id = former.ok() && former->size() >= kClusterIdChars
                              ? former->substr(0, kClusterIdChars)
                              : random.Hex(kClusterIdChars / 2);
  config.sync_full = settings.store_sync_full;
  config.pending_bytes_max = settings.store_pending_bytes_max;
  config.hold_max = settings.store_hold_max;
  config.stall_max = settings.store_stall_max;
  return server::SqliteStore::Open(loop, core::MakeThreadOffload(loop), config);
}

// What is too large for the store lies beside its file.
absl::StatusOr<std::unique_ptr<server::BodyStore>> OpenBodies(const Options& options,
                                                              const ServerSettings& settings,
                                                              core::EventLoop& loop) {
  if (settings.store_kind == StoreKind::kMemory) return std::make_unique<server::MemoryBodies>();
  return server::BodyFiles::Open(
      core::MakeThreadOffload(loop),
      {.folder = StorePath(options, settings) + ".bodies", .sync_full = settings.store_sync_full});
}

void Reload(const Options& options, server::ControlPlane& control_plane, bridge::Bridge& bridge,
            EffectiveSettings* effective) {
  const auto settings = ReloadSettings<ServerSettings>(
      options, ReadServerSettings, IsHotServerSetting, effective,
      [&control_plane](const ServerSettings& next) {
        return control_plane.Reconfigure(next.budgets, next.limits, next.pinned_tools);
      });
  if (settings) bridge.SetHardWait(settings->bridge.config.hard_wait);
}

// Everything that lives as long as the process, in the order of construction.
int Serve(const Options& options, const ServerSettings& settings, EffectiveSettings effective) {
  core::AsioEventLoop loop;
  core::SecureRandom random;
  auto offload = core::MakeThreadOffload(loop);
  auto opened = OpenStore(options, settings, loop, random);
  if (!opened.ok()) return Fail(opened.status());
  server::Store& store = **opened;
  auto bodies = OpenBodies(options, settings, loop);
  if (!bodies.ok()) return Fail(bodies.status());
  auto control_plane_id = StableId(options.state_dir + "/control_plane_id", random);
  if (!control_plane_id.ok()) return Fail(control_plane_id.status());
  auto request_state_key = StableId(options.state_dir + "/request_state_key", random);
  if (!request_state_key.ok()) return Fail(request_state_key.status());
  server::ControlPlaneConfig config;
  config.control_plane_id = *control_plane_id;
  config.request_state_key = *request_state_key;
  if (!settings.alternates.empty()) {
    auto alternates = ParseAddresses("cluster.alternates", settings.alternates);
    if (!alternates.ok()) return Fail(alternates.status());
    config.alternates = *std::move(alternates);
  }
  config.budgets = settings.budgets;
  config.limits = settings.limits;
  config.pinned_tools = settings.pinned_tools;
  if (settings.store_kind == StoreKind::kMemory) {
    // What such a store keeps is memory, too.
    server::Limits& limits = config.limits;
    limits.replay_disk_bytes_max =
        std::min<uint64_t>(limits.replay_disk_bytes_max, limits.replay_total_bytes_max);
    limits.receipt_outcomes_bytes_max =
        std::min<uint64_t>(limits.receipt_outcomes_bytes_max, kMemoryStoreOutcomes);
    limits.kept_bodies_bytes_max =
        std::min<uint64_t>(limits.kept_bodies_bytes_max, kMemoryStoreOutcomes);
  }
  server::ControlPlane control_plane(loop, random, *offload, store, **bodies, config);
  auto client = MakeLocalControlPlaneClient(control_plane);
  bridge::BridgeConfig bridge_config = settings.bridge.config;
  bridge_config.name = options.name;
  bridge_config.version = CALLBOARD_VERSION;
  McpFace face(loop, random, *client, std::move(bridge_config), settings.bridge.peer_timeout);
  if (auto status = face.Listen(options.host, options.port); !status.ok()) return Fail(status);
  auto grpc = server::GrpcServer::Start(
      loop, control_plane, {options.host, options.grpc_port, MessageBytesMax(settings.limits)});
  if (!grpc.ok()) return Fail(grpc.status());
  server::GrpcServer& grpc_server = **grpc;
  auto admin = AdminPort::Open(loop, settings.admin, [&](core::MetricsText& text) {
    face.WriteMetrics(text);
    control_plane.WriteMetrics(text);
  });
  if (!admin.ok()) return Fail(admin.status());
  face.Serve();
  grpc_server.SetServing(true);

  std::vector<std::pair<std::string_view, uint16_t>> ports = {{"http", face.port()},
                                                              {"grpc", grpc_server.port()}};
  if (*admin != nullptr) ports.emplace_back("admin", (*admin)->port());
  if (auto status = WritePorts(options.state_dir, ports); !status.ok()) return Fail(status);
  core::LogInfo("ready",
                {{"http", fmt::format("{}:{}", options.host, face.port())},
                 {"grpc", fmt::format("{}:{}", options.host, grpc_server.port())},
                 {"admin", AdminAddress(*admin)},
                 {"term", control_plane.term()},
                 {"stream_heartbeat", absl::FormatDuration(settings.bridge.config.heartbeat)}});
  std::printf("callboardd ready http=%s:%u grpc=%s:%u\n", options.host.c_str(), face.port(),
              options.host.c_str(), grpc_server.port());
  std::fflush(stdout);

  auto hangups = OnHangup(loop, [&] { Reload(options, control_plane, face.bridge(), &effective); });
  std::thread shutdown;
  core::Timer flush_timer;
  absl::Status flushed;
  const auto flush = [&] {
    flush_timer = loop.After(kFlushMax, [&] {
      flushed = absl::DeadlineExceededError("its disk does not answer");
      loop.Stop();
    });
    store.WhenDurable(store.Append({}), [&](const absl::Status& status) {
      flushed = status;
      loop.Stop();
    });
  };
  auto signals = OnTermination(loop, [&] {
    const absl::Duration grace = settings.bridge.drain;
    core::LogInfo("draining", {{"grace", absl::FormatDuration(grace)}});
    grpc_server.SetServing(false);
    face.Drain(grace, [&, over = loop.Now() + grace] {
      const absl::Duration left = std::max(absl::ZeroDuration(), over - loop.Now());
      control_plane.Drain(left, [&] {
        // gRPC's reactors end on the loop, so its shutdown waits on a thread of its own.
        shutdown = std::thread([&] {
          grpc_server.Shutdown(absl::Seconds(1));
          loop.Post(flush);
        });
      });
    });
  });
  auto watchdog = WatchLoop(loop, settings.watchdog);
  if (*admin != nullptr) (*admin)->Serve(*watchdog);
  loop.Run();
  watchdog = nullptr;
  if (shutdown.joinable()) shutdown.join();
  if (!flushed.ok()) {
    core::LogError("store_not_flushed", {{"reason", core::Message(flushed)}});
    core::StopLogging();
    _exit(1);  // the store's destructor would wait for its disk
  }
  core::LogInfo("stopped");
  return 0;
}

int Main(int argc, char** argv) {
  PrepareProcess();
  RaiseFileLimit();
  Options options;
  CLI::App app(
      "Callboard's control plane, with the MCP bridge on HTTP and the agents' port on gRPC.");
  AddProgramOptions(app, "budgets.queue=10m", &options);
  app.add_option("--host", options.host, "Address both ports listen on")->capture_default_str();
  app.add_option("--port", options.port, "HTTP port for MCP clients; 0 picks a free one")
      ->capture_default_str();
  app.add_option("--grpc-port", options.grpc_port, "gRPC port for agents; 0 picks a free one")
      ->capture_default_str();
  app.add_option("--name", options.name, "Name shown to clients and other gateways")
      ->capture_default_str();
  app.add_flag("--check-store", options.check_store,
               "Checks the store's file from end to end, says what it found, and exits");
  CLI11_PARSE(app, argc, argv);

  if (options.state_dir.empty()) options.state_dir = DefaultStateFolder("callboardd");
  EffectiveSettings effective;
  auto settings = LoadSettings(options, ReadServerSettings, &effective);
  if (!settings.ok()) return Fail(settings.status());
  if (options.check_store) {
    const auto found = server::SqliteFile::Check(StorePath(options, *settings));
    if (!found.ok()) return Fail(found.status());
    std::printf("%s\n", found->c_str());
    return 0;
  }
  if (auto status = EnsureFolder(options.state_dir); !status.ok()) return Fail(status);
  return RunLogged(*settings, [&] { return Serve(options, *settings, std::move(effective)); });
}

}  // namespace
}  // namespace callboard::apps

int main(int argc, char** argv) { return callboard::apps::Main(argc, argv); }
