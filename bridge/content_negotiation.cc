// Implementation of content negotiation as far as MCP needs it (RFC 9110 12.5.1).
#include "bridge/content_negotiation.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

std::string_view Trim(std::string_view text) {
  return core::ToStd(absl::StripAsciiWhitespace(core::ToAbsl(text)));
}

bool Same(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(core::ToAbsl(a), core::ToAbsl(b));
}

// Splits off what stands before `separator`.
std::string_view Next(std::string_view* rest, char separator) {
  const size_t end = rest->find(separator);
  const std::string_view part = Trim(rest->substr(0, end));
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  return part;
}

bool IsZeroQuality(std::string_view parameters) {
  while (!parameters.empty()) {
    std::string_view value = Next(&parameters, ';');
    const std::string_view name = Next(&value, '=');
    if (!Same(name, "q")) continue;
    return !value.empty() && value.find_first_not_of("0.") == std::string_view::npos;
  }
  return false;
}

}  // namespace

bool Accepts(std::string_view accept, std::string_view media_type) {
  if (Trim(accept).empty()) return true;
  const std::string_view type = media_type.substr(0, media_type.find('/'));
  // The most specific range that matches decides: 1 all, 2 the type, 3 the very subtype.
  int best = 0;
  bool accepted = false;
  while (!accept.empty()) {
    std::string_view parameters = Next(&accept, ',');
    const std::string_view range = Next(&parameters, ';');
    int precision = 0;
    if (Same(range, media_type)) {
      precision = 3;
    } else if (range.ends_with("/*") && Same(range.substr(0, range.size() - 2), type)) {
      precision = 2;
    } else if (range == "*/*" || range == "*") {
      precision = 1;
    }
    if (precision > best) {
      best = precision;
      accepted = !IsZeroQuality(parameters);
    }
  }
  return accepted;
}

bool IsJsonContent(std::string_view content_type) {
  return Same(Next(&content_type, ';'), "application/json");
}

}  // namespace callboard::bridge
