// Implementation of ToolSelection.
#include "core/mcp/tool_selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/mcp/json_scanner.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

constexpr std::string_view kPinned = "pinned";
constexpr std::string_view kAny = "*";
constexpr std::string_view kForm =
    "a selector reads <app>[.<instance>[.<tool>]], like maya.1f2e3d4c.bake or maya.*.create_*, or "
    "pinned";
constexpr size_t kShownBytesMax = 100;

std::string_view Shown(std::string_view text) { return text.substr(0, kShownBytesMax); }

std::string_view Trimmed(std::string_view text) {
  return ToStd(absl::StripAsciiWhitespace(ToAbsl(text)));
}

absl::Status Wrong(std::string_view selector, std::string_view problem) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   fmt::format("selector '{}' {}; {}", Shown(selector), problem, kForm));
}

absl::Status TooLong(size_t bytes) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   fmt::format("the selectors have {} bytes, and {} are taken", bytes,
                               ToolSelection::kTextBytesMax));
}

// The text up to the next separator, which goes too.
std::string_view TakeUntil(std::string_view& rest, char separator) {
  const size_t at = rest.find(separator);
  const std::string_view part = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return part;
}

absl::StatusOr<ToolSelector> ParseSelector(std::string_view text) {
  if (text.empty()) return Wrong(text, "is empty");
  const size_t dots = static_cast<size_t>(std::count(text.begin(), text.end(), '.'));
  std::string_view rest = text;
  const std::string_view app = TakeUntil(rest, '.');
  const std::string_view instance = dots > 0 ? TakeUntil(rest, '.') : kAny;
  const std::string_view tool = dots > 1 ? rest : kAny;
  if (app.empty()) return Wrong(text, "names no application");
  if (instance.empty()) return Wrong(text, "has a dot and no instance after it");
  if (tool.empty()) return Wrong(text, "has a dot and no tool after it");
  return ToolSelector{absl::AsciiStrToLower(ToAbsl(app)), std::string(instance), std::string(tool)};
}

}  // namespace

bool FitsPattern(std::string_view pattern, std::string_view text) {
  size_t at = 0;
  size_t here = 0;
  // Where to go on when what follows the last `*` does not fit: it takes one character more.
  size_t star = std::string_view::npos;
  size_t taken = 0;
  while (here < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      taken = here;
    } else if (at < pattern.size() && pattern[at] == text[here]) {
      ++at;
      ++here;
    } else if (star != std::string_view::npos) {
      at = star;
      here = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

absl::StatusOr<ToolSelection> ToolSelection::Parse(std::string_view text) {
  if (text.size() > 2 * kTextBytesMax) return TooLong(text.size());
  if (!IsValidUtf8(text)) {
    return MakeError(absl::StatusCode::kInvalidArgument, "selectors must be UTF-8");
  }
  const auto control = std::find_if(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  if (control != text.end()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     fmt::format("the character 0x{:02x} at byte {} cannot be part of a selector",
                                 static_cast<unsigned char>(*control), control - text.begin()));
  }
  ToolSelection selection;
  std::set<ToolSelector> selectors;
  std::string_view rest = text;
  // A comma at the end has an empty selector behind it.
  for (bool more = true; more;) {
    more = rest.find(',') != std::string_view::npos;
    const std::string_view one = Trimmed(TakeUntil(rest, ','));
    if (one == kPinned) {
      selection.pinned_ = true;
      continue;
    }
    CALLBOARD_ASSIGN_OR_RETURN(ToolSelector selector, ParseSelector(one));
    selectors.insert(std::move(selector));
    if (selectors.size() > kSelectorsMax) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       fmt::format("more than {} selectors: '{}' is too many; `*` stands for many",
                                   kSelectorsMax, Shown(one)));
    }
  }
  selection.selectors_.assign(selectors.begin(), selectors.end());
  for (const ToolSelector& selector : selection.selectors_) {
    if (!selection.text_.empty()) selection.text_ += ',';
    fmt::format_to(std::back_inserter(selection.text_), "{}.{}.{}", selector.app, selector.instance,
                   selector.tool);
  }
  if (selection.pinned_) selection.text_.append(selection.text_.empty() ? "" : ",").append(kPinned);
  if (selection.text_.size() > kTextBytesMax) return TooLong(selection.text_.size());
  return selection;
}

}  // namespace callboard::core
