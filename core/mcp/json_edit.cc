// Implementation of the JSON text functions that write: edits in place and JsonObject.
#include <fmt/format.h>

#include <span>
#include <utility>

#include "core/mcp/json.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace callboard::core {
namespace {

const char* EndOf(std::string_view view) { return view.data() + view.size(); }

// Text that is copied from `from` in runs, with parts left out or replaced.
class Splice {
 public:
  Splice(std::string& out, std::string_view from)
      : out_(out), size_before_(out.size()), from_(from), copied_(from.data()) {}
  // Copies what comes before `position`.
  void CopyTo(const char* position) {
    out_.append(copied_, position);
    copied_ = position;
  }
  void SkipTo(const char* position) { copied_ = position; }
  void CopyRest() { CopyTo(from_.data() + from_.size()); }
  // Takes back all that was written and starts again with another text.
  void Restart(std::string_view from) {
    out_.resize(size_before_);
    from_ = from;
    copied_ = from.data();
  }

 private:
  std::string& out_;
  size_t size_before_;
  std::string_view from_;
  const char* copied_;
};

// Appends `text` with the value at `path` set to `raw_value`. Recursion is as deep as the path.
void AppendWithPath(std::string& out, std::string_view text, std::span<const std::string_view> path,
                    std::string_view raw_value) {
  if (path.empty()) {
    out.append(raw_value);
    return;
  }
  Splice splice(out, text);
  const char* previous_end = nullptr;
  bool found = false;
  const absl::Status read = ForEachMember(text, [&](JsonMember member) {
    if (member.Is(path.front())) {
      if (found) {
        splice.CopyTo(previous_end);
      } else {
        splice.CopyTo(member.value.data());
        AppendWithPath(out, member.value, path.subspan(1), raw_value);
      }
      splice.SkipTo(EndOf(member.value));
      found = true;
    }
    previous_end = EndOf(member.value);
    return true;
  });
  if (!read.ok()) {
    text = "{}";
    splice.Restart(text);
    previous_end = nullptr;
    found = false;
  }
  if (!found) {
    splice.CopyTo(previous_end != nullptr ? previous_end : text.data() + text.find('{') + 1);
    if (previous_end != nullptr) out.push_back(',');
    out.append(QuoteJson(path.front()));
    out.push_back(':');
    AppendWithPath(out, {}, path.subspan(1), raw_value);
  }
  splice.CopyRest();
}

}  // namespace

std::string SetMember(std::string_view object, std::string_view key, std::string_view raw_value) {
  return SetPath(object, {key}, raw_value);
}

std::string SetPath(std::string_view object, std::initializer_list<std::string_view> path,
                    std::string_view raw_value) {
  std::string out;
  size_t added = raw_value.size();
  for (std::string_view key : path) added += key.size() + 6;
  out.reserve(object.size() + added);
  AppendWithPath(out, object, {path.begin(), path.size()}, raw_value);
  return out;
}

std::string RemoveMember(std::string_view object, std::string_view key) {
  std::string out;
  out.reserve(object.size());
  Splice splice(out, object);
  const char* previous_end = nullptr;
  bool kept_any = false;
  bool removed_any = false;
  const absl::Status read = ForEachMember(object, [&](JsonMember member) {
    const char* const start = member.key.data() - 1;
    if (member.Is(key)) {
      // The comma goes with the member: the one before it or, at the front, the one after it.
      if (kept_any) {
        splice.CopyTo(previous_end);
      } else if (!removed_any) {
        splice.CopyTo(start);
      }
      splice.SkipTo(EndOf(member.value));
      removed_any = true;
    } else {
      if (!kept_any && removed_any) splice.SkipTo(start);
      kept_any = true;
    }
    previous_end = EndOf(member.value);
    return true;
  });
  if (!read.ok()) return std::string(object);
  splice.CopyRest();
  return out;
}

void FlattenLines(char* data, size_t size) {
  char* p = data;
  char* const end = data + size;
#ifdef __SSE2__
  const __m128i line_feed = _mm_set1_epi8('\n');
  const __m128i carriage_return = _mm_set1_epi8('\r');
  const __m128i space = _mm_set1_epi8(' ');
  for (; end - p >= 16; p += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i hit =
        _mm_or_si128(_mm_cmpeq_epi8(block, line_feed), _mm_cmpeq_epi8(block, carriage_return));
    if (_mm_movemask_epi8(hit) == 0) continue;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_or_si128(_mm_andnot_si128(hit, block), _mm_and_si128(hit, space)));
  }
#endif
  for (; p != end; ++p) {
    if (*p == '\n' || *p == '\r') *p = ' ';
  }
}

JsonObject& JsonObject::Raw(std::string_view key, std::string_view raw_value) {
  if (text_.size() > 1) text_.push_back(',');
  text_.append(QuoteJson(key));
  text_.push_back(':');
  text_.append(raw_value);
  return *this;
}

JsonObject& JsonObject::String(std::string_view key, std::string_view text) {
  return Raw(key, QuoteJson(text));
}

JsonObject& JsonObject::Int(std::string_view key, int64_t value) {
  return Raw(key, fmt::format_int(value).c_str());
}

JsonObject& JsonObject::Bool(std::string_view key, bool value) {
  return Raw(key, value ? "true" : "false");
}

std::string JsonObject::Take() {
  text_.push_back('}');
  return std::exchange(text_, "{");
}

}  // namespace callboard::core
