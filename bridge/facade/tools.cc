// The advertised tools of the facade.
#include "bridge/facade/tools.h"

#include <array>
#include <utility>

namespace callboard::bridge {
namespace {

constexpr std::array<std::pair<std::string_view, FacadeTool>, 11> kNames = {{
    {"search_tools", FacadeTool::kSearch},
    {"describe_tool", FacadeTool::kDescribe},
    {"call_tool", FacadeTool::kCall},
    {"list_instances", FacadeTool::kListInstances},
    {"load_skill", FacadeTool::kLoadSkill},
    {"jobs_get_status", FacadeTool::kJobsGetStatus},
    {"jobs_wait", FacadeTool::kJobsWait},
    {"jobs_cancel", FacadeTool::kJobsCancel},
    {"search", FacadeTool::kSearch},
    {"describe", FacadeTool::kDescribe},
    {"call", FacadeTool::kCall},
}};

// Literals join without line feeds: the list is one line. What answers are made of is in
// rendering.cc: members may come on top of those of an outputSchema, of which each is optional
// where a failure has `error` alone. call_tool has none: its results are those of the tools.
constexpr std::string_view kToolList =
    R"({"tools":[)"
    R"({"name":"search_tools","title":"Search tools",)"
    R"("description":"Find tools of the running DCC applications (Maya, Blender, Houdini, ...) by what they do. Start here. Each hit has a slug and a next_step that names the call to make next.",)"
    R"("inputSchema":{"type":"object","properties":{)"
    R"("query":{"type":"string","description":"What the tool should do, e.g. 'create sphere'. Empty lists all."},)"
    R"("dcc_type":{"type":"string","description":"Only this kind of application, e.g. 'maya'."},)"
    R"("instance":{"type":"string","description":"Only this instance: name, id, or the first 8 characters of its id."},)"
    R"("limit":{"type":"integer","minimum":1,"maximum":100,"default":25},)"
    R"("offset":{"type":"integer","minimum":0,"default":0},)"
    R"("loaded_only":{"type":"boolean","default":false,"description":"Leave out tools whose skill must be loaded first."}}},)"
    R"("outputSchema":{"type":"object","properties":{"total":{"type":"integer"},)"
    R"("hits":{"type":"array","items":{"type":"object","properties":{"slug":{"type":"string"},"summary":{"type":"string"},"app":{"type":"string"},)"
    R"("instance":{"type":"string"},"loaded":{"type":"boolean"},"skill":{"type":"string"},"next_step":{"type":"object"}},)"
    R"("required":["slug","summary","app","instance","loaded","next_step"]}},)"
    R"("error":{"type":"object","description":"Only of a failure."}}},)"
    R"("annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},)"
    R"({"name":"describe_tool","title":"Describe a tool",)"
    R"("description":"Get one tool's definition: description, inputSchema, annotations, and whether it is safe to repeat. Read it before the first call_tool.",)"
    R"("inputSchema":{"type":"object","properties":{)"
    R"("tool_slug":{"type":"string","description":"Slug from search_tools: <dcc>.<id8>.<tool>."}},"required":["tool_slug"]},)"
    R"("outputSchema":{"type":"object","properties":{"slug":{"type":"string"},"app":{"type":"string"},"instance":{"type":"string"},)"
    R"("seat_id":{"type":"string"},"loaded":{"type":"boolean"},"definition":{"type":"object"},)"
    R"("effective":{"type":"object","properties":{"idempotent":{"type":"boolean"},"read_only":{"type":"boolean"},"source":{"type":"string"},"timeout_ms":{"type":"integer"}}},)"
    R"("next_step":{"type":"object"},"error":{"type":"object","description":"Only of a failure."}}},)"
    R"("annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},)"
    R"({"name":"call_tool","title":"Call a tool",)"
    R"("description":"Run a tool in a DCC application. Returns the tool's own result unchanged.",)"
    R"("inputSchema":{"type":"object","properties":{)"
    R"("tool_slug":{"type":"string","description":"Slug from search_tools: <dcc>.<id8>.<tool>."},)"
    R"("arguments":{"type":"object","description":"Arguments that fit the tool's inputSchema (see describe_tool)."}},"required":["tool_slug"]},)"
    R"("annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}},)"
    R"({"name":"list_instances","title":"List instances",)"
    R"("description":"List the DCC applications that are connected, with scene, status and advice.",)"
    R"("inputSchema":{"type":"object","properties":{)"
    R"("dcc_type":{"type":"string","description":"Only this kind of application."},)"
    R"("query":{"type":"string","description":"Only rows that contain this text."},)"
    R"("include_stale":{"type":"boolean","default":false},)"
    R"("include_dead":{"type":"boolean","default":false},)"
    R"("limit":{"type":"integer","minimum":1,"maximum":100,"default":20},)"
    R"("offset":{"type":"integer","minimum":0,"default":0}}},)"
    R"("outputSchema":{"type":"object","properties":{"total":{"type":"integer"},)"
    R"("instances":{"type":"array","items":{"type":"object","properties":{"instance":{"type":"string"},"seat_id":{"type":"string"},"app":{"type":"string"},)"
    R"("scene":{"type":"string"},"status":{"type":"string"},"advice":{"type":"string"},"queue_depth":{"type":"integer"},"tools":{"type":"integer"},"mcp_path":{"type":"string"}},)"
    R"("required":["instance","seat_id","app","status","advice"]}},)"
    R"("error":{"type":"object","description":"Only of a failure."}}},)"
    R"("annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},)"
    R"({"name":"load_skill","title":"Load a skill",)"
    R"("description":"Load a skill in one application so that its tools can be called. Needed when a search hit has loaded=false.",)"
    R"("inputSchema":{"type":"object","properties":{)"
    R"("skill_name":{"type":"string","description":"Skill named by the search hit."},)"
    R"("dcc_type":{"type":"string","description":"Kind of application, if only one instance of it runs."},)"
    R"("instance":{"type":"string","description":"The instance to load it in."}},"required":["skill_name"]},)"
    R"("outputSchema":{"type":"object","properties":{"skill":{"type":"string"},"loaded":{"type":"boolean"},"instance":{"type":"string"},"seat_id":{"type":"string"},)"
    R"("new_tools":{"type":"array","items":{"type":"object","properties":{"slug":{"type":"string"},"summary":{"type":"string"}},"required":["slug","summary"]}},)"
    R"("next_step":{"type":"object"},"error":{"type":"object","description":"Only of a failure."}}},)"
    R"("annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}},)"
    R"({"name":"jobs_get_status","title":"Look at a job",)"
    R"("description":"Tell how a call is doing that was answered with a job_id, and its result once it has ended.",)"
    R"("inputSchema":{"type":"object","properties":{)"
    R"("job_id":{"type":"string","description":"From the answer with status running or pending."},)"
    R"("include_result":{"type":"boolean","default":true}},"required":["job_id"]},)"
    R"("outputSchema":{"type":"object","properties":{"job_id":{"type":"string"},)"
    R"("status":{"type":"string","enum":["pending","running","completed","failed","cancelled","interrupted"]},)"
    R"("tool":{"type":"string"},"message":{"type":"string"},"certainty":{"type":"string"},"result":{},"timed_out":{"type":"boolean"},)"
    R"("next_step":{"type":"object"},"error":{"type":"object","description":"Only of a failure."}}},)"
    R"("annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},)"
    R"({"name":"jobs_wait","title":"Wait for a job",)"
    R"("description":"Wait until a job has ended and return its result. If it takes longer the answer has timed_out=true: call this again.",)"
    R"("inputSchema":{"type":"object","properties":{)"
    R"("job_id":{"type":"string","description":"From the answer with status running or pending."},)"
    R"("timeout_secs":{"type":"integer","minimum":0,"maximum":45,"default":30},)"
    R"("include_result":{"type":"boolean","default":true}},"required":["job_id"]},)"
    R"("outputSchema":{"type":"object","properties":{"job_id":{"type":"string"},)"
    R"("status":{"type":"string","enum":["pending","running","completed","failed","cancelled","interrupted"]},)"
    R"("tool":{"type":"string"},"message":{"type":"string"},"certainty":{"type":"string"},"result":{},"timed_out":{"type":"boolean"},)"
    R"("next_step":{"type":"object"},"error":{"type":"object","description":"Only of a failure."}}},)"
    R"("annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},)"
    R"({"name":"jobs_cancel","title":"Cancel a job",)"
    R"("description":"Ask for a job to be cancelled. One that waits in the queue never starts; a tool at work is told.",)"
    R"("inputSchema":{"type":"object","properties":{)"
    R"("job_id":{"type":"string","description":"From the answer with status running or pending."}},"required":["job_id"]},)"
    R"("outputSchema":{"type":"object","properties":{"job_id":{"type":"string"},)"
    R"("status":{"type":"string","enum":["pending","running","completed","failed","cancelled","interrupted"]},)"
    R"("tool":{"type":"string"},"message":{"type":"string"},"certainty":{"type":"string"},"result":{},"timed_out":{"type":"boolean"},)"
    R"("next_step":{"type":"object"},"error":{"type":"object","description":"Only of a failure."}}},)"
    R"("annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}})"
    R"(]})";

}  // namespace

std::optional<FacadeTool> FindFacadeTool(std::string_view name) {
  for (const auto& [known, tool] : kNames) {
    if (known == name) return tool;
  }
  return std::nullopt;
}

std::string_view FacadeToolList() { return kToolList; }

std::string_view FacadeToolNames() {
  return "search_tools, describe_tool, call_tool, list_instances, load_skill, jobs_get_status, "
         "jobs_wait, jobs_cancel";
}

std::string_view FacadeInstructions() {
  return "Callboard reaches every running DCC application of the studio. Work in this order: "
         "search_tools to find a tool, load_skill if its hit has loaded=false, describe_tool for "
         "its schema, call_tool to run it. A call that takes long is answered with a job_id and "
         "goes "
         "on: jobs_wait gets its result. list_instances shows which applications are up. For "
         "work in one application only, connect to /mcp/{instance} instead: its own tools appear "
         "there.";
}

}  // namespace callboard::bridge
