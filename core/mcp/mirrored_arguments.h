// Arguments that a tool's schema has repeated in headers (x-mcp-header, MCP 2026-07-28): which
// those are, and which annotations break the rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace callboard::core {

// A sound annotation is a token of RFC 9110, unique without regard to case, of a property of type
// string, integer or boolean that is reached through `properties` only. All of this file is pure;
// what is nested deeper than 16 schemas counts as not reached, and a key that is written with
// escapes is no annotation.

struct MirroredArgument {
  std::string header;      // as annotated: what follows "Mcp-Param-"
  std::string_view value;  // raw, part of the arguments; empty: the argument is absent or null
};

// The arguments with sound annotations, in the order of their headers in lower case. Other
// annotations count for nothing.
std::vector<MirroredArgument> FindMirroredArguments(std::string_view input_schema,
                                                    std::string_view arguments);

// Whether the text of a schema, or of a whole tool, may have annotations at all.
bool MayMirror(std::string_view text);

// What is wrong with the first annotation that is not sound, as part of a sentence; "" if all are.
std::string FindMirrorFault(std::string_view input_schema);

// The schema without the annotations that are not sound; all other bytes stay.
std::string RemoveMirrorFaults(std::string_view input_schema);

}  // namespace callboard::core
