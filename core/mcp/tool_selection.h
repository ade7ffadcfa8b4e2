// Which tools are to be shown directly: the selectors of /mcp?tools= and of tools.pinned. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace callboard::core {

// The tools of the seats it fits: patterns in which `*` stands for any run of characters, each for
// a whole name.
struct ToolSelector {
  std::string app;       // in lower case
  std::string instance;  // the seat's name, or the beginning of its id
  std::string tool;      // the backend's own name; may contain dots

  auto operator<=>(const ToolSelector&) const = default;
};

// Whether a text is of that pattern. Takes time in proportion to the product of both lengths.
bool FitsPattern(std::string_view pattern, std::string_view text);

// A set of selectors; the default is empty and selects nothing. Grammar, with commas between:
//   <app>[.<instance>[.<tool>]]   "maya", "maya.1f2e3d4c", "maya.*.create_*"; the same form as a
//                                 slug's; what is left out is *
//   pinned                        what the operator has configured
// Blanks around a selector do not count. A comma cannot be written, and a dot only in a tool's
// name: `*` stands for them too.
class ToolSelection {
 public:
  static constexpr size_t kTextBytesMax = 4'096;  // of text()
  static constexpr size_t kSelectorsMax = 64;

  ToolSelection() = default;
  // InvalidArgument says which selector is wrong, and how; texts beyond the bounds are refused.
  static absl::StatusOr<ToolSelection> Parse(std::string_view text);

  // The one spelling of all texts that mean the same: sorted, each selector once and with its three
  // parts. Parse() takes it.
  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  const std::vector<ToolSelector>& selectors() const { return selectors_; }
  bool pinned() const { return pinned_; }

 private:
  std::string text_;
  std::vector<ToolSelector> selectors_;
  bool pinned_ = false;
};

}  // namespace callboard::core
