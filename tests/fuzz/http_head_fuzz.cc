// Fuzzes the HTTP request and response parsers: slicing changes nothing, limits hold, nothing is
// smuggled past the framing headers.
#include <algorithm>
#include <string>
#include <vector>

#include "net/http_parser.h"
#include "tests/fuzz/fuzz_target.h"

using namespace callboard::net;

namespace {

constexpr size_t kHeadBytesMax = 1024;
constexpr size_t kBodyBytesMax = 512;

struct Parsed {
  bool done = false;
  bool failed = false;
  std::string text;
  bool operator==(const Parsed&) const = default;
};

// Feeds `step` more bytes at a time, as a connection does, until the message ends.
template <class Parser, class OnPiece>
Parsed Feed(Parser& parser, std::string_view bytes, size_t step, OnPiece on_piece) {
  Parsed parsed;
  std::string held;
  while (!parsed.failed && !parser.is_done()) {
    if (bytes.empty()) break;
    held.append(bytes.substr(0, step));
    bytes.remove_prefix(std::min(step, bytes.size()));
    while (!held.empty() && !parser.is_done()) {
      BeastError ec;
      const size_t used = parser.Feed(held, ec);
      FUZZ_CHECK(used <= held.size());
      on_piece();
      held.erase(0, used);
      parsed.failed = ec && ec != beast_http::error::need_more;
      if (parsed.failed || ec == beast_http::error::need_more || used == 0) break;
    }
    if (held.size() > 4 * kHeadBytesMax) break;
  }
  parsed.done = !parsed.failed && parser.is_done();
  return parsed;
}

std::string Text(const HeaderList& headers) {
  std::string text;
  for (const auto& [name, value] : headers) {
    FUZZ_CHECK((name + value).find_first_of("\r\n") == std::string::npos);
    text.append(name).append("=").append(value).append(";");
  }
  return text;
}

Parsed ParseRequest(std::string_view bytes, size_t step) {
  RequestParser parser(kHeadBytesMax, kBodyBytesMax);
  Parsed parsed = Feed(parser, bytes, step, [] {});
  if (!parsed.done) return {.failed = parsed.failed};
  HttpRequest request = parser.TakeRequest();
  FUZZ_CHECK(request.body.size() <= kBodyBytesMax);
  FUZZ_CHECK(parser.head_bytes() <= kHeadBytesMax);
  const bool chunked = FindHeader(request.headers, "Transfer-Encoding") != nullptr;
  FUZZ_CHECK(!chunked || FindHeader(request.headers, "Content-Length") == nullptr);
  FUZZ_CHECK(std::ranges::count_if(request.headers, [](const auto& header) {
               return EqualsIgnoringCase(header.first, "Transfer-Encoding");
             }) <= 1);
  parsed.text = request.method + " " + request.target + " " + Text(request.headers) + request.body;
  return parsed;
}

Parsed ParseResponse(std::string_view bytes, size_t step) {
  ResponseParser parser(kHeadBytesMax, /*no_body=*/false);
  std::string body;
  Parsed parsed = Feed(parser, bytes, step, [&] { body.append(parser.TakePiece()); });
  if (!parsed.done) return {.failed = parsed.failed};
  const HttpResponseHead head = parser.TakeHead();
  // These never have a body, whatever they announce (RFC 9112 6.3).
  const bool bodiless = head.status < 200 || head.status == 204 || head.status == 304;
  FUZZ_CHECK(bodiless ? body.empty() : !head.content_length || *head.content_length == body.size());
  parsed.text = std::to_string(head.status) + " " + Text(head.headers) + body;
  return parsed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (size_t step : {size_t{1}, 1 + size % 5}) {
    // A message that is complete is the same however it came. (One that is refused may be refused
    // earlier or later.)
    const Parsed whole = ParseRequest(bytes, size + 1);
    const Parsed sliced = ParseRequest(bytes, step);
    FUZZ_CHECK(!(whole.done && sliced.done) || whole.text == sliced.text);
    FUZZ_CHECK(!whole.done || !sliced.failed);
    FUZZ_CHECK(!sliced.done || !whole.failed);
    const Parsed answer = ParseResponse(bytes, size + 1);
    const Parsed slow = ParseResponse(bytes, step);
    FUZZ_CHECK(!(answer.done && slow.done) || answer.text == slow.text);
  }
  return 0;
}
