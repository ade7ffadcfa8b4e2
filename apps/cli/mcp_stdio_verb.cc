// `callboard mcp-stdio`: MCP on stdin and stdout for clients that cannot use a URL.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/time/time.h"
#include "apps/cli/address.h"
#include "apps/cli/verbs.h"
#include "apps/program.h"
#include "apps/program_options.h"
#include "apps/stdio/http_transport.h"
#include "apps/stdio/process_streams.h"
#include "apps/stdio/stdio_face.h"
#include "backend_agent/backends/http_url.h"
#include "core/runtime/asio_event_loop.h"
#include "core/telemetry/log.h"
#include "net/tcp.h"

namespace callboard::apps {
namespace {

using core::MakeError;

// As the body of an HTTP request: whoever sends more than that is refused there, too.
constexpr size_t kLineBytesMax = 16 * 1024 * 1024;
constexpr int kDefaultPort = 9765;
// For what the client has not read when the session has ended.
constexpr absl::Duration kLastWords = absl::Milliseconds(500);

struct Options {
  std::string url;
  std::string host;
  int port = 0;
  std::string instance;
  std::string tools;
  std::string budget = "120s";
  std::string log_level = "info";
  std::string log_format = "text";
};

std::string PercentEncode(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || std::string_view("-._~,*").find(c) != std::string_view::npos) {
      encoded.push_back(c);
    } else {
      encoded.append(fmt::format("%{:02X}", byte));
    }
  }
  return encoded;
}

absl::StatusOr<agent::HttpUrl> UrlOf(const Options& options) {
  std::string flag = options.url;
  if (!options.host.empty() || options.port != 0) {
    if (!flag.empty()) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "--url has host and port already: leave out --host and --port");
    }
    const agent::HttpUrl place{
        .host = options.host.empty() ? "127.0.0.1" : options.host,
        .port = static_cast<uint16_t>(options.port == 0 ? kDefaultPort : options.port)};
    flag = fmt::format("http://{}/mcp", agent::HostAndPort(place));
  }
  auto found = FindMcpUrl(flag);
  if (!found.ok()) return found.status();
  auto url = agent::ParseHttpUrl(found->address);
  if (!url.ok()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     fmt::format("'{}' ({}): expected a URL such as {}; https is not spoken",
                                 found->address, found->source, kDefaultMcpUrl));
  }
  if (url->path == "/") url->path = "/mcp";
  if (options.instance.empty() && options.tools.empty()) return url;
  if (url->path != "/mcp") {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("'{}' ({}) says already what is shown: leave out --instance and --tools",
                    found->address, found->source));
  }
  url->path = options.tools.empty() ? "/mcp/" + PercentEncode(options.instance)
                                    : "/mcp?tools=" + PercentEncode(options.tools);
  return url;
}

absl::StatusOr<FaceConfig> ConfigOf(const Options& options) {
  FaceConfig config;
  absl::Duration budget;
  if (!absl::ParseDuration(core::ToAbsl(options.budget), &budget) || budget < absl::Seconds(1)) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     fmt::format("--reconnect-budget {}: expected a duration such as 120s or 10m, "
                                 "at least 1s",
                                 options.budget));
  }
  config.reconnect.budget = budget;
  config.reconnect.connect_budget = std::min(config.reconnect.connect_budget, budget);
  return config;
}

net::HeaderList OwnHeaders() {
  const char* token = std::getenv("CALLBOARD_TOKEN");
  if (token == nullptr || *token == '\0') return {};
  return {{"Authorization", fmt::format("Bearer {}", token)}};
}

absl::Status Serve(const agent::HttpUrl& url, const FaceConfig& config) {
  core::AsioEventLoop loop;
  core::SecureRandom random;
  const std::string place = fmt::format("http://{}{}", agent::HostAndPort(url), url.path);
  HttpTransport transport(loop, net::MakeTcpConnector(loop, url.host, url.port),
                          {agent::HostAndPort(url), url.path, OwnHeaders()});
  auto taken = ProcessStreams::Take(loop, kLineBytesMax, config.output_bytes_max);
  if (!taken.ok()) return taken.status();
  ProcessStreams& streams = **taken;
  bool ended = false;
  core::Timer last_words;
  const auto stop_when_read = [&] {
    if (ended && streams.unsent_bytes() == 0) loop.Stop();
  };
  StdioFace face(loop, random, transport, streams, config, place, [&] {
    ended = true;
    last_words = loop.After(kLastWords, [&] { loop.Stop(); });
    stop_when_read();
  });
  const auto signals = OnTermination(loop, [&] { face.Stop(); });
  core::LogInfo("stdio_begins", {{"url", place}});
  streams.Start(
      {.on_line = [&](std::string line) { face.OnLine(std::move(line)); },
       .on_too_long = [&](const LineSplitter::TooLong& line) { face.OnTooLongLine(line); },
       .on_end = [&] { face.OnInputEnd(); },
       .on_output_gone = [&] { face.Stop(); },
       .on_written =
           [&] {
             face.OnOutputRead();
             stop_when_read();
           }});
  loop.Run();
  return absl::OkStatus();
}

int Run(const Options& options) {
  const auto url = UrlOf(options);
  if (!url.ok()) return Fail(url.status());
  const auto config = ConfigOf(options);
  if (!config.ok()) return Fail(config.status());
  return RunLogged({.log_level = options.log_level, .log_format = options.log_format}, [&] {
    const absl::Status status = Serve(*url, *config);
    return status.ok() ? kExitOk : Fail(status);
  });
}

}  // namespace

void AddMcpStdioVerb(CLI::App& app, Cli& cli) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("mcp-stdio", "Speak MCP on stdin and stdout, for an AI client");
  verb->add_option("--url", options->url,
                   "The bridge's MCP endpoint; else $CALLBOARD_URL, url in ./callboard.toml or "
                   "~/.config/callboard/config.toml, or http://127.0.0.1:9765/mcp");
  verb->add_option("--host", options->host, "Instead of --url: where the bridge is");
  verb->add_option("--port", options->port, "Instead of --url: its HTTP port")
      ->check(CLI::Range(1, 65535));
  auto* instance = verb->add_option("--instance", options->instance,
                                    "Only this seat, under its own tool names: name or id");
  verb->add_option("--tools", options->tools, "Selected tools shown directly: maya.*.bake,usd")
      ->excludes(instance);
  verb->add_option("--reconnect-budget", options->budget,
                   "For how long a lost server is looked for before open calls fail")
      ->capture_default_str();
  verb->add_option("--log-level", options->log_level, "On stderr: debug, info, warn, error or off")
      ->check(CLI::IsMember(core::kLogLevels))
      ->capture_default_str();
  verb->add_option("--log-format", options->log_format, "text or json, one object a line")
      ->check(CLI::IsMember(core::kLogFormats))
      ->capture_default_str();
  verb->footer(
      "AI clients start this; 'callboard client-config CLIENT' prints their entry. It ends when\n"
      "stdin ends. $CALLBOARD_TOKEN is sent as bearer token.\n\n"
      "Examples:\n  callboard mcp-stdio --instance blender\n"
      "  callboard mcp-stdio --url http://tools.studio.example:9765/mcp --tools 'maya.*.create_*'");
  verb->callback([&cli, options] { cli.run = [options] { return Run(*options); }; });
}

}  // namespace callboard::apps
