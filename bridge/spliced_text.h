// A response with places for a large body, which is never here as a whole. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace callboard::bridge {

// What is rendered has a token where the body belongs. A place may be a value, a value within a
// text that is a JSON string itself, or the end of an object whose other members stand before it.
// The parts are told in order: text, and for each place the body's pieces, from its beginning.
class SplicedText {
 public:
  // A JSON string that stands for the body. `nonce` is one that no other text can contain.
  static std::string Token(std::string_view nonce);
  // The same for an object: what follows `members` (raw, may be empty) is the body's own.
  static std::string ObjectWith(std::string_view members, std::string_view token);

  SplicedText(std::string_view text, std::string_view token);

  size_t places() const { return places_.size(); }
  // Of all with a body of that size, before anything is told; nullopt where its escaping decides.
  std::optional<uint64_t> Size(uint64_t body_bytes) const;

  // Up to the next place, or to the end.
  std::string TakeText();
  // A place is next; false: all has been told.
  bool at_place() const { return next_ < places_.size(); }
  // A piece of the body as it is told in this place. With the last one the place is done.
  std::string Splice(std::string_view piece, bool last);

 private:
  enum class Form { kValue, kEscaped, kMembers };
  struct Place {
    std::string before;
    Form form;
  };

  std::string Escape(std::string_view piece, bool last);

  std::vector<Place> places_;
  std::string tail_;
  size_t next_ = 0;
  bool first_piece_ = true;
  std::string held_;  // of a character whose end is in the next piece
};

}  // namespace callboard::bridge
