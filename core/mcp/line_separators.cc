// Implementation of LineSeparatorEscaper.
#include "core/mcp/line_separators.h"

#include <algorithm>
#include <array>
#include <utility>

namespace callboard::core {
namespace {

struct Separator {
  std::string_view bytes;
  std::string_view escape;
};

constexpr std::array<Separator, 3> kSeparators = {{
    {"\xc2\x85", "\\u0085"},
    {"\xe2\x80\xa8", "\\u2028"},
    {"\xe2\x80\xa9", "\\u2029"},
}};

// Bytes at the end that begin a separator and do not end it.
size_t UnfinishedBytes(std::string_view text) {
  for (size_t size = std::min<size_t>(2, text.size()); size > 0; --size) {
    const std::string_view end = text.substr(text.size() - size);
    for (const Separator& separator : kSeparators) {
      if (separator.bytes.size() > size && separator.bytes.starts_with(end)) return size;
    }
  }
  return 0;
}

}  // namespace

std::string EscapeLineSeparators(std::string text) {
  std::string out;
  size_t copied = 0;
  size_t two = text.find('\xc2');
  size_t three = text.find('\xe2');
  for (size_t at = std::min(two, three); at != std::string::npos; at = std::min(two, three)) {
    const std::string_view rest = std::string_view(text).substr(at);
    for (const Separator& separator : kSeparators) {
      if (!rest.starts_with(separator.bytes)) continue;
      out.append(text, copied, at - copied).append(separator.escape);
      copied = at + separator.bytes.size();
    }
    // Each byte is looked for in runs of its own: a text may be full of one and free of the other.
    if (two == at) two = text.find('\xc2', at + 1);
    if (three == at) three = text.find('\xe2', at + 1);
  }
  if (copied == 0) return text;
  return out.append(text, copied);
}

std::string LineSeparatorEscaper::Next(std::string piece) {
  if (!held_.empty()) piece.insert(0, std::exchange(held_, {}));
  if (const size_t unfinished = UnfinishedBytes(piece); unfinished > 0) {
    held_ = piece.substr(piece.size() - unfinished);
    piece.resize(piece.size() - unfinished);
  }
  return EscapeLineSeparators(std::move(piece));
}

}  // namespace callboard::core
