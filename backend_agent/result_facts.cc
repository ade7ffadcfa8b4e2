// Implementation of the search for facts.
#include "backend_agent/result_facts.h"

#include <string>

#include "core/mcp/json.h"

namespace callboard::agent {

namespace {

// A job envelope is small; a larger structuredContent is data and is not searched.
constexpr size_t kEnvelopeBytesMax = 64 * 1024;

void TakeString(std::string_view object, std::initializer_list<std::string_view> path,
                std::string* target) {
  if (!target->empty()) return;
  if (auto raw = core::FindPath(object, path)) {
    if (auto text = core::DecodeString(*raw)) *target = std::move(*text);
  }
}

void TakeJob(std::string_view object, v1::OutcomeFacts& facts) {
  TakeString(object, {"job_id"}, facts.mutable_backend_job_id());
  TakeString(object, {"_meta", "dcc", "jobId"}, facts.mutable_backend_job_id());
  if (facts.backend_job_id().empty()) return;
  TakeString(object, {"status"}, facts.mutable_job_status());
  TakeString(object, {"_meta", "status"}, facts.mutable_job_status());
}

}  // namespace

v1::OutcomeFacts FindFacts(std::string_view result) {
  v1::OutcomeFacts facts;
  facts.set_size(result.size());
  if (!core::IsObject(result)) return facts;
  std::string_view structured;
  std::string_view meta;
  // A malformed tail only ends the search.
  (void)core::ForEachMember(result, [&](core::JsonMember member) {
    if (member.Is("isError")) {
      facts.set_is_error(member.value == "true");
    } else if (member.Is("structuredContent")) {
      structured = member.value;
    } else if (member.Is("_meta")) {
      meta = member.value;
    } else if (member.Is("resultType") || member.Is("ttlMs") || member.Is("cacheScope")) {
      facts.add_era_fields(std::string(member.key));
    }
    return true;
  });
  if (core::IsObject(structured) && structured.size() <= kEnvelopeBytesMax) {
    TakeJob(structured, facts);
  }
  if (core::IsObject(meta) && meta.size() <= kEnvelopeBytesMax) {
    TakeString(meta, {"dcc", "jobId"}, facts.mutable_backend_job_id());
    if (!facts.backend_job_id().empty()) {
      TakeString(meta, {"status"}, facts.mutable_job_status());
      TakeString(meta, {"dcc", "status"}, facts.mutable_job_status());
    }
  }
  return facts;
}

bool ChangesLists(std::string_view tool) {
  return tool == "load_skill" || tool == "unload_skill" || tool == "activate_tool_group" ||
         tool == "deactivate_tool_group";
}

}  // namespace callboard::agent
