// Implementation of the checks of trace contexts.
#include "core/telemetry/trace_context.h"

#include <algorithm>

namespace callboard::core {
namespace {

constexpr size_t kTraceparentBytes = 55;  // of version 00: 00-<32>-<16>-<2>
// Later versions may be longer.
constexpr size_t kTraceparentBytesMax = 256;
constexpr size_t kTracestateBytesMax = 512;
constexpr size_t kBaggageBytesMax = 8192;

// Hex digits in lower case, not all of them 0.
bool IsId(std::string_view text) {
  const bool digits = std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return digits && text.find_first_not_of('0') != std::string_view::npos;
}

bool IsHexPair(std::string_view text) { return text == "00" || IsId(text); }

bool IsHeaderText(std::string_view text, size_t bytes_max) {
  return text.size() <= bytes_max &&
         std::ranges::all_of(text, [](char c) { return c >= 0x20 && c <= 0x7e; });
}

}  // namespace

bool IsTraceparent(std::string_view text) {
  if (text.size() < kTraceparentBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return false;
  }
  const std::string_view version = text.substr(0, 2);
  if (!IsHexPair(version) || version == "ff") return false;
  if (text.size() > kTraceparentBytes) {
    if (version == "00" || text[kTraceparentBytes] != '-') return false;
    if (!IsHeaderText(text, kTraceparentBytesMax)) return false;
  }
  return IsId(text.substr(3, 32)) && IsId(text.substr(36, 16)) && IsHexPair(text.substr(53, 2));
}

std::string_view TraceIdOf(std::string_view traceparent) {
  return IsTraceparent(traceparent) ? traceparent.substr(3, 32) : std::string_view();
}

TraceContext CheckedTraceContext(std::string_view traceparent, std::string_view tracestate,
                                 std::string_view baggage) {
  TraceContext checked;
  if (IsTraceparent(traceparent)) {
    checked.traceparent = traceparent;
    if (IsHeaderText(tracestate, kTracestateBytesMax)) checked.tracestate = tracestate;
  }
  if (IsHeaderText(baggage, kBaggageBytesMax)) checked.baggage = baggage;
  return checked;
}

}  // namespace callboard::core
