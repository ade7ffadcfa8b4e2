// Implementation of ToolPages.
#include "bridge/tool_pages.h"

#include <algorithm>
#include <utility>

#include "core/mcp/json.h"

namespace callboard::bridge {
namespace {

constexpr std::string_view kCursorPrefix = "after:";
constexpr size_t kCursorBytesMax = 256;
constexpr std::string_view kNameCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

}  // namespace

ToolPages::ToolPages(std::string array, size_t page_max)
    : array_(std::move(array)), page_max_(page_max) {
  (void)core::ForEachElement(array_, [this](std::string_view element) {
    const auto begin = static_cast<size_t>(element.data() - array_.data());
    tools_.push_back(
        {core::FindString(element, "name").value_or(""), begin, begin + element.size()});
    return true;
  });
}

ToolPages::Page ToolPages::After(std::string_view cursor) const {
  auto first = tools_.begin();
  if (!cursor.empty()) {
    cursor.remove_prefix(kCursorPrefix.size());
    first =
        std::upper_bound(tools_.begin(), tools_.end(), cursor,
                         [](std::string_view name, const Tool& tool) { return name < tool.name; });
  }
  const auto left = static_cast<size_t>(tools_.end() - first);
  if (left == 0) return {};
  const auto last = first + static_cast<std::ptrdiff_t>(std::min(left, page_max_) - 1);
  Page page;
  page.tools = std::string_view(array_).substr(first->begin, last->end - first->begin);
  if (last + 1 != tools_.end()) page.next_cursor = std::string(kCursorPrefix) + last->name;
  return page;
}

bool ToolPages::IsCursor(std::string_view text) {
  return text.size() > kCursorPrefix.size() && text.size() <= kCursorBytesMax &&
         text.starts_with(kCursorPrefix) &&
         text.find_first_not_of(kNameCharacters, kCursorPrefix.size()) == std::string_view::npos;
}

}  // namespace callboard::bridge
