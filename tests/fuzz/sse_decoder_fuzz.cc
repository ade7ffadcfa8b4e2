// Fuzzes the SSE decoder: where the bytes are cut changes nothing, and its bound holds.
#include <string>
#include <vector>

#include "core/mcp/sse_codec.h"
#include "tests/fuzz/fuzz_target.h"

using namespace callboard::core;

namespace {

constexpr size_t kEventBytesMax = 512;

struct Decoded {
  std::vector<std::string> events;
  bool ok = true;
  bool operator==(const Decoded&) const = default;
};

// In pieces of at most `piece_max` bytes.
Decoded Decode(std::string_view bytes, size_t piece_max) {
  Decoded decoded;
  SseDecoder decoder(kEventBytesMax);
  while (!bytes.empty() && decoded.ok) {
    const std::string piece(bytes.substr(0, piece_max));
    bytes.remove_prefix(piece.size());
    decoded.ok = decoder
                     .Feed(piece,
                           [&](SseEvent event) {
                             FUZZ_CHECK(event.data.size() + event.event.size() <= kEventBytesMax);
                             FUZZ_CHECK(event.event.find_first_of("\r\n") == std::string::npos);
                             FUZZ_CHECK(event.data.find('\r') == std::string::npos);
                             decoded.events.push_back(event.event + "|" + event.data + "|" +
                                                      event.id.value_or("-") + "|" +
                                                      std::to_string(event.retry_ms.value_or(-1)));
                           })
                     .ok();
  }
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Decoded whole = Decode(bytes, std::string_view::npos);
  FUZZ_CHECK(Decode(bytes, 1) == whole);
  FUZZ_CHECK(Decode(bytes, 2) == whole);
  FUZZ_CHECK(Decode(bytes, 1 + size % 7) == whole);

  // What we write is what is read.
  std::string line(bytes.substr(0, kEventBytesMax / 2));
  for (char& c : line) {
    if (c == '\r' || c == '\n') c = ' ';
  }
  const Decoded ours = Decode(EncodeSseEvent("e", "1.2.3", line), 3);
  FUZZ_CHECK(ours.ok && ours.events == std::vector<std::string>{"e|" + line + "|1.2.3|-1"});
  return 0;
}
