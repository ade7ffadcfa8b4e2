// Builds the values of a JSON text from core's scanner, so that numbers are read exactly.
#include "server/flows/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "core/mcp/json.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::server {
namespace {

namespace json = boost::json;

constexpr int kDepthMax = 64;
// Doubles count integers without gaps below this.
constexpr double kExactIntegerMax = 9007199254740992.0;

// Reads one value with exact numbers: integral ones become int64, so that 1.0 equals 1.
class Reader {
 public:
  explicit Reader(JsonDocument& document) : document_(document) {}

  absl::Status Read(std::string_view raw, int depth, json::value& out) {
    ++document_.nodes;
    if (depth > kDepthMax) {
      return absl::OutOfRangeError("too deep");
    }
    if (core::IsObject(raw)) return ReadObject(raw, depth, out);
    if (core::IsArray(raw)) return ReadArray(raw, depth, out);
    if (core::IsString(raw)) return ReadString(raw, out);
    if (raw == "true" || raw == "false") {
      out = raw == "true";
      return absl::OkStatus();
    }
    if (raw == "null") {
      out = nullptr;
      return absl::OkStatus();
    }
    double number = 0;
    if (!core::IsNumber(raw) || !absl::SimpleAtod(core::ToAbsl(raw), &number)) {
      return absl::InvalidArgumentError("no JSON value");
    }
    const bool huge = !(std::fabs(number) < kExactIntegerMax);
    document_.huge_number = document_.huge_number || huge;
    if (!huge && number == std::trunc(number)) {
      out = static_cast<int64_t>(number);
    } else {
      out = number;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadObject(std::string_view raw, int depth, json::value& out) {
    json::object& object = out.emplace_object();
    absl::Status inner;
    CALLBOARD_RETURN_IF_ERROR(core::ForEachMember(raw, [&](core::JsonMember member) {
      std::string key(member.key);
      if (member.key_escaped) {
        key = core::DecodeString(fmt::format("\"{}\"", member.key)).value_or(key);
      }
      NoteText(key, /*matched=*/false);
      inner = Read(member.value, depth + 1, object[key]);
      return inner.ok();
    }));
    return inner;
  }

  absl::Status ReadArray(std::string_view raw, int depth, json::value& out) {
    json::array& array = out.emplace_array();
    absl::Status inner;
    CALLBOARD_RETURN_IF_ERROR(core::ForEachElement(raw, [&](std::string_view element) {
      inner = Read(element, depth + 1, array.emplace_back(nullptr));
      return inner.ok();
    }));
    return inner;
  }

  absl::Status ReadString(std::string_view raw, json::value& out) {
    std::optional<std::string> text = core::DecodeString(raw);
    if (!text) return absl::InvalidArgumentError("no JSON string");
    NoteText(*text, /*matched=*/true);
    out.emplace_string() = *text;
    return absl::OkStatus();
  }

  void NoteText(std::string_view text, bool matched) {
    if (text.find('\0') != std::string_view::npos) document_.nul = true;
    if (!matched) return;
    const bool ascii = std::all_of(text.begin(), text.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    if (!ascii || text.size() > kPatternTextMax) document_.plain_texts = false;
  }

  JsonDocument& document_;
};

}  // namespace

absl::StatusOr<JsonDocument> ReadJsonDocument(std::string_view raw) {
  while (!raw.empty() && std::string_view(" \t\r\n").find(raw.front()) != std::string_view::npos) {
    raw.remove_prefix(1);
  }
  while (!raw.empty() && std::string_view(" \t\r\n").find(raw.back()) != std::string_view::npos) {
    raw.remove_suffix(1);
  }
  JsonDocument document;
  CALLBOARD_RETURN_IF_ERROR(Reader(document).Read(raw, 0, document.value));
  return document;
}

}  // namespace callboard::server
