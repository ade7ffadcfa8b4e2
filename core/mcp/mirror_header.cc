// Implementation of the headers that repeat parts of a body.
#include "core/mcp/mirror_header.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "core/mcp/json.h"
#include "core/mcp/json_number.h"
#include "core/mcp/json_scanner.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::core {
namespace {

constexpr std::string_view kBegin = "=?base64?";
constexpr std::string_view kEnd = "?=";
constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";
constexpr size_t kShownBytesMax = 100;

bool IsEncoded(std::string_view value) {
  return value.size() >= kBegin.size() + kEnd.size() && value.starts_with(kBegin) &&
         value.ends_with(kEnd);
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\t' || (c >= ' ' && c <= '~'); });
}

std::string_view Trimmed(std::string_view value) {
  const size_t first = value.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return value.substr(first, value.find_last_not_of(" \t") - first + 1);
}

}  // namespace

absl::StatusOr<std::string> DecodeMirrorHeader(std::string_view value) {
  value = Trimmed(value);
  if (!IsPrintable(value)) {
    return absl::InvalidArgumentError(
        "the header has bytes outside printable ASCII; such values go in the form =?base64?...?=");
  }
  if (!IsEncoded(value)) return std::string(value);
  const std::string_view base64 =
      value.substr(kBegin.size(), value.size() - kBegin.size() - kEnd.size());
  std::string text;
  // Only what would be encoded in exactly this way: no two headers for one text.
  if (!absl::Base64Unescape(ToAbsl(base64), &text) || absl::Base64Escape(text) != ToAbsl(base64)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("the header's base64 is malformed: '{}'", base64.substr(0, kShownBytesMax)));
  }
  if (!IsValidUtf8(text)) return absl::InvalidArgumentError("the header's base64 holds no UTF-8");
  return text;
}

std::string EncodeMirrorHeader(std::string_view text) {
  const bool plain = IsPrintable(text) && text.find('\t') == text.npos &&
                     Trimmed(text).size() == text.size() && !IsEncoded(text);
  if (plain) return std::string(text);
  return fmt::format("{}{}{}", kBegin, absl::Base64Escape(ToAbsl(text)), kEnd);
}

absl::Status CheckMirrorHeader(std::string_view value, std::string_view raw) {
  const auto text = DecodeMirrorHeader(value);
  if (!text.ok()) return text.status();
  const bool same = IsString(raw)   ? DecodeString(raw) == *text
                    : IsNumber(raw) ? CompareNumbers(raw, *text) == 0
                                    : raw == *text;
  if (same) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   fmt::format("the header says '{}', the body {}",
                               std::string_view(*text).substr(0, kShownBytesMax),
                               raw.substr(0, kShownBytesMax)));
}

bool IsHeaderToken(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kTokenMarks.find(c) != std::string_view::npos;
  });
}

bool IsHeaderText(std::string_view value) { return IsPrintable(value); }

}  // namespace callboard::core
