// The tools the facade advertises: their fixed bytes and the names they answer to.
#pragma once

#include <optional>
#include <string_view>

namespace callboard::bridge {

enum class FacadeTool {
  kSearch,
  kDescribe,
  kCall,
  kListInstances,
  kLoadSkill,
  kJobsGetStatus,
  kJobsWait,
  kJobsCancel,
};

// By advertised name or by the name of dcc-mcp 0.20 (search, describe, call).
std::optional<FacadeTool> FindFacadeTool(std::string_view name);

// The result of tools/list: the same bytes for every client, always, so that models' caches hold.
std::string_view FacadeToolList();

// "search_tools, describe_tool, ...", for messages.
std::string_view FacadeToolNames();

// What an initialize tells the model.
std::string_view FacadeInstructions();

}  // namespace callboard::bridge
