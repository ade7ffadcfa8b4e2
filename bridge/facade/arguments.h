// What clients write in the facade's arguments, in all the forms dcc-mcp accepts. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace callboard::bridge {

struct FacadeArguments {
  std::string slug;      // tool_slug, slug
  std::string app;       // dcc_type, dcc, app
  std::string instance;  // instance, instance_id
  std::string query;
  std::string skill;             // skill_name, skill
  std::string arguments = "{}";  // raw JSON object: of the tool that is called
  std::string meta;              // raw JSON object, or empty
  std::string job_id;            // job_id, id
  bool include_result = true;
  std::optional<absl::Duration> timeout;  // timeout_ms, timeout_secs
  uint32_t limit = 0;                     // 0: not given
  uint32_t offset = 0;
  bool loaded_only = false;
  bool include_stale = false;
  bool include_dead = false;
};

// `raw` is the member `arguments` of tools/call. InvalidArgument names the member that is wrong.
absl::StatusOr<FacadeArguments> ParseFacadeArguments(std::string_view raw);

// The arguments of a tool as one raw JSON object: absent, null and "" are {}, a string that holds
// an object is that object. Bytes of an object are never changed.
absl::StatusOr<std::string> NormalizeArguments(std::string_view raw);

// The parts of "<app>.<id>.<tool>"; the tool's own name may contain dots.
struct SlugParts {
  std::string_view app;
  std::string_view instance;
  std::string_view tool;
};
std::optional<SlugParts> SplitSlug(std::string_view slug);

}  // namespace callboard::bridge
