// callboard: the command line of Callboard, a client of the control API.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/cli/address.h"
#include "apps/cli/verbs.h"
#include "apps/program.h"

namespace callboard::apps {
namespace {

int Help(CLI::App& app, const std::vector<std::string>& verbs) {
  CLI::App* shown = &app;
  for (const auto& verb : verbs) {
    const auto found =
        shown->get_subcommands([&verb](CLI::App* one) { return one->get_name() == verb; });
    CLI::App* inner = found.empty() ? nullptr : found.front();
    if (inner == nullptr) {
      Say("callboard: no verb '" + verb + "'; 'callboard help' lists them");
      return kExitUsage;
    }
    shown = inner;
  }
  Print(shown->help());
  return kExitOk;
}

int Main(int argc, char** argv) {
  PrepareProcess();
  Cli cli;
  CLI::App app("Callboard's command line: seats, tools and calls of a control plane.", "callboard");
  app.set_version_flag("--version", CALLBOARD_VERSION);
  app.add_option(
      "-a,--address", cli.address,
      "HOST:PORT of callboardd's gRPC port; else $CALLBOARD_CONTROL_PLANE, control_plane "
      "in ./callboard.toml or ~/.config/callboard/config.toml, or 127.0.0.1:9766");
  app.add_option("-o,--output", cli.output, "wide or json (default: text for people)")
      ->check(CLI::IsMember({"wide", "json"}));
  app.require_subcommand(1);
  app.fallthrough();
  AddSeatsVerb(app, cli);
  AddToolsVerbs(app, cli);
  AddCallVerb(app, cli);
  AddDoctorVerb(app, cli);
  AddClientConfigVerb(app, cli);
  AddMcpStdioVerb(app, cli);
  AddConfigVerb(app, cli);
  app.add_subcommand("version", "Print the version")->callback([&cli] {
    cli.run = [] {
      Print("callboard " CALLBOARD_VERSION "\n");
      return static_cast<int>(kExitOk);
    };
  });
  AddCompletionVerb(app, cli);
  std::vector<std::string> verbs;
  auto* help = app.add_subcommand("help", "Explain a verb, with examples");
  help->add_option("verb", verbs, "e.g. call, or tools search");
  help->callback([&] { cli.run = [&] { return Help(app, verbs); }; });
  app.footer(
      "Start with:\n  callboard ps\n  callboard tools search 'create sphere'\n"
      "  callboard help call\n\n" +
      std::string(ExitCodesText()));
  // Options of the whole program may follow any verb.
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
    verb->fallthrough();
    for (CLI::App* inner : verb->get_subcommands([](CLI::App*) { return true; })) {
      inner->fallthrough();
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  auto found = FindControlPlane(cli.address);
  if (!found.ok()) return Fail(found.status());
  cli.address = found->address;
  cli.address_source = found->source;
  return cli.run();
}

}  // namespace
}  // namespace callboard::apps

int main(int argc, char** argv) { return callboard::apps::Main(argc, argv); }
