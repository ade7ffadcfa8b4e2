// Implementation of the clients' configuration entries.
#include "apps/cli/client_config.h"

#include <fmt/format.h>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

std::string Nested(std::string_view table, std::string_view name, std::string_view entry) {
  return fmt::format("{{\n  {}: {{\n    {}: {}\n  }}\n}}\n", core::QuoteJson(table),
                     core::QuoteJson(name), entry);
}

}  // namespace

std::string_view KnownClients() {
  return "claude-code, claude-desktop, cursor, vscode, gemini, codex, windsurf, opencode";
}

absl::StatusOr<ClientConfig> MakeClientConfig(std::string_view client, std::string_view name,
                                              std::string_view url, std::string_view program) {
  const std::string http = core::JsonObject().String("type", "http").String("url", url).Take();
  if (client == "claude-code") {
    return ClientConfig{Nested("mcpServers", name, http),
                        fmt::format("Into .mcp.json of a project, or at once for this user:\n"
                                    "  claude mcp add --transport http --scope user {} {}",
                                    name, url)};
  }
  if (client == "claude-desktop") {
    return ClientConfig{
        Nested("mcpServers", name,
               core::JsonObject()
                   .String("command", program)
                   .Raw("args", fmt::format(R"(["mcp-stdio","--url",{}])", core::QuoteJson(url)))
                   .Take()),
        "Into claude_desktop_config.json (Settings, Developer, Edit Config). Claude Desktop "
        "starts\n"
        "stdio programs only: this one survives restarts of callboardd on its behalf. Claude "
        "Desktop\n"
        "gives up a call after about 60 s; long ones are answered with a job before."};
  }
  if (client == "cursor") {
    return ClientConfig{Nested("mcpServers", name, core::JsonObject().String("url", url).Take()),
                        "Into .cursor/mcp.json of a project, or ~/.cursor/mcp.json."};
  }
  if (client == "vscode") {
    return ClientConfig{Nested("servers", name, http),
                        "Into .vscode/mcp.json of a project, or the user profile's mcp.json."};
  }
  if (client == "gemini") {
    return ClientConfig{Nested("mcpServers", name, http),
                        "Into ~/.gemini/settings.json, or .gemini/settings.json of a project."};
  }
  if (client == "codex") {
    return ClientConfig{
        fmt::format("[mcp_servers.{}]\nurl = {}\ntool_timeout_sec = 600\n", core::QuoteJson(name),
                    core::QuoteJson(url)),
        "Into ~/.codex/config.toml. Its own limit for a call is 60 s; the entry raises it."};
  }
  if (client == "windsurf") {
    return ClientConfig{
        Nested("mcpServers", name, core::JsonObject().String("serverUrl", url).Take()),
        "Into ~/.codeium/windsurf/mcp_config.json."};
  }
  if (client == "opencode") {
    return ClientConfig{Nested("mcp", name,
                               core::JsonObject()
                                   .String("type", "remote")
                                   .String("url", url)
                                   .Bool("enabled", true)
                                   .Take()),
                        "Into opencode.json of a project, or ~/.config/opencode/opencode.json."};
  }
  return core::MakeError(
      absl::StatusCode::kInvalidArgument,
      fmt::format("client-config {}: no such client; known are {}", client, KnownClients()));
}

}  // namespace callboard::apps
