// Implementation of SplicedText.
#include "bridge/spliced_text.h"

#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "fmt/format.h"

namespace callboard::bridge {
namespace {

// Behind the token where it stands for members: ObjectWith() closes the object with it.
constexpr std::string_view kMembersEnd = ":0}";

// How many bytes at the end of `text` begin a character of UTF-8 and do not complete it.
size_t CutCharacter(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string SplicedText::Token(std::string_view nonce) {
  return fmt::format("\"callboard-body-{}\"", nonce);
}

std::string SplicedText::ObjectWith(std::string_view members, std::string_view token) {
  return fmt::format("{{{}{}{}{}", members, members.empty() ? "" : ",", token, kMembersEnd);
}

SplicedText::SplicedText(std::string_view text, std::string_view token) {
  const std::string_view name = token.substr(1, token.size() - 2);
  for (size_t found = text.find(name); found != std::string_view::npos; found = text.find(name)) {
    std::string_view before = text.substr(0, found);
    text.remove_prefix(found + name.size());
    Form form = Form::kValue;
    if (before.ends_with("\\\"")) {
      form = Form::kEscaped;
      before.remove_suffix(2);
      text.remove_prefix(2);
    } else {
      before.remove_suffix(1);
      text.remove_prefix(1);
      if (text.starts_with(kMembersEnd)) {
        form = Form::kMembers;
        text.remove_prefix(kMembersEnd.size());
      }
    }
    places_.push_back({std::string(before), form});
  }
  tail_ = text;
}

std::optional<uint64_t> SplicedText::Size(uint64_t body_bytes) const {
  uint64_t bytes = tail_.size();
  for (const Place& place : places_) {
    if (place.form == Form::kEscaped) return std::nullopt;
    bytes += place.before.size() + body_bytes - (place.form == Form::kMembers ? 1 : 0);
  }
  return bytes;
}

std::string SplicedText::TakeText() {
  return std::exchange(at_place() ? places_[next_].before : tail_, {});
}

std::string SplicedText::Splice(std::string_view piece, bool last) {
  std::string told;
  if (at_place() && places_[next_].form == Form::kEscaped) {
    told = Escape(piece, last);
  } else {
    // The brace of the object stands before the members already.
    if (at_place() && places_[next_].form == Form::kMembers && first_piece_ && !piece.empty()) {
      piece.remove_prefix(1);
    }
    told = piece;
  }
  first_piece_ = last;
  if (last) ++next_;
  return told;
}

std::string SplicedText::Escape(std::string_view piece, bool last) {
  std::string text = std::exchange(held_, {});
  text.append(piece);
  if (!last) {
    const size_t whole = text.size() - CutCharacter(text);
    held_ = text.substr(whole);
    text.resize(whole);
  }
  const std::string quoted = core::QuoteJson(text);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace callboard::bridge
