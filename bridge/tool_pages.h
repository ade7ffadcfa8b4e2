// A list of tools in order of name, cut into pages without touching its bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace callboard::bridge {

// Immutable. A cursor names the last tool of the page before it, so it holds for every later list,
// too: what is in both lists comes once, whatever came or went meanwhile.
class ToolPages {
 public:
  // `array`: raw JSON, its elements in order of their names. Text that is no such array has no
  // tools from there on.
  ToolPages(std::string array, size_t page_max);

  struct Page {
    std::string_view tools;   // raw elements with commas between, part of the array
    std::string next_cursor;  // empty on the last page
  };
  // The page after a cursor; empty: the first.
  Page After(std::string_view cursor) const;

  // Whether it may be a next_cursor of any list.
  static bool IsCursor(std::string_view text);

 private:
  struct Tool {
    std::string name;
    size_t begin;  // in array_
    size_t end;
  };

  std::string array_;
  size_t page_max_;
  std::vector<Tool> tools_;
};

}  // namespace callboard::bridge
