// Implementation of LineSplitter.
#include "apps/stdio/line_splitter.h"

#include <algorithm>
#include <utility>

namespace callboard::apps {
namespace {

constexpr size_t kEdgeBytes = 4096;
constexpr std::string_view kBlank = " \t\r\n";

}  // namespace

void LineSplitter::Feed(std::string_view bytes, absl::FunctionRef<void(std::string)> on_line,
                        absl::FunctionRef<void(TooLong)> on_too_long) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    Append(bytes.substr(0, end));
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    EndLine(on_line, on_too_long);
  }
}

void LineSplitter::End(absl::FunctionRef<void(std::string)> on_line,
                       absl::FunctionRef<void(TooLong)> on_too_long) {
  EndLine(on_line, on_too_long);
}

void LineSplitter::Append(std::string_view piece) {
  if (too_long_.bytes == 0 && line_.size() + piece.size() <= line_bytes_max_) {
    line_.append(piece);
    return;
  }
  if (too_long_.bytes == 0) {
    too_long_.bytes = line_.size();
    line_.append(piece.substr(0, kEdgeBytes));
    too_long_.head = line_.substr(0, kEdgeBytes);
    too_long_.tail = line_.substr(line_.size() - std::min(line_.size(), kEdgeBytes));
    line_ = std::string();
  }
  too_long_.bytes += piece.size();
  too_long_.tail.append(piece);
  if (too_long_.tail.size() > kEdgeBytes) {
    too_long_.tail.erase(0, too_long_.tail.size() - kEdgeBytes);
  }
}

void LineSplitter::EndLine(absl::FunctionRef<void(std::string)> on_line,
                           absl::FunctionRef<void(TooLong)> on_too_long) {
  if (too_long_.bytes > 0) return on_too_long(std::exchange(too_long_, {}));
  std::string line = std::exchange(line_, {});
  if (line.find_first_not_of(kBlank) == std::string::npos) return;
  if (line.ends_with('\r')) line.pop_back();
  on_line(std::move(line));
}

}  // namespace callboard::apps
