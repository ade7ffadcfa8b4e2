// Arguments that a tool's schema has repeated in headers (x-mcp-header, MCP 2026-07-28).
#pragma once

#include <google/protobuf/repeated_field.h>

#include <string_view>

#include "absl/status/status.h"
#include "callboard/v1/control.pb.h"

namespace callboard::server {

// Compares the headers with the arguments whose schema has the annotation: strings, integers and
// booleans, at any depth of `properties`. InvalidArgument names the header that is missing,
// malformed, there twice or different. Annotations that break the rules (no token, one name twice,
// another type) and headers that no annotation names count for nothing. Pure.
absl::Status CheckMirroredArguments(
    std::string_view input_schema, std::string_view arguments,
    const google::protobuf::RepeatedPtrField<v1::ParamHeader>& headers);

}  // namespace callboard::server
