// Cuts what a stdio client writes into lines, however it comes, and bounds them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace callboard::apps {

// Lines end with a line feed; a carriage return before it, and lines of white space, count for
// nothing. Of a line beyond `line_bytes_max` only both edges are kept. Loop thread only.
class LineSplitter {
 public:
  // The edges of a line that is too long, in which its id may stand.
  struct TooLong {
    std::string head;
    std::string tail;
    size_t bytes = 0;
  };

  explicit LineSplitter(size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}

  void Feed(std::string_view bytes, absl::FunctionRef<void(std::string)> on_line,
            absl::FunctionRef<void(TooLong)> on_too_long);
  // The input has ended: what stands after the last line feed is a line, too.
  void End(absl::FunctionRef<void(std::string)> on_line,
           absl::FunctionRef<void(TooLong)> on_too_long);

 private:
  void Append(std::string_view piece);
  void EndLine(absl::FunctionRef<void(std::string)> on_line,
               absl::FunctionRef<void(TooLong)> on_too_long);

  const size_t line_bytes_max_;
  std::string line_;
  TooLong too_long_;  // bytes 0: the line is not
};

}  // namespace callboard::apps
