// Checks a call's arguments against the tool's inputSchema before anything is sent.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/domain/tool_catalog.h"

namespace callboard::server {

// Compiles schemas once per list and tool and keeps a bounded number of them [4096, least recently
// used go]. Loop thread only. What the validator does not know (keywords, dialects, remote
// references) passes: the seat has the last word. Arguments larger than 256 KiB pass unchecked.
class ArgumentCheck {
 public:
  ArgumentCheck();
  ~ArgumentCheck();

  // InvalidArgument names each violation with its JSON pointer and what was expected (at most 5).
  // `raw_arguments` empty counts as {}.
  absl::Status Check(const ToolList& list, const ToolInfo& tool, std::string_view raw_arguments);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace callboard::server
