// Implementation of the surfaces: their instances, sessions and results of initialize.
#include "bridge/endpoints/surface.h"

#include <fmt/format.h>

#include <utility>

#include "bridge/errors.h"
#include "bridge/initialize_result.h"
#include "core/mcp/json.h"

namespace callboard::bridge {
namespace {

constexpr uint32_t kInstancesNamed = 20;

void AnswerNoInstance(BridgeCore& core, const VisitPtr& visit, int meant) {
  v1::ListInstancesRequest request;
  request.set_limit(kInstancesNamed);
  std::string said = NoSuchInstance(visit->route.instance, meant);
  core.client.ListInstances(
      std::move(request),
      core.exchanges.Await<v1::ListInstancesResponse>(
          visit->answer, visit->raw_id(),
          [visit, said = std::move(said)](const absl::StatusOr<v1::ListInstancesResponse>& rows) {
            std::string names;
            std::string data = "[";
            if (rows.ok()) {
              for (const v1::InstanceRow& row : rows->instances()) {
                names.append(names.empty() ? "" : ", ").append(row.name());
                if (data.size() > 1) data.push_back(',');
                data.append(core::QuoteJson(row.name()));
              }
            }
            data.push_back(']');
            visit->answer.RpcError(
                404, visit->raw_id(), core::kServerError,
                fmt::format("{}; live instances: {}", said, names.empty() ? "none" : names),
                core::JsonObject().String("reason", "seat_unknown").Raw("instances", data).Take());
          }));
}

}  // namespace

void FindInstance(BridgeCore& core, const VisitPtr& visit,
                  absl::AnyInvocable<void(const v1::InstanceRow&)> then) {
  v1::ListInstancesRequest request;
  request.mutable_target()->set_instance(visit->route.instance);
  core.client.ListInstances(std::move(request),
                            core.exchanges.Await<v1::ListInstancesResponse>(
                                visit->answer, visit->raw_id(),
                                [&core, visit, then = std::move(then)](
                                    const absl::StatusOr<v1::ListInstancesResponse>& rows) mutable {
                                  const bool unknown = rows.ok() ? rows->instances_size() == 0
                                                                 : IsCallersMistake(rows.status());
                                  if (unknown) return AnswerNoInstance(core, visit, 0);
                                  if (!rows.ok())
                                    return visit->answer.Failure(visit->raw_id(), rows.status());
                                  if (rows->instances_size() > 1)
                                    return AnswerNoInstance(core, visit, rows->instances_size());
                                  then(rows->instances(0));
                                }));
}

v1::OpenSessionRequest ToOpenSession(const Surface& surface, core::McpRevision revision,
                                     std::string_view params) {
  v1::OpenSessionRequest request;
  request.set_revision(std::string(core::RevisionName(revision)));
  request.set_client_info(std::string(core::FindMember(params, "clientInfo").value_or("")));
  request.set_capabilities(std::string(core::FindMember(params, "capabilities").value_or("")));
  request.set_surface(surface.row ? fmt::format("seat:{}", surface.row->seat_id()) : "facade");
  if (!surface.tools.empty()) {
    request.set_surface("tools");
    request.set_tools(surface.tools);
  }
  return request;
}

std::string InitializeResult(const BridgeConfig& config, const Surface& surface,
                             core::McpRevision revision) {
  if (surface.row) return InstanceInitializeResult(config, revision, *surface.row);
  if (!surface.tools.empty()) return ToolsInitializeResult(config, revision);
  return FacadeInitializeResult(config, revision);
}

absl::Status OldControlPlane() {
  return absl::UnavailableError(
      "the control plane is too old to show selected tools; update it, or use /mcp without tools=");
}

}  // namespace callboard::bridge
