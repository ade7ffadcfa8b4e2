// Fuzzes the headers that repeat parts of a body: no two base64 forms of one text, and every text
// goes there and back.
#include <string>

#include "core/mcp/json.h"
#include "core/mcp/json_scanner.h"
#include "core/mcp/mirror_header.h"
#include "tests/fuzz/fuzz_target.h"

using namespace callboard::core;

namespace {

bool StandsFor(std::string_view header, std::string_view text) {
  const auto decoded = DecodeMirrorHeader(header);
  return decoded.ok() && *decoded == text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto decoded = DecodeMirrorHeader(text);
  if (decoded.ok()) {
    FUZZ_CHECK(IsValidUtf8(*decoded));
    const std::string again = EncodeMirrorHeader(*decoded);
    FUZZ_CHECK(StandsFor(again, *decoded));
    FUZZ_CHECK(CheckMirrorHeader(text, QuoteJson(*decoded)).ok());
    FUZZ_CHECK(!CheckMirrorHeader(text, QuoteJson(*decoded + "x")).ok());
  } else {
    FUZZ_CHECK(decoded.status().code() == absl::StatusCode::kInvalidArgument);
    FUZZ_CHECK(!CheckMirrorHeader(text, QuoteJson(text)).ok());
  }
  if (IsValidUtf8(text)) {
    const std::string header = EncodeMirrorHeader(text);
    for (const char c : header) FUZZ_CHECK(c == '\t' || (c >= ' ' && c <= '~'));
    FUZZ_CHECK(StandsFor(header, text));
  }
  if (ValidateJson(text).ok()) (void)CheckMirrorHeader("1", text);
  (void)IsHeaderToken(text);
  return 0;
}
