// Implementation of the comparison of arguments and headers.
#include "server/flows/mirrored_arguments.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "core/mcp/json.h"
#include "core/mcp/mirror_header.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr std::string_view kAnnotation = "x-mcp-header";
constexpr int kDepthMax = 16;

struct Mirror {
  std::string header;      // as annotated
  std::string_view value;  // raw; empty: the argument is absent or null
  bool twice = false;
};
// By the header's name in lower case.
using Mirrors = std::map<std::string, Mirror>;

bool MayBeMirrored(std::string_view schema) {
  const auto type = core::FindString(schema, "type");
  return type == "string" || type == "integer" || type == "boolean";
}

void Collect(std::string_view schema, std::string_view value, int depth, Mirrors* mirrors) {
  const auto properties = core::FindMember(schema, "properties");
  if (!properties || depth > kDepthMax || properties->find(kAnnotation) == properties->npos) {
    return;
  }
  (void)core::ForEachMember(*properties, [&](const core::JsonMember& property) {
    const auto name = core::DecodeString(property.key_escaped ? fmt::format("\"{}\"", property.key)
                                                              : core::QuoteJson(property.key));
    std::string_view argument = core::FindMember(value, name.value_or("")).value_or("");
    if (argument == "null") argument = {};
    const auto header = core::FindString(property.value, kAnnotation);
    if (header && core::IsHeaderToken(*header) && MayBeMirrored(property.value)) {
      const auto [at, is_new] =
          mirrors->try_emplace(absl::AsciiStrToLower(*header), Mirror{*header, argument});
      if (!is_new) at->second.twice = true;
    }
    Collect(property.value, argument, depth + 1, mirrors);
    return true;
  });
}

absl::Status Mismatch(const Mirror& mirror, std::string_view what) {
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("Mcp-Param-{} {}", mirror.header, what));
}

}  // namespace

absl::Status CheckMirroredArguments(
    std::string_view input_schema, std::string_view arguments,
    const google::protobuf::RepeatedPtrField<v1::ParamHeader>& headers) {
  // Most schemas have none, and say so to a text search.
  if (input_schema.find(kAnnotation) == input_schema.npos) return absl::OkStatus();
  Mirrors mirrors;
  Collect(input_schema, arguments, 0, &mirrors);
  for (const auto& [lower, mirror] : mirrors) {
    if (mirror.twice) continue;
    const v1::ParamHeader* found = nullptr;
    for (const v1::ParamHeader& header : headers) {
      if (header.name() != lower) continue;
      if (found != nullptr) return Mismatch(mirror, "is there twice");
      found = &header;
    }
    if (found == nullptr && mirror.value.empty()) continue;
    if (found == nullptr) return Mismatch(mirror, "is missing; the argument is there");
    if (mirror.value.empty()) return Mismatch(mirror, "is there, the argument is not");
    const absl::Status same = core::CheckMirrorHeader(found->value(), mirror.value);
    if (!same.ok()) return Mismatch(mirror, fmt::format("does not fit: {}", core::Message(same)));
  }
  return absl::OkStatus();
}

}  // namespace callboard::server
