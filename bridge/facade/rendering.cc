// Implementation of the facade's rendering.
#include "bridge/facade/rendering.h"

#include <fmt/format.h>

#include <map>

#include "absl/strings/escaping.h"
#include "bridge/errors.h"
#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

using core::JsonObject;

template <class Items, class Render>
std::string RenderArray(const Items& items, Render render) {
  std::string array = "[";
  for (const auto& item : items) {
    if (array.size() > 1) array.push_back(',');
    array.append(render(item));
  }
  array.push_back(']');
  return array;
}

std::string LoadSkillArguments(const v1::ToolHit& hit) {
  return JsonObject().String("skill_name", hit.skill()).String("instance", hit.seat_id()).Take();
}

std::string Step(std::string_view tool, std::string_view arguments) {
  return JsonObject().String("tool", tool).Raw("arguments", arguments).Take();
}

std::string DescribeStep(const v1::ToolHit& hit) {
  return Step("describe_tool", JsonObject().String("tool_slug", hit.slug()).Take());
}

std::string LoadStep(const v1::ToolHit& hit) { return Step("load_skill", LoadSkillArguments(hit)); }

std::string RenderHit(const v1::ToolHit& hit) {
  JsonObject row;
  row.String("slug", hit.slug())
      .String("summary", hit.summary())
      .String("app", hit.app())
      .String("instance", hit.seat_name())
      .Bool("loaded", hit.loaded());
  if (!hit.skill().empty()) row.String("skill", hit.skill());
  row.Raw("next_step", hit.loaded() ? DescribeStep(hit) : LoadStep(hit));
  return row.Take();
}

std::string RenderRunning(const v1::RunningCall& call) {
  return JsonObject()
      .String("tool", call.tool().empty() ? call.method() : call.tool())
      .Int("elapsed_ms", static_cast<int64_t>(call.run_ms()))
      .Take();
}

std::string RenderInstance(const v1::InstanceRow& row) {
  // A protobuf map has no order of its own.
  JsonObject labels;
  for (const auto& [key, value] : std::map(row.labels().begin(), row.labels().end())) {
    labels.String(key, value);
  }
  JsonObject object;
  object.String("instance", row.name())
      .String("seat_id", row.seat_id())
      .String("instance_id", row.instance_id())
      .Int("incarnation", static_cast<int64_t>(row.incarnation()))
      .String("app", row.app())
      .String("version", row.version())
      .String("scene", row.scene())
      .String("host", row.host())
      .Int("pid", row.pid())
      .String("status", row.status())
      .String("advice", row.advice());
  if (!row.health().reason().empty()) object.String("reason", row.health().reason());
  object.Int("queue_depth", row.queue_depth())
      .Int("tools", row.tools())
      .Int("last_seen_ms", static_cast<int64_t>(row.last_seen_ms()))
      .String("mcp_path", fmt::format("/mcp/{}", row.seat_id()));
  if (row.running_size() > 0) object.Raw("running", RenderArray(row.running(), RenderRunning));
  if (row.labels_size() > 0) object.Raw("labels", labels.Take());
  return object.Take();
}

// In dcc-mcp's words.
std::string_view JobStatus(v1::CallPhase phase, v1::Reason reason) {
  constexpr int kLostReasons = 6;  // their hundred: what it was running on is gone
  switch (phase) {
    case v1::CALL_QUEUED:
      return "pending";
    case v1::CALL_SUCCEEDED:
      return "completed";
    case v1::CALL_FAILED:
    case v1::CALL_TIMED_OUT:
      return reason / 100 == kLostReasons ? "interrupted" : "failed";
    case v1::CALL_CANCELLED:
      return "cancelled";
    case v1::CALL_OUTCOME_UNKNOWN:
      return "interrupted";
    default:
      return "running";
  }
}

std::string WaitStep(std::string_view job_id) {
  return Step("jobs_wait", JsonObject().String("job_id", job_id).Take());
}

// How it ended, and what it ended with if that was kept.
void AddEnd(const v1::Call& call, JsonObject& job) {
  const v1::CallOutcome& outcome = call.outcome();
  job.String("certainty", CertaintyName(call.certainty()));
  if (call.reason() != v1::REASON_UNSPECIFIED) {
    job.String("reason", DescribeReason(call.reason()).reason);
  }
  const bool answered = outcome.class_() == v1::RESULT || outcome.class_() == v1::RPC_ERROR;
  if (answered && outcome.body().content_case() == v1::Body::kInline) {
    job.Raw(outcome.class_() == v1::RESULT ? "result" : "error", outcome.body().inline_());
  } else if (answered && outcome.body().content_case() == v1::Body::kSize) {
    job.Int("result_bytes", static_cast<int64_t>(outcome.body().size()));
  }
  if (outcome.late()) job.Bool("late", true);
  if (core::IsObject(outcome.diagnostics())) job.Raw("diagnostics", outcome.diagnostics());
}

std::string_view FailureKind(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return "bad-request";
    case absl::StatusCode::kNotFound:
      return "not-found";
    case absl::StatusCode::kFailedPrecondition:
      return "failed-precondition";
    case absl::StatusCode::kPermissionDenied:
      return "policy-denied";
    default:
      return "error";
  }
}

}  // namespace

std::string DocumentResult(std::string_view document, core::McpRevision revision, bool is_error) {
  std::string result =
      fmt::format(R"({{"content":[{{"type":"text","text":{}}}])", core::QuoteJson(document));
  if (core::HasStructuredContent(revision)) {
    result.append(R"(,"structuredContent":)").append(document);
  }
  return result.append(is_error ? R"(,"isError":true})" : R"(,"isError":false})");
}

std::string RenderHits(const v1::SearchToolsResponse& found) {
  return JsonObject()
      .Int("total", found.total())
      .Raw("hits", RenderArray(found.hits(), RenderHit))
      .Take();
}

std::string RenderTool(const v1::DescribeToolResponse& tool) {
  const v1::ToolHit& hit = tool.hit();
  const std::string effective = JsonObject()
                                    .Bool("idempotent", tool.idempotent())
                                    .Bool("read_only", tool.read_only())
                                    .String("source", tool.marking_source())
                                    .Int("timeout_ms", static_cast<int64_t>(tool.run_ms()))
                                    .Take();
  const std::string call =
      JsonObject().String("tool_slug", hit.slug()).Raw("arguments", "{}").Take();
  return JsonObject()
      .String("slug", hit.slug())
      .String("app", hit.app())
      .String("instance", hit.seat_name())
      .String("seat_id", hit.seat_id())
      .Bool("loaded", hit.loaded())
      .Raw("definition", tool.definition().empty() ? "{}" : std::string_view(tool.definition()))
      .Raw("effective", effective)
      .Raw("next_step", hit.loaded() ? Step("call_tool", call) : LoadStep(hit))
      .Take();
}

std::string RenderInstances(const v1::ListInstancesResponse& rows) {
  return JsonObject()
      .Int("total", rows.total())
      .Raw("instances", RenderArray(rows.instances(), RenderInstance))
      .Take();
}

bool FailedToLoad(const v1::LoadSkillResponse& loaded) {
  return core::FindMember(loaded.backend_result(), "isError") == "true";
}

std::string RenderLoadedSkill(std::string_view skill, const v1::LoadSkillResponse& loaded) {
  JsonObject document;
  document.String("skill", skill)
      .Bool("loaded", !FailedToLoad(loaded))
      .String("instance", loaded.seat_name())
      .String("seat_id", loaded.seat_id())
      .Raw("new_tools", RenderArray(loaded.new_tools(), [](const v1::ToolHit& hit) {
             return JsonObject().String("slug", hit.slug()).String("summary", hit.summary()).Take();
           }));
  if (!loaded.backend_result().empty()) document.Raw("backend", loaded.backend_result());
  if (loaded.new_tools_size() > 0) document.Raw("next_step", DescribeStep(loaded.new_tools(0)));
  return document.Take();
}

std::string RenderJob(const v1::Call& call, bool waited) {
  const std::string job_id = absl::BytesToHexString(call.call_id());
  JsonObject job;
  job.String("job_id", job_id)
      .String("status", JobStatus(call.phase(), call.reason()))
      .String("tool", call.tool().empty() ? call.method() : call.tool())
      .String("seat_id", call.seat_id())
      .Int("attempt", call.attempt())
      .Int("age_ms", static_cast<int64_t>(call.age_ms()))
      .Int("queue_ms", static_cast<int64_t>(call.queue_ms()))
      .Int("run_ms", static_cast<int64_t>(call.run_ms()));
  if (call.phase() == v1::CALL_QUEUED) job.Int("ahead", call.ahead());
  const std::string& message =
      call.outcome().message().empty() ? call.message() : call.outcome().message();
  if (!message.empty()) job.String("message", message);
  if (!call.backend_job_id().empty()) job.String("backend_job_id", call.backend_job_id());
  if (IsOver(call)) {
    AddEnd(call, job);
  } else {
    if (waited) job.Bool("timed_out", true);
    job.Raw("next_step", WaitStep(job_id));
  }
  return job.Take();
}

bool IsOver(const v1::Call& call) { return call.phase() >= v1::CALL_SUCCEEDED; }

bool HasLargeResult(const v1::Call& call) {
  const v1::CallOutcome& outcome = call.outcome();
  const bool answered = outcome.class_() == v1::RESULT || outcome.class_() == v1::RPC_ERROR;
  return IsOver(call) && answered && outcome.body().content_case() == v1::Body::kSize;
}

bool EndedBadly(const v1::Call& call) { return call.phase() > v1::CALL_SUCCEEDED; }

std::string RenderEnvelope(const LongCall& call) {
  const std::string job_id = absl::BytesToHexString(std::string(call.call_id));
  JsonObject job;
  job.String("status", JobStatus(call.phase, v1::REASON_UNSPECIFIED)).String("job_id", job_id);
  if (!call.tool.empty()) job.String("tool", call.tool);
  return job.Int("elapsed_ms", absl::ToInt64Milliseconds(call.age))
      .String("message",
              "The call takes long and goes on. Do not repeat it: get its result with "
              "jobs_wait, stop it with jobs_cancel.")
      .Raw("next_step", WaitStep(job_id))
      .Take();
}

std::string RenderFailure(const absl::Status& status) {
  return JsonObject()
      .Raw("error", JsonObject()
                        .String("kind", FailureKind(status))
                        .String("message", core::Message(status))
                        .Take())
      .Take();
}

std::string LoadSkillFirst(const v1::ToolHit& hit) {
  return fmt::format(
      "'{}' belongs to the skill '{}', which is not loaded in '{}'; call load_skill "
      "with {} first, then repeat this call",
      hit.slug(), hit.skill(), hit.seat_name(), LoadSkillArguments(hit));
}

std::string AmbiguousTool(std::string_view name, const std::vector<v1::ToolHit>& candidates) {
  constexpr size_t kNamedMax = 10;
  std::string slugs;
  for (size_t i = 0; i < candidates.size() && i < kNamedMax; ++i) {
    if (i > 0) slugs.append(", ");
    slugs.append(candidates[i].slug());
  }
  return fmt::format("'{}' is the name of {} tools; call_tool with one of these slugs: {}{}", name,
                     candidates.size(), slugs, candidates.size() > kNamedMax ? ", ..." : "");
}

}  // namespace callboard::bridge
