// `callboard tools search` and `callboard describe`: which tools there are and how they are called.
#include <fmt/format.h>

#include <memory>

#include "apps/cli/control_api.h"
#include "apps/cli/seat_table.h"
#include "apps/cli/verbs.h"
#include "core/mcp/json.h"

namespace callboard::apps {
namespace {

struct SearchOptions {
  std::string query;
  std::string app;
  std::string instance;
  uint32_t limit = 25;
};

std::string HitJson(const v1::ToolHit& hit) {
  core::JsonObject object;
  object.String("slug", hit.slug())
      .String("tool", hit.tool())
      .String("summary", hit.summary())
      .String("app", hit.app())
      .String("seat_id", hit.seat_id())
      .String("seat_name", hit.seat_name())
      .Bool("loaded", hit.loaded())
      .String("skill", hit.skill());
  if (!hit.annotations().empty()) object.Raw("annotations", hit.annotations());
  return object.Take();
}

int Search(const Cli& cli, const SearchOptions& options) {
  auto api = ControlApi::Connect(cli.address);
  if (!api.ok()) return Fail(api.status());
  v1::SearchToolsRequest request;
  request.set_query(options.query);
  request.set_app(options.app);
  if (!options.instance.empty()) request.mutable_target()->set_instance(options.instance);
  request.set_limit(options.limit);
  auto found = (*api)->SearchTools(request);
  if (!found.ok()) return Fail(found.status());
  if (cli.json()) {
    std::string hits = "[";
    for (const auto& hit : found->hits()) {
      if (hits.size() > 1) hits += ',';
      hits += HitJson(hit);
    }
    Print(core::JsonObject().Raw("hits", hits + "]").Int("total", found->total()).Take() + "\n");
  } else if (found->hits_size() > 0) {
    std::vector<std::vector<std::string>> lines = {{"SLUG", "SEAT", "SUMMARY"}};
    for (const auto& hit : found->hits()) {
      lines.push_back(
          {hit.slug(), hit.seat_name(),
           hit.loaded() ? hit.summary()
                        : fmt::format("[skill {} is not loaded] {}", hit.skill(), hit.summary())});
    }
    Print(AlignColumns(lines));
  }
  if (found->hits_size() == 0) {
    Say(fmt::format("no tool matches '{}'; fewer words find more, '' lists all", options.query));
    return kExitNotFound;
  }
  if (found->total() > static_cast<uint32_t>(found->hits_size())) {
    Say(fmt::format("{} of {} shown; --limit shows more", found->hits_size(), found->total()));
  }
  return kExitOk;
}

int Describe(const Cli& cli, const std::string& slug) {
  auto api = ControlApi::Connect(cli.address);
  if (!api.ok()) return Fail(api.status());
  v1::DescribeToolRequest request;
  request.set_slug(slug);
  auto tool = (*api)->DescribeTool(request);
  if (!tool.ok()) return Fail(tool.status());
  const v1::ToolHit& hit = tool->hit();
  if (cli.json()) {
    core::JsonObject object;
    object.String("slug", hit.slug()).String("seat_name", hit.seat_name());
    if (!tool->definition().empty()) object.Raw("definition", tool->definition());
    Print(object.Bool("loaded", hit.loaded())
              .Bool("idempotent", tool->idempotent())
              .Bool("read_only", tool->read_only())
              .String("marking_source", tool->marking_source())
              .Int("run_ms", static_cast<int64_t>(tool->run_ms()))
              .Take() +
          "\n");
    return kExitOk;
  }
  const std::string description =
      core::FindString(tool->definition(), "description").value_or(hit.summary());
  const auto schema = core::FindMember(tool->definition(), "inputSchema");
  Print(
      fmt::format("{}\n  seat       {}\n  read-only  {}\n  safe twice {}\n  budget     {} s\n\n"
                  "{}\n\ninputSchema: {}\n",
                  hit.slug(), hit.seat_name(), tool->read_only() ? "yes" : "no",
                  tool->idempotent() ? "yes" : "no", tool->run_ms() / 1000, description,
                  schema.value_or("{}")));
  if (!hit.loaded()) Say(fmt::format("its skill '{}' must be loaded first", hit.skill()));
  return kExitOk;
}

}  // namespace

void AddToolsVerbs(CLI::App& app, Cli& cli) {
  auto* tools = app.add_subcommand("tools", "Find tools of the running DCCs");
  tools->require_subcommand(1);
  auto options = std::make_shared<SearchOptions>();
  auto* search = tools->add_subcommand("search", "Search tools by what they do");
  search->add_option("query", options->query, "Words, e.g. 'create sphere'; '' lists all")
      ->required();
  search->add_option("--app", options->app, "Only this kind of application, e.g. blender");
  search->add_option("--instance", options->instance, "Only this seat: name, id or its beginning");
  search->add_option("--limit", options->limit, "Hits shown, at most 100")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  search->footer("Example:\n  callboard tools search 'create sphere' --app blender");
  search->callback(
      [&cli, options] { cli.run = [&cli, options] { return Search(cli, *options); }; });

  auto slug = std::make_shared<std::string>();
  auto* describe = app.add_subcommand("describe", "Show one tool: what it does and its arguments");
  describe->add_option("slug", *slug, "<app>.<id8>.<tool>, from 'callboard tools search'")
      ->required();
  describe->footer("Example:\n  callboard describe blender.1f2e3d4c.create_object -o json");
  describe->callback([&cli, slug] { cli.run = [&cli, slug] { return Describe(cli, *slug); }; });
}

}  // namespace callboard::apps
