// Implementation of the JSON text functions that read, and of strings.
#include "core/mcp/json.h"

#include <fmt/format.h>

#include <charconv>
#include <deque>
#include <iterator>

#include "absl/container/flat_hash_set.h"
#include "core/mcp/json_scanner.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// One value of a container, its grammar checked as far as `check` says.
bool ReadValue(JsonScanner& scanner, JsonCheck check, std::string_view* value) {
  const char* const start = scanner.position();
  const bool ok = check == JsonCheck::kFull ? scanner.CheckValue(kJsonDepthMax - 1)
                                            : scanner.SkipValue(kJsonDepthMax - 1);
  *value = {start, static_cast<size_t>(scanner.position() - start)};
  return ok;
}

bool ReadEnd(JsonScanner& scanner) {
  scanner.SkipSpace();
  return scanner.AtEnd() || scanner.FailHere("text after the value");
}

// False on a fault, which the scanner then describes; true also when `visit` stopped the reading.
bool ReadMembers(JsonScanner& scanner, JsonCheck check, absl::FunctionRef<bool(JsonMember)> visit) {
  scanner.SkipSpace();
  if (!scanner.Take('{')) return scanner.FailHere("expected an object");
  scanner.SkipSpace();
  if (scanner.Take('}')) return ReadEnd(scanner);
  for (;;) {
    JsonMember member;
    if (!scanner.SkipKey(&member.key)) return false;
    member.key_escaped = scanner.escaped();
    if (!ReadValue(scanner, check, &member.value)) return false;
    if (!visit(member)) return true;
    scanner.SkipSpace();
    if (scanner.Take('}')) return ReadEnd(scanner);
    if (!scanner.Take(',')) return scanner.FailHere("expected ',' or '}'");
    scanner.SkipSpace();
  }
}

bool ReadElements(JsonScanner& scanner, absl::FunctionRef<bool(std::string_view)> visit) {
  scanner.SkipSpace();
  if (!scanner.Take('[')) return scanner.FailHere("expected an array");
  scanner.SkipSpace();
  if (scanner.Take(']')) return ReadEnd(scanner);
  for (;;) {
    std::string_view value;
    if (!ReadValue(scanner, JsonCheck::kStructure, &value)) return false;
    if (!visit(value)) return true;
    scanner.SkipSpace();
    if (scanner.Take(']')) return ReadEnd(scanner);
    if (!scanner.Take(',')) return scanner.FailHere("expected ',' or ']'");
    scanner.SkipSpace();
  }
}

void AppendUtf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// The unit of the escape \uXXXX at `at`; nullopt if none stands there. Well-formedness is known.
std::optional<uint32_t> UnicodeEscapeAt(std::string_view inner, size_t at) {
  if (inner.substr(at, 2) != "\\u") return std::nullopt;
  uint32_t unit = 0;
  std::from_chars(inner.data() + at + 2, inner.data() + at + 6, unit, 16);
  return unit;
}

// Text of a string that SkipString has accepted, given without its quotes.
std::string Unescape(std::string_view inner) {
  std::string out;
  out.reserve(inner.size());
  for (size_t at = 0; at < inner.size();) {
    const size_t escape = inner.find('\\', at);
    out.append(inner.substr(at, escape - at));
    if (escape == std::string_view::npos) break;
    at = escape + 2;
    switch (const char kind = inner[escape + 1]) {
      case 'b':
        out.push_back('\b');
        break;
      case 'f':
        out.push_back('\f');
        break;
      case 'n':
        out.push_back('\n');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'u': {
        at = escape + 6;
        uint32_t code = *UnicodeEscapeAt(inner, escape);
        const bool high = code >= 0xd800 && code < 0xdc00;
        const auto low = high ? UnicodeEscapeAt(inner, at) : std::nullopt;
        if (low && *low >= 0xdc00 && *low < 0xe000) {
          code = 0x10000 + ((code - 0xd800) << 10) + (*low - 0xdc00);
          at += 6;
        } else if (code >= 0xd800 && code < 0xe000) {
          code = 0xfffd;
        }
        AppendUtf8(out, code);
        break;
      }
      default:
        out.push_back(kind);
    }
  }
  return out;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p != end;) {
    const size_t length = Utf8SequenceLength(p, end);
    if (length == 0) {
      out.append(kReplacement);
      ++p;
    } else {
      out.append(p, length);
      p += length;
    }
  }
  return out;
}

void AppendEscaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out.append("\\\"");
      break;
    case '\\':
      out.append("\\\\");
      break;
    case '\b':
      out.append("\\b");
      break;
    case '\f':
      out.append("\\f");
      break;
    case '\n':
      out.append("\\n");
      break;
    case '\r':
      out.append("\\r");
      break;
    case '\t':
      out.append("\\t");
      break;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
  }
}

void AppendQuoted(std::string& out, std::string_view text) {
  if (!IsValidUtf8(text)) return AppendQuoted(out, ReplaceInvalidUtf8(text));
  out.push_back('"');
  const char* p = text.data();
  const char* const end = p + text.size();
  for (;;) {
    const char* const stop = FindStringStop(p, end);
    out.append(p, stop);
    if (stop == end) break;
    AppendEscaped(out, *stop);
    p = stop + 1;
  }
  out.push_back('"');
}

const char* EndOf(std::string_view view) { return view.data() + view.size(); }

}  // namespace

bool JsonMember::KeyDecodesTo(std::string_view decoded) const { return Unescape(key) == decoded; }

absl::Status ValidateJson(std::string_view text, int depth_max) {
  CALLBOARD_RETURN_IF_ERROR(CheckUtf8(text));
  JsonScanner scanner(text);
  scanner.SkipSpace();
  if (!scanner.CheckValue(depth_max) || !ReadEnd(scanner)) return scanner.status();
  return absl::OkStatus();
}

absl::Status ForEachMember(std::string_view text, absl::FunctionRef<bool(JsonMember)> visit,
                           JsonCheck check) {
  if (check == JsonCheck::kFull) CALLBOARD_RETURN_IF_ERROR(CheckUtf8(text));
  JsonScanner scanner(text);
  return ReadMembers(scanner, check, visit) ? absl::OkStatus() : scanner.status();
}

absl::Status ForEachElement(std::string_view text,
                            absl::FunctionRef<bool(std::string_view)> visit) {
  JsonScanner scanner(text);
  return ReadElements(scanner, visit) ? absl::OkStatus() : scanner.status();
}

std::optional<std::string_view> FindMember(std::string_view text, std::string_view key) {
  std::optional<std::string_view> found;
  JsonScanner scanner(text);
  ReadMembers(scanner, JsonCheck::kStructure, [&](JsonMember member) {
    if (member.Is(key)) found = member.value;
    return !found.has_value();
  });
  return found;
}

std::optional<std::string_view> FindPath(std::string_view text,
                                         std::initializer_list<std::string_view> path) {
  std::optional<std::string_view> found = text;
  for (std::string_view key : path) {
    found = FindMember(*found, key);
    if (!found) break;
  }
  return found;
}

absl::Status RejectDuplicateKeys(std::string_view object) {
  absl::flat_hash_set<std::string_view, StringHash, StringEqual> seen;
  std::deque<std::string> decoded;
  std::optional<std::string_view> twice;
  CALLBOARD_RETURN_IF_ERROR(ForEachMember(object, [&](JsonMember member) {
    std::string_view key = member.key;
    if (member.key_escaped) key = decoded.emplace_back(Unescape(member.key));
    if (!seen.insert(key).second) twice = key;
    return !twice.has_value();
  }));
  if (!twice) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   fmt::format("the key {} occurs twice in one object; send it once",
                               QuoteJson(twice->substr(0, 200))));
}

std::optional<std::string> DecodeString(std::string_view raw) {
  if (!IsString(raw) || !IsValidUtf8(raw)) return std::nullopt;
  JsonScanner scanner(raw);
  if (!scanner.SkipString() || !scanner.AtEnd()) return std::nullopt;
  const std::string_view inner = raw.substr(1, raw.size() - 2);
  return scanner.escaped() ? Unescape(inner) : std::string(inner);
}

std::optional<std::string> FindString(std::string_view text, std::string_view key) {
  const auto value = FindMember(text, key);
  return value ? DecodeString(*value) : std::nullopt;
}

std::optional<int64_t> FindInteger(std::string_view text, std::string_view key) {
  const auto value = FindMember(text, key);
  if (!value || !IsNumber(*value)) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value->data(), EndOf(*value), number);
  if (error != std::errc() || end != EndOf(*value)) return std::nullopt;
  return number;
}

std::optional<bool> FindBool(std::string_view text, std::string_view key) {
  const auto value = FindMember(text, key);
  if (value == "true") return true;
  if (value == "false") return false;
  return std::nullopt;
}

std::string QuoteJson(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  AppendQuoted(out, text);
  return out;
}

}  // namespace callboard::core
