// Escapes U+0085, U+2028 and U+2029 in JSON text: clients with lax line splitting take them for
// line ends.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace callboard::core {

// Of a JSON text that comes in pieces, cut anywhere. In JSON these characters can only stand inside
// strings, where an escape means the same. Loop thread only; owned by who writes the text. Bounds:
// up to two bytes are held back, which may begin such a character.
class LineSeparatorEscaper {
 public:
  // The text so far known to be complete that has not been given yet.
  std::string Next(std::string piece);
  // The text has ended: what was held back.
  std::string Rest() { return std::exchange(held_, {}); }

 private:
  std::string held_;
};

// The same of a whole text.
std::string EscapeLineSeparators(std::string text);

}  // namespace callboard::core
