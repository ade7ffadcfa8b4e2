// JSON as text: checks it, finds members in it and edits it in place, never re-encoding the rest.
//
// Payloads are opaque bytes: number text, key order, duplicate keys and white space of everything
// that is not edited survive. So no DOM here; documents that Callboard itself writes or interprets
// whole use Boost.JSON. Grammar: RFC 8259; an escape of half a surrogate pair is accepted and
// decodes to U+FFFD. All functions are pure and thread-safe, need no stack for nesting and refuse
// more than kJsonDepthMax containers in each other. A "raw" value is the exact text of one JSON
// value without surrounding white space (a string with its quotes).
//
// Functions that look for members check what they step over only by its quotes, brackets and
// depth; what they return of strings, numbers and words is checked.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace callboard::core {

inline constexpr int kJsonDepthMax = 128;

// OK if `text` is exactly one JSON value (white space around it allowed) in valid UTF-8.
// InvalidArgument names the byte offset and what was wrong there. A depth_max beyond 1024 counts as
// 1024.
absl::Status ValidateJson(std::string_view text, int depth_max = kJsonDepthMax);

// One member of an object: `key` decoded only if it contains no escape (else its raw inner text),
// `value` raw.
struct JsonMember {
  std::string_view key;
  std::string_view value;
  bool key_escaped = false;

  // Whether the decoded key is `decoded`. Compare keys with this, so that "\u0069d" is "id".
  bool Is(std::string_view decoded) const {
    return key_escaped ? KeyDecodesTo(decoded) : key == decoded;
  }

 private:
  bool KeyDecodesTo(std::string_view decoded) const;
};

// How closely the values of members are looked at. kFull: as ValidateJson does, for the whole text
// if `visit` never stops; checking and slicing are then one pass.
enum class JsonCheck { kStructure, kFull };

// Calls `visit` for each member of the object `text`, in order, until it returns false.
// InvalidArgument if `text` is not a well-formed object as far as it was read.
absl::Status ForEachMember(std::string_view text, absl::FunctionRef<bool(JsonMember)> visit,
                           JsonCheck check = JsonCheck::kStructure);

// The same for the elements of an array.
absl::Status ForEachElement(std::string_view text, absl::FunctionRef<bool(std::string_view)> visit);

// Raw value of the first member `key` of the object `text`; nullopt if `text` is no object or has
// none. The path form descends.
std::optional<std::string_view> FindMember(std::string_view text, std::string_view key);
std::optional<std::string_view> FindPath(std::string_view text,
                                         std::initializer_list<std::string_view> path);

// InvalidArgument naming the key if an object has two members with the same (decoded) key at its
// top level.
absl::Status RejectDuplicateKeys(std::string_view object);

// Decoded text of a raw string, or nullopt if `raw` is not a JSON string.
std::optional<std::string> DecodeString(std::string_view raw);
// The string member `key` of the object `text`, decoded.
std::optional<std::string> FindString(std::string_view text, std::string_view key);
// A number member as int64 if it is written as an integer (no point, no exponent) and in range; a
// boolean member.
std::optional<int64_t> FindInteger(std::string_view text, std::string_view key);
std::optional<bool> FindBool(std::string_view text, std::string_view key);

// `text` as a JSON string with quotes. Invalid UTF-8 is replaced by U+FFFD.
std::string QuoteJson(std::string_view text);

// The object `object` with member `key` set to `raw_value`: replaced where it stands, else added as
// the last member. All other bytes stay, but further members of that key go: a reader that takes
// the last one must see the new value, too. The path form creates objects that are missing on the
// way and replaces non-objects on the way by objects. Text that is no object counts as {}.
std::string SetMember(std::string_view object, std::string_view key, std::string_view raw_value);
std::string SetPath(std::string_view object, std::initializer_list<std::string_view> path,
                    std::string_view raw_value);
// The object without member `key` (all occurrences). Text that is no object stays as it is.
std::string RemoveMember(std::string_view object, std::string_view key);

// Makes a JSON text one line in place: raw CR and LF can only stand between tokens, where a space
// is equal. `data` may be a part of a text.
void FlattenLines(char* data, size_t size);

inline bool IsObject(std::string_view raw) { return !raw.empty() && raw.front() == '{'; }
inline bool IsArray(std::string_view raw) { return !raw.empty() && raw.front() == '['; }
inline bool IsString(std::string_view raw) { return !raw.empty() && raw.front() == '"'; }
inline bool IsNumber(std::string_view raw) {
  return !raw.empty() && (raw.front() == '-' || (raw.front() >= '0' && raw.front() <= '9'));
}

// Writes an object member by member, for short documents of our own.
class JsonObject {
 public:
  JsonObject& Raw(std::string_view key, std::string_view raw_value);
  JsonObject& String(std::string_view key, std::string_view text);
  JsonObject& Int(std::string_view key, int64_t value);
  JsonObject& Bool(std::string_view key, bool value);
  // The finished text; the writer is empty afterwards.
  std::string Take();

 private:
  std::string text_ = "{";
};

}  // namespace callboard::core
