// Implementation of the operational endpoints.
#include "bridge/endpoints/ops.h"

#include <fmt/format.h>

#include <string>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

using core::JsonObject;

// Adapters ask an older gateway to yield its port; no dcc-mcp release is newer than this.
constexpr std::string_view kGatewayVersion = "9999.0.0";
constexpr uint32_t kInstancesMax = 1000;
constexpr size_t kShortIdBytes = 8;
constexpr std::string_view kControlPlane = "control_plane";

// A seat whose agent is away may come back as it was; until then nothing reaches it.
bool IsLive(const v1::InstanceRow& row) { return row.status() != "reconnecting"; }

bool IsReady(const v1::InstanceRow& row) {
  return row.status() == "available" || row.status() == "busy";
}

std::string Readiness(const v1::InstanceRow& row) {
  const v1::SeatHealth& health = row.health();
  const bool process = health.process() != v1::GONE;
  const bool endpoint = health.endpoint() != v1::GONE && health.endpoint() != v1::UNRESPONSIVE;
  const bool main_thread =
      health.main_thread() != v1::GONE && health.main_thread() != v1::UNRESPONSIVE;
  return JsonObject()
      .Bool("process", process)
      .Bool("dcc", process)
      .Bool("skill_catalog", endpoint && row.status() != "starting")
      .Bool("dispatcher", endpoint)
      .Bool("host_execution_bridge", endpoint)
      .Bool("main_thread_executor", main_thread)
      .Take();
}

std::string RenderRow(const v1::InstanceRow& row, std::string_view base) {
  const std::string& id = row.instance_id().empty() ? row.seat_id() : row.instance_id();
  const std::string short_id = id.substr(0, kShortIdBytes);
  constexpr std::string_view kDispatch =
      R"({"reported":false,"status":"not_reported","ready":null,"ready_at_unix":null,)"
      R"("host_rpc_uri":null,"host_rpc_scheme":null,"failure_stage":null,"failure_reason":null})";
  return JsonObject()
      .String("instance_id", id)
      .String("instance_short", short_id)
      .String("display_id",
              fmt::format("{}@{}-{}", row.app(), row.version().empty() ? "unknown" : row.version(),
                          short_id))
      .String("dcc_type", row.app())
      .String("status", row.status())
      .String("advice", row.advice())
      .String("mcp_url", fmt::format("{}/mcp/{}", base, row.seat_id()))
      .Raw("readiness", Readiness(row))
      .Raw("probe_failure", "null")
      .Raw("dispatch", kDispatch)
      .Take();
}

std::string RenderReady(const v1::ListInstancesResponse& rows, std::string_view base) {
  int64_t live = 0;
  int64_t ready = 0;
  std::string instances = "[";
  for (const v1::InstanceRow& row : rows.instances()) {
    if (IsLive(row)) ++live;
    if (IsReady(row)) ++ready;
    if (instances.size() > 1) instances.push_back(',');
    instances.append(RenderRow(row, base));
  }
  instances.push_back(']');
  return JsonObject()
      .Bool("ok", true)
      .Raw("checks", R"([{"name":"gateway","ok":true}])")
      .Int("live_instance_count", live)
      .Int("ready_instance_count", ready)
      .Int("not_ready_instance_count", live - ready)
      .Int("dispatch_reported_instance_count", 0)
      .Int("dispatch_ready_instance_count", 0)
      .Int("dispatch_not_ready_instance_count", 0)
      .Raw("gateway_recovery_driver_counts", "{}")
      .Raw("registration_refresh_mode_counts", "{}")
      .Int("gateway_daemon_guardian_instance_count", 0)
      .Bool("gateway_daemon_guardian_ready", true)
      .Raw("gateway_lifecycle", R"({"persist":true,"idle_timeout_secs":0})")
      .Raw("instances", instances)
      .Take();
}

// `check` is the part that is not well.
std::string RenderNotReady(std::string_view check, std::string_view problem) {
  return JsonObject()
      .Bool("ok", false)
      .Raw("checks", fmt::format("[{}]", JsonObject()
                                             .String("name", check)
                                             .Bool("ok", false)
                                             .String("message", problem)
                                             .Take()))
      .Int("live_instance_count", 0)
      .Int("ready_instance_count", 0)
      .Int("not_ready_instance_count", 0)
      .Raw("instances", "[]")
      .Take();
}

}  // namespace

void OpsEndpoint::Handle(Endpoint endpoint, const net::HttpRequest& request, HttpAnswer answer) {
  switch (endpoint) {
    case Endpoint::kHealth:
      // Adapters compare `service`.
      return answer.Json(200, JsonObject()
                                  .Bool("ok", true)
                                  .String("service", "dcc-mcp-gateway")
                                  .String("name", core_.config.name)
                                  .Take());
    case Endpoint::kLiveness:
      return answer.Json(200, R"({"ok":true})");
    case Endpoint::kReadiness:
      return Ready(request, answer);
    case Endpoint::kAdminHealth:
      return AnswerAdminHealth(answer);
    default:
      return RefuseYield(request, answer);
  }
}

void OpsEndpoint::Ready(const net::HttpRequest& request, const HttpAnswer& answer) {
  if (core_.draining) {
    return answer.Json(503, RenderNotReady(kControlPlane, "the server is shutting down"));
  }
  if (!core_.exchanges.has_room()) {
    return answer.Json(503, RenderNotReady(kControlPlane, "too many requests under way"));
  }
  const std::string* const host = request.Header("Host");
  std::string base = fmt::format("http://{}", host == nullptr ? "127.0.0.1" : *host);
  v1::ListInstancesRequest rows;
  rows.set_limit(kInstancesMax);
  core_.client.ListInstances(
      std::move(rows),
      core_.exchanges.Await<v1::ListInstancesResponse>(
          answer, {},
          [answer, base = std::move(base)](const absl::StatusOr<v1::ListInstancesResponse>& list) {
            if (!list.ok()) {
              return answer.Json(503, RenderNotReady(kControlPlane, core::Message(list.status())));
            }
            if (!list->store_fault().empty()) {
              return answer.Json(503, RenderNotReady("store", list->store_fault()));
            }
            answer.Json(200, RenderReady(*list, base));
          }));
}

void OpsEndpoint::AnswerAdminHealth(const HttpAnswer& answer) {
  const std::string current = JsonObject()
                                  .String("name", core_.config.name)
                                  .String("role", "active")
                                  .String("version", kGatewayVersion)
                                  .Take();
  answer.Json(
      200, JsonObject()
               .Bool("ok", true)
               .String("status", "ok")
               .String("version", kGatewayVersion)
               .String("callboard_version", core_.config.version)
               .Raw("gateway", JsonObject().Raw("current", current).Raw("candidates", "[]").Take())
               .Take());
}

void OpsEndpoint::RefuseYield(const net::HttpRequest& request, const HttpAnswer& answer) {
  constexpr std::string_view kKind = "optional-capability-unsupported";
  constexpr std::string_view kCapability = "cooperative_yield";
  const std::string challenger = core::FindString(request.body, "challenger_version").value_or("");
  const std::string error =
      JsonObject()
          .String("kind", kKind)
          .String("capability", kCapability)
          .String("message",
                  "This gateway does not yield its port. This is non-fatal: keep "
                  "using it as your gateway.")
          .Take();
  answer.Json(409, JsonObject()
                       .Bool("ok", false)
                       .Bool("success", false)
                       .String("capability", kCapability)
                       .String("fallback", "polling")
                       .String("current_version", kGatewayVersion)
                       .String("challenger_version", challenger)
                       .Raw("error", error)
                       .Take());
}

}  // namespace callboard::bridge
