// `callboard config check` and `callboard client-config`: configuration of ours and of clients.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "apps/agent_settings.h"
#include "apps/bridge_settings.h"
#include "apps/cli/address.h"
#include "apps/cli/client_config.h"
#include "apps/cli/seat_table.h"
#include "apps/cli/verbs.h"
#include "apps/server_settings.h"
#include "apps/settings_source.h"
#include "core/mcp/json.h"

namespace callboard::apps {
namespace {

struct CheckOptions {
  std::string program = "server";
  std::string config;
  std::vector<std::string> assignments;
};

int Check(const Cli& cli, const CheckOptions& options) {
  core::Settings settings;
  AddSettingsSources(options.config, options.assignments, &settings);
  absl::Status status;
  if (options.program == "server") {
    ServerSettings server;
    status = ReadServerSettings(settings, &server);
  } else if (options.program == "bridge") {
    LoneBridgeSettings bridge;
    status = ReadLoneBridgeSettings(settings, &bridge);
  } else {
    AgentSettings agent;
    status = ReadAgentSettings(settings, &agent);
  }
  if (!status.ok()) return Fail(status);
  std::string json = "[";
  std::vector<std::vector<std::string>> lines = {{"KEY", "VALUE", "FROM"}};
  for (const auto& [key, value, source] : settings.effective()) {
    lines.push_back({key, value, source});
    if (json.size() > 1) json += ',';
    json +=
        core::JsonObject().String("key", key).String("value", value).String("from", source).Take();
  }
  Print(cli.json() ? json + "]\n" : AlignColumns(lines));
  return kExitOk;
}

struct ClientOptions {
  std::string client;
  std::string url = kDefaultMcpUrl;
  std::string name = "callboard";
};

int Client(const ClientOptions& options) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  auto config =
      MakeClientConfig(options.client, options.name, options.url, error ? "callboard" : program);
  if (!config.ok()) return Fail(config.status());
  Say(config->advice);
  std::fflush(stderr);
  Print(config->content);
  return kExitOk;
}

}  // namespace

void AddConfigVerb(CLI::App& app, Cli& cli) {
  auto* config = app.add_subcommand("config", "Check the programs' configuration");
  config->require_subcommand(1);
  auto options = std::make_shared<CheckOptions>();
  auto* check = config->add_subcommand(
      "check", "Check settings as the programs do; print them with their source");
  check
      ->add_option("program", options->program,
                   "server (callboardd), bridge (callboard-bridge) or agent (callboard-agent)")
      ->check(CLI::IsMember({"server", "bridge", "agent"}))
      ->capture_default_str();
  check->add_option("--config", options->config, "TOML file");
  check->add_option("--set", options->assignments, "One setting: --set budgets.queue=10m")
      ->allow_extra_args(false);
  check->footer("Example:\n  callboard config check --config callboard.toml server");
  check->callback([&cli, options] { cli.run = [&cli, options] { return Check(cli, *options); }; });
}

void AddClientConfigVerb(CLI::App& app, Cli& cli) {
  auto options = std::make_shared<ClientOptions>();
  auto* verb = app.add_subcommand("client-config", "Print the entry an AI client needs");
  verb->add_option("client", options->client, std::string(KnownClients()))->required();
  verb->add_option("--url", options->url, "The bridge's MCP endpoint")->capture_default_str();
  verb->add_option("--name", options->name, "Name of the entry")->capture_default_str();
  verb->footer(
      "Example:\n  callboard client-config cursor > .cursor/mcp.json\n"
      "The entry goes to stdout, where to put it to stderr.");
  verb->callback([&cli, options] { cli.run = [options] { return Client(*options); }; });
}

}  // namespace callboard::apps
