// Parser of registry rows.
#include "backend_agent/discovery/registry_row.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

constexpr int64_t kSchemaVersionMax = 1;
constexpr size_t kRowsMax = 4'096;

auto Key(const RegistryRow& row) {
  return std::tie(row.dcc_type, row.instance_id, row.host, row.port, row.mcp_url, row.connect_host,
                  row.pid, row.host_pid, row.version, row.scene, row.sentinel_path,
                  row.display_name);
}

// The loopback address behind the ways to write it; nullopt: another machine.
std::optional<std::string_view> Loopback(std::string_view host) {
  for (std::string_view same : {"", "localhost", "::1", "[::1]", "0.0.0.0", "[::]", "::"}) {
    if (host == same) return "127.0.0.1";
  }
  if (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos) {
    return host;
  }
  return std::nullopt;
}

// Where a server is to be looked for that says it listens there.
std::string ConnectHost(std::string_view host) {
  if (host == "::1" || host == "[::1]") return "::1";
  return host.starts_with("127.") ? std::string(host) : "localhost";
}

// The same URL with a loopback address for its host; nullopt: not on this machine, or no http URL.
std::optional<std::string> LocalUrl(std::string_view url, std::string* connect_host) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return std::nullopt;
  const std::string_view rest = url.substr(kScheme.size());
  const size_t path = std::min(rest.find('/'), rest.size());
  std::string_view host = rest.substr(0, path);
  std::string_view port;
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    port = host.substr(colon);
    host = host.substr(0, colon);
  }
  auto local = Loopback(host);
  if (!local || host.empty()) return std::nullopt;
  *connect_host = ConnectHost(host);
  return fmt::format("{}{}{}{}", kScheme, *local, port, rest.substr(path));
}

void ParseRow(std::string_view key, std::string_view raw, RegistryRows& rows) {
  const auto text = [&](std::string_view name) { return core::FindString(raw, name).value_or(""); };
  if (!core::IsObject(raw)) {
    rows.ignored.emplace_back("a registry entry that is no object is ignored");
    return;
  }
  RegistryRow row;
  row.dcc_type = text("dcc_type");
  if (row.dcc_type == "__gateway__" || key.starts_with("__gateway__")) return;
  row.instance_id = text("instance_id");
  if (row.instance_id.empty()) row.instance_id = std::string(key);
  if (const int64_t schema = core::FindInteger(raw, "schema_version").value_or(0);
      schema > kSchemaVersionMax) {
    rows.ignored.push_back(
        fmt::format("registry row '{}' has schema version {}, up to {} is known; it is ignored",
                    row.instance_id, schema, kSchemaVersionMax));
    return;
  }
  const std::string host = text("host");
  const int64_t port = core::FindInteger(raw, "port").value_or(0);
  if (row.dcc_type.empty()) row.dcc_type = "dcc";
  if (auto metadata_url = core::FindPath(raw, {"metadata", "mcp_url"})) {
    row.mcp_url = core::DecodeString(*metadata_url).value_or("");
  }
  if (row.instance_id.empty() || (row.mcp_url.empty() && (port <= 0 || port > 65'535))) {
    rows.ignored.push_back(fmt::format("registry row '{}' ({}) names no {}; it is ignored",
                                       row.instance_id, row.dcc_type,
                                       row.instance_id.empty() ? "instance_id" : "port"));
    return;
  }
  const auto local = Loopback(host);
  const bool by_port = row.mcp_url.empty();
  if (by_port && local) row.mcp_url = fmt::format("http://{}:{}/mcp", *local, port);
  const auto url = LocalUrl(row.mcp_url, &row.connect_host);
  if (by_port) row.connect_host = ConnectHost(host);
  if (!local || !url) {
    rows.ignored.push_back(
        fmt::format("registry row '{}' is at '{}', not on this machine; it is ignored",
                    row.instance_id, row.mcp_url.empty() ? host : row.mcp_url));
    return;
  }
  row.mcp_url = *url;
  row.host = std::string(*local);
  row.port = static_cast<uint16_t>(port > 0 && port <= 65'535 ? port : 0);
  row.pid = core::FindInteger(raw, "pid").value_or(0);
  row.host_pid = core::FindInteger(raw, "host_pid").value_or(0);
  row.version = text("version");
  row.scene = text("scene");
  row.sentinel_path = text("sentinel_path");
  row.display_name = text("display_name");
  row.raw = std::string(raw);
  core::FlattenLines(row.raw.data(), row.raw.size());
  rows.rows.push_back(std::move(row));
}

}  // namespace

bool RegistryRow::operator==(const RegistryRow& other) const { return Key(*this) == Key(other); }

absl::StatusOr<RegistryRows> ParseRegistry(std::string_view text) {
  RegistryRows rows;
  const bool padded = text.ends_with('\0');
  text = text.substr(0, text.find_last_not_of('\0') + 1);
  if (padded && text.empty()) return absl::InvalidArgumentError("nothing but zero bytes");
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return rows;
  text.remove_prefix(begin);
  if (absl::Status status = core::ValidateJson(text); !status.ok()) return status;
  const auto room = [&] { return rows.rows.size() + rows.ignored.size() < kRowsMax; };
  if (core::IsArray(text)) {
    (void)core::ForEachElement(text, [&](std::string_view raw) {
      ParseRow("", raw, rows);
      return room();
    });
    return rows;
  }
  if (!core::IsObject(text)) {
    return absl::InvalidArgumentError("the registry is neither an array nor an object");
  }
  (void)core::ForEachMember(text, [&](core::JsonMember member) {
    if (core::IsObject(member.value)) ParseRow(member.key, member.value, rows);
    return room();
  });
  return rows;
}

}  // namespace callboard::agent
