// Implementation of the comparison of arguments and headers.
#include "server/flows/mirrored_arguments.h"

#include <string>

#include "absl/strings/ascii.h"
#include "core/mcp/mirror_header.h"
#include "core/mcp/mirrored_arguments.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

absl::Status Mismatch(const core::MirroredArgument& mirror, std::string_view what) {
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("Mcp-Param-{} {}", mirror.header, what));
}

}  // namespace

absl::Status CheckMirroredArguments(
    std::string_view input_schema, std::string_view arguments,
    const google::protobuf::RepeatedPtrField<v1::ParamHeader>& headers) {
  for (const core::MirroredArgument& mirror :
       core::FindMirroredArguments(input_schema, arguments)) {
    const std::string lower = absl::AsciiStrToLower(mirror.header);
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
