// The bridge's figures as Prometheus reads them.
#include "bridge/bridge_metrics.h"

namespace callboard::bridge {
namespace {

void WriteStreams(const StreamGauges& streams, core::MetricsText& text) {
  text.Gauge("callboard_sse_streams", "Open event streams.").Sample(streams.open);
  text.Counter("callboard_sse_streams_opened_total", "Event streams opened.")
      .Sample(streams.opened);
  text.Counter("callboard_sse_streams_refused_total",
               "Event streams refused with 503 because of a limit.")
      .Sample(streams.refused);
  text.Counter("callboard_sse_streams_ended_total", "Event streams ended, by cause.");
  for (size_t i = 0; i < kStreamEnds; ++i) {
    text.Sample(streams.ended[i], {{"cause", StreamEndName(static_cast<StreamEnd>(i))}});
  }
  text.Histogram("callboard_sse_stream_life_seconds",
                 "How long ended event streams lived, by the cause of their end.");
  for (size_t i = 0; i < kStreamEnds; ++i) {
    text.Sample(streams.lives[i], {{"cause", StreamEndName(static_cast<StreamEnd>(i))}});
  }
  text.Gauge("callboard_sse_unsent_bytes",
             "Bytes of event streams that the kernel has not taken, at most a second ago.")
      .Sample(streams.unsent_bytes);
  text.Counter("callboard_sse_resumes_total",
               "Streams asked for with Last-Event-ID, by what became of them.");
  for (size_t i = 0; i < kResumes; ++i) {
    text.Sample(streams.resumes[i], {{"result", ResumeName(static_cast<Resume>(i))}});
  }
}

}  // namespace

void WriteMetrics(const BridgeGauges& gauges, core::MetricsText& text) {
  WriteStreams(gauges.streams, text);
  text.Counter("callboard_http_requests_total", "HTTP requests.").Sample(gauges.requests);
  text.Gauge("callboard_http_requests_open", "HTTP requests that wait for the control plane.")
      .Sample(gauges.exchanges);
  text.Counter("callboard_http_foreign_refused_total",
               "HTTP requests refused because of their Host or Origin.")
      .Sample(gauges.foreign_refused);
  text.Counter("callboard_session_mismatches_total",
               "Requests answered with 404 because nobody knows their session.")
      .Sample(gauges.session_mismatches);
  text.Gauge("callboard_bridge_sessions_cached", "Sessions this bridge remembers.")
      .Sample(gauges.sessions_cached);
  text.Counter("callboard_bridge_hard_timers_total",
               "Requests the bridge answered because the control plane was silent.")
      .Sample(gauges.hard_timers);
  text.Counter("callboard_bridge_reattached_total",
               "Calls whose stream was listened to again after the control plane was lost.")
      .Sample(gauges.reattached);
  text.Counter("callboard_job_envelopes_total",
               "Calls answered with a job because they took too long.")
      .Sample(gauges.envelopes);
}

}  // namespace callboard::bridge
