// How the facade shows what the control plane found: compact JSON that says what to do next. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "callboard/v1/control.pb.h"
#include "core/mcp/versions.h"

namespace callboard::bridge {

// A CallToolResult with `document` (a JSON object) as text and, where the revision knows it, as
// structured content.
std::string DocumentResult(std::string_view document, core::McpRevision revision, bool is_error);

std::string RenderHits(const v1::SearchToolsResponse& found);
std::string RenderTool(const v1::DescribeToolResponse& tool);
std::string RenderInstances(const v1::ListInstancesResponse& rows);
// Whether the application answered that it could not load the skill.
bool FailedToLoad(const v1::LoadSkillResponse& loaded);
std::string RenderLoadedSkill(std::string_view skill, const v1::LoadSkillResponse& loaded);

// What a job is, its outcome included if the control plane gave it. `waited`: says also whether the
// wait was in vain.
std::string RenderJob(const v1::Call& call, bool waited);
bool IsOver(const v1::Call& call);
// Whether what it ended with is to be fetched, as it is too large to come with the call.
bool HasLargeResult(const v1::Call& call);
// Whether it is over without a result: failed, cancelled or interrupted.
bool EndedBadly(const v1::Call& call);

// A call that takes too long for its client, as a job (C13).
struct LongCall {
  std::string_view call_id;
  std::string_view tool;  // slug, if it is known
  v1::CallPhase phase;
  absl::Duration age;
};
std::string RenderEnvelope(const LongCall& call);

// A failure the caller can act on: {"error":{"kind":..,"message":..}}.
std::string RenderFailure(const absl::Status& status);

// Says which load_skill call makes a tool callable, with its exact arguments.
std::string LoadSkillFirst(const v1::ToolHit& hit);
// Says that a name fits several tools and names their slugs.
std::string AmbiguousTool(std::string_view name, const std::vector<v1::ToolHit>& candidates);

}  // namespace callboard::bridge
