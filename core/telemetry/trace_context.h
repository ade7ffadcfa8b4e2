// W3C trace context: what is checked where it enters and passed on unchanged through every hop.
#pragma once

#include <string>
#include <string_view>

namespace callboard::core {

// Sound or empty, each of them.
struct TraceContext {
  std::string traceparent;
  std::string tracestate;
  std::string baggage;

  bool empty() const { return traceparent.empty() && baggage.empty(); }
};

// What of these header values may be passed on. A traceparent that breaks the rules of
// https://www.w3.org/TR/trace-context/ is dropped with its tracestate; so is what has bytes that no
// header may have, or exceeds 512 (tracestate) or 8192 bytes (baggage).
TraceContext CheckedTraceContext(std::string_view traceparent, std::string_view tracestate,
                                 std::string_view baggage);

bool IsTraceparent(std::string_view text);

// The 32 digits that name the trace; empty if it is no traceparent.
std::string_view TraceIdOf(std::string_view traceparent);

}  // namespace callboard::core
