// Implementation of CanonicalJson.
#include "core/mcp/canonical_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/mcp/json.h"

namespace callboard::core {
namespace {

// The text has been validated, its depth included.
void Append(std::string_view text, std::string& out);

void AppendObject(std::string_view text, std::string& out) {
  std::vector<std::pair<std::string, std::string_view>> members;
  (void)ForEachMember(text, [&](JsonMember member) {
    std::string key(member.key);
    if (member.key_escaped) {
      const std::string quoted = '"' + key + '"';
      if (auto decoded = DecodeString(quoted)) key = *std::move(decoded);
    }
    members.emplace_back(std::move(key), member.value);
    return true;
  });
  // Members of one name keep their order, which is that of their places in the text.
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.data() < b.second.data();
  });
  out.push_back('{');
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out.push_back(',');
    out.append(QuoteJson(members[i].first)).push_back(':');
    Append(members[i].second, out);
  }
  out.push_back('}');
}

void AppendArray(std::string_view text, std::string& out) {
  out.push_back('[');
  bool first = true;
  (void)ForEachElement(text, [&](std::string_view element) {
    if (!std::exchange(first, false)) out.push_back(',');
    Append(element, out);
    return true;
  });
  out.push_back(']');
}

void Append(std::string_view text, std::string& out) {
  if (IsObject(text)) return AppendObject(text, out);
  if (IsArray(text)) return AppendArray(text, out);
  if (IsString(text)) {
    if (const auto decoded = DecodeString(text)) {
      out.append(QuoteJson(*decoded));
      return;
    }
  }
  out.append(text);
}

}  // namespace

std::string CanonicalJson(std::string_view text) {
  if (!ValidateJson(text).ok()) return std::string(text);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const size_t end = text.find_last_not_of(" \t\r\n");
  std::string out;
  out.reserve(text.size());
  Append(text.substr(begin, end + 1 - begin), out);
  return out;
}

}  // namespace callboard::core
