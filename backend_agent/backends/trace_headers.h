// The trace context of a call as headers of the request that carries it.
#pragma once

#include "core/telemetry/trace_context.h"
#include "net/http_server.h"

namespace callboard::agent {

inline void AddTraceHeaders(const core::TraceContext& trace, net::HeaderList* headers) {
  if (!trace.traceparent.empty()) headers->emplace_back("traceparent", trace.traceparent);
  if (!trace.tracestate.empty()) headers->emplace_back("tracestate", trace.tracestate);
  if (!trace.baggage.empty()) headers->emplace_back("baggage", trace.baggage);
}

}  // namespace callboard::agent
