// `callboard doctor`: checks one by one what must be there, and says what helps.
#include <dirent.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "apps/cli/control_api.h"
#include "apps/cli/examination.h"
#include "apps/cli/path_probe.h"
#include "apps/cli/seat_table.h"
#include "apps/cli/verbs.h"
#include "apps/program.h"
#include "backend_agent/discovery/file_registry.h"
#include "core/mcp/json.h"

namespace callboard::apps {
namespace {

constexpr time_t kHttpSeconds = 3;
constexpr size_t kAnswerBytesMax = 4 << 20;

struct Options {
  std::string http = "127.0.0.1:9765";
  std::string registry_dir;
  std::string state_dir;
  std::string url;
  std::string silence = "75s";
};

// The status line and body of a GET; empty if nobody answers in time.
std::string HttpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints,
                  &found) != 0) {
    return "";
  }
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  const timeval limit{kHttpSeconds, 0};
  std::string answer;
  if (fd >= 0) {
    // The sending limit bounds the connect, too.
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const std::string request =
        fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, address);
    if (connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
        send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(request.size())) {
      char buffer[16 << 10];
      ssize_t n = 0;
      while (answer.size() < kAnswerBytesMax && (n = recv(fd, buffer, sizeof buffer, 0)) > 0) {
        answer.append(buffer, static_cast<size_t>(n));
      }
    }
    close(fd);
  }
  freeaddrinfo(found);
  return answer;
}

// Whether a program of ours could listen there now; nullopt: it is no address of this machine.
std::optional<bool> IsFree(const std::string& address) {
  const size_t colon = address.rfind(':');
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (colon == std::string::npos ||
      getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints,
                  &found) != 0) {
    return std::nullopt;
  }
  std::optional<bool> free;
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  if (fd >= 0) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool bound = bind(fd, found->ai_addr, found->ai_addrlen) == 0;
    if (bound || errno == EADDRINUSE || errno == EACCES) free = bound && listen(fd, 1) == 0;
    close(fd);
  }
  freeaddrinfo(found);
  return free;
}

// Of a port where callboardd does not answer: may it be started there?
void CheckPort(Examination& doctor, const std::string& address, std::string_view option) {
  const std::optional<bool> free = IsFree(address);
  if (!free) return;
  doctor.Tell(fmt::format("port {}", address.substr(address.rfind(':') + 1)), *free,
              *free ? "free: callboardd can be started here" : "taken by another program",
              fmt::format("stop that, or start callboardd with another {}", option),
              kExitUnreachable);
}

void CheckControlPlane(Examination& doctor, const Cli& cli) {
  const std::string place = fmt::format("{} ({})", cli.address, cli.address_source);
  auto api = ControlApi::Connect(cli.address);
  if (!api.ok()) {
    doctor.Tell("address", false,
                fmt::format("{}: {}", cli.address_source, core::Message(api.status())),
                "see that no firewall is between", kExitUnreachable);
    return CheckPort(doctor, cli.address, "--grpc-port");
  }
  doctor.Tell("address", true, place, "", kExitUnreachable);
  auto serving = (*api)->Serving();
  doctor.Tell("health", serving.ok() && *serving,
              !serving.ok() ? std::string(core::Message(serving.status()))
              : *serving    ? "serving"
                            : "not serving: it starts or shuts down",
              "is that port callboardd's --grpc-port?", kExitNotServing);
  v1::ListInstancesRequest request;
  request.set_include_stale(true);
  auto rows = (*api)->ListInstances(request);
  if (!rows.ok()) {
    return doctor.Tell("control API", false, core::Message(rows.status()),
                       "use a callboard of the control plane's version (" CALLBOARD_VERSION
                       " is this one)",
                       kExitNotServing);
  }
  doctor.Tell("control API", true,
              fmt::format("cluster {}, term {}", rows->cluster_id().substr(0, 8), rows->term()), "",
              kExitNotServing);
  const std::string server =
      rows->server_version().empty() ? "of before 0.1.0" : rows->server_version();
  doctor.Tell("version", true,
              server == CALLBOARD_VERSION
                  ? fmt::format("{}, as this callboard", server)
                  : fmt::format("callboardd {}, this callboard " CALLBOARD_VERSION
                                "; install the same version if something is missing",
                                server),
              "", kExitNotServing);
  doctor.Tell("seats", rows->instances_size() > 0, fmt::format("{} seats", rows->instances_size()),
              "start callboard-agent beside a DCC; its log says link_up and seat_up", kExitNoSeats);
  for (const v1::InstanceRow& row : rows->instances()) {
    const std::string_view state = SeatState(row);
    doctor.Tell(
        fmt::format("seat {}", row.name()), state == "idle" || state == "busy",
        fmt::format("{} {}, {}, {} tools{}{}", row.app(), row.seat_id().substr(0, 8), state,
                    row.tools(), row.health().reason().empty() ? "" : ", ", row.health().reason()),
        fmt::format("{}: look at the agent's log and at the DCC", row.advice()), kExitSeatUnwell);
  }
}

void CheckBridge(Examination& doctor, const std::string& address) {
  bool unanswered = false;
  for (const char* path : {"/health", "/v1/readyz"}) {
    const std::string answer = HttpGet(address, path);
    const std::string line = answer.substr(0, answer.find('\r'));
    unanswered = answer.empty();
    doctor.Tell(fmt::format("bridge {}", path), line.starts_with("HTTP/1.1 200"),
                answer.empty() ? fmt::format("nobody answers at {}", address)
                               : fmt::format("{} says {}", address, line),
                "give callboardd's HTTP port with --http HOST:PORT; 503 means it is not ready yet",
                kExitBridge);
  }
  if (unanswered) CheckPort(doctor, address, "--port");
}

void CheckFolders(Examination& doctor, const Options& options) {
  DIR* folder = opendir(options.registry_dir.c_str());
  const bool missing = folder == nullptr && errno == ENOENT;
  doctor.Tell(
      "registry", folder != nullptr || missing,
      missing             ? options.registry_dir + " is not there yet; adapters make it"
      : folder != nullptr ? options.registry_dir + " is readable"
                          : fmt::format("{}: {}", options.registry_dir, std::strerror(errno)),
      "give the adapters' folder with --registry-dir, readable for this user", kExitRegistry);
  if (folder != nullptr) closedir(folder);
  // A folder that is not there is made at the start, below the nearest one that is.
  std::filesystem::path nearest = std::filesystem::absolute(options.state_dir);
  std::error_code error;
  while (!std::filesystem::exists(nearest, error) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  doctor.Tell("state folder", access(nearest.c_str(), W_OK | X_OK) == 0, options.state_dir,
              fmt::format("{} is not writable for this user; give another with --state-dir",
                          nearest.string()),
              kExitStateFolder);
}

}  // namespace

void AddDoctorVerb(CLI::App& app, Cli& cli) {
  auto options = std::make_shared<Options>();
  options->registry_dir = agent::DefaultRegistryFolder();
  options->state_dir = DefaultStateFolder("callboardd");
  auto* verb = app.add_subcommand("doctor", "Check that everything is well, and say what helps");
  verb->add_option("--http", options->http, "HOST:PORT of the bridge")->capture_default_str();
  verb->add_option("--registry-dir", options->registry_dir, "dcc-mcp registry folder")
      ->capture_default_str();
  verb->add_option("--state-dir", options->state_dir, "State folder of a program here")
      ->capture_default_str();
  verb->add_option("--url", options->url,
                   "Measure the path of streams to this URL of a bridge instead, from here");
  verb->add_option("--silence", options->silence, "With --url: how long a silent stream is watched")
      ->capture_default_str();
  verb->footer("The exit code is that of the first check that fails.\n\n" +
               std::string(ExitCodesText()));
  verb->callback([&cli, options] {
    cli.run = [&cli, options] {
      Examination doctor(cli.json());
      if (!options->url.empty()) {
        absl::Duration silence;
        if (!absl::ParseDuration(core::ToAbsl(options->silence), &silence) ||
            silence < absl::Seconds(1)) {
          return Fail(absl::InvalidArgumentError(
              fmt::format("--silence {}: expected a duration such as 75s", options->silence)));
        }
        ExaminePath(doctor, options->url, silence);
        return doctor.Finish();
      }
      CheckControlPlane(doctor, cli);
      CheckBridge(doctor, options->http);
      CheckFolders(doctor, *options);
      return doctor.Finish();
    };
  });
}

}  // namespace callboard::apps
