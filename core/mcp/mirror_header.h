// Headers that repeat parts of a body (Mcp-Name, Mcp-Param-*): their two forms, and what equals
// what.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace callboard::core {

// The text a header value stands for: spaces and tabs around it count for nothing, and
// "=?base64?...?=" (in lower case) holds bytes that no header may carry. InvalidArgument: base64
// that is not canonical (alphabet, padding), text that is no UTF-8, bytes outside printable ASCII.
// Pure, as all of this file.
absl::StatusOr<std::string> DecodeMirrorHeader(std::string_view value);

// The other way round: plain where that is read back as the same text, else base64.
std::string EncodeMirrorHeader(std::string_view text);

// OK if the header repeats `raw`, a JSON string, number or boolean. Numbers compare by value.
// InvalidArgument says what differs or what is wrong with the header.
absl::Status CheckMirrorHeader(std::string_view value, std::string_view raw);

// Whether a name may be that of a header (a token of RFC 9110), and a text its value (of RFC 9110
// without the obsolete bytes beyond ASCII).
bool IsHeaderToken(std::string_view name);
bool IsHeaderText(std::string_view value);

}  // namespace callboard::core
