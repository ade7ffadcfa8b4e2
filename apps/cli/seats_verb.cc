// `callboard ps`: which seats there are and what they do.
#include <fmt/format.h>

#include <memory>

#include "apps/cli/control_api.h"
#include "apps/cli/seat_table.h"
#include "apps/cli/verbs.h"
#include "core/mcp/json.h"

namespace callboard::apps {
namespace {

struct Options {
  std::string selector;
  std::string labels;
  bool watch = false;
};

// "render for 12 s", or nothing.
std::string WorkOf(const v1::InstanceRow& row) {
  if (row.running_size() == 0) return "";
  return fmt::format("{} for {} s", ToolAtWork(row), row.running(0).run_ms() / 1000);
}

int Watch(ControlApi& api, const Cli& cli, const v1::ListInstancesRequest& request,
          const std::vector<SeatCondition>& conditions) {
  const auto show = [&](const v1::InstanceEvent& event) {
    const v1::InstanceRow& row = event.instance();
    if (!event.removed() && !Holds(conditions, row)) return;
    if (cli.json()) {
      Print(core::JsonObject()
                .Bool("removed", event.removed())
                .Raw("seat", RenderSeatJson(row))
                .Take() +
            "\n");
    } else if (event.removed()) {
      Print(fmt::format("{}  gone\n", row.seat_id().substr(0, 8)));
    } else {
      Print(AlignColumns(
          {{row.name(), row.seat_id().substr(0, 8), row.app(), std::string(SeatState(row)),
            fmt::format("queue {}", row.queue_depth()), WorkOf(row), row.scene()}}));
    }
    std::fflush(stdout);
  };
  auto status = api.WatchInstances(request, show);
  return status.ok() ? kExitOk : Fail(status);
}

int Run(const Cli& cli, const Options& options) {
  auto conditions = ParseSeatConditions(options.labels);
  if (!conditions.ok()) return Fail(conditions.status());
  auto api = ControlApi::Connect(cli.address);
  if (!api.ok()) return Fail(api.status());
  v1::ListInstancesRequest request;
  request.set_include_stale(true);
  request.set_include_dead(true);
  if (!options.selector.empty()) request.mutable_target()->set_instance(options.selector);
  if (options.watch) return Watch(**api, cli, request, *conditions);

  auto rows = (*api)->ListInstances(request);
  if (!rows.ok()) return Fail(rows.status());
  std::vector<v1::InstanceRow> shown;
  for (const v1::InstanceRow& row : rows->instances()) {
    if (Holds(*conditions, row)) shown.push_back(row);
  }
  if (cli.json()) {
    std::string list = "[";
    for (const auto& row : shown) {
      if (list.size() > 1) list += ',';
      list += RenderSeatJson(row);
    }
    Print(list + "]\n");
  } else if (!shown.empty()) {
    Print(RenderSeatTable(shown, cli.output == "wide"));
  }
  if (!shown.empty()) return kExitOk;
  if (!options.selector.empty() || !options.labels.empty()) {
    Say(fmt::format("no seat matches '{}'; 'callboard ps' lists all",
                    options.selector.empty() ? options.labels : options.selector));
    return kExitNotFound;
  }
  Say("no seats yet. Start an agent beside a DCC:\n"
      "  callboard-agent --control-plane " +
      cli.address + "\n'callboard doctor' tells what is missing.");
  return kExitOk;
}

}  // namespace

void AddSeatsVerb(CLI::App& app, Cli& cli) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("ps", "List the seats and what they do");
  verb->add_option("selector", options->selector, "One seat: its name, id, or the id's beginning");
  verb->add_option("-l,--label", options->labels,
                   "key=value, key!=value, key in (a,b), key notin (a,b), key, !key; commas "
                   "between them; labels, app, version, host, state, name");
  verb->add_flag("-w,--watch", options->watch, "Follow the changes until Ctrl-C");
  verb->footer(
      "Examples:\n  callboard ps\n  callboard ps -l app=blender,state=idle -o wide\n"
      "  callboard ps -l 'app in (blender,maya),!farm_job'\n"
      "  callboard ps -o json | jq -r '.[].name'\n"
      "States: idle, busy, unresponsive, starting, reconnecting, down.");
  verb->callback([&cli, options] { cli.run = [&cli, options] { return Run(cli, *options); }; });
}

}  // namespace callboard::apps
