// What a bridge is configured with and what it counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "core/telemetry/metrics_text.h"

namespace callboard::bridge {

struct BridgeLimits {
  // Open SSE streams in all. Beyond: a GET gets 503 with Retry-After, a POST plain JSON only.
  size_t streams_max = 10'000;
  // The same per session, which stands for its client as long as nobody is authenticated.
  size_t streams_per_session_max = 64;
  // Of one stream: events are fetched as long as no more bytes wait for the kernel to take them.
  // Beyond: the next is asked for when the last was taken. One event may exceed it.
  size_t gathered_bytes_max = 8 * 1024;
  // Of one stream of HTTP+SSE: a client for whom more waits may not ask anything further: 503.
  size_t sse_waiting_bytes_max = 1024 * 1024;
  // Streams that measure a path (ProbeExchange). Beyond: 503 with Retry-After.
  size_t probes_max = 8;
  // HTTP requests that wait for the control plane. Beyond: 503 with Retry-After.
  size_t exchanges_max = 20'000;
  // Requests in one JSON-RPC batch. Beyond: 400.
  size_t batch_items_max = 64;
  // All answers of one batch. Beyond: an error in place of the answer that did not fit.
  size_t batch_bytes_max = 16 * 1024 * 1024;
  // Known sessions. Beyond: the least recently used is forgotten here and asked for again.
  size_t sessions_cached_max = 20'000;
  // Tool lists kept by digest. Beyond: all are forgotten and fetched again.
  size_t tool_lists_cached_max = 256;
  // Selected tools that one answer to tools/list holds; the next page has the others.
  size_t tools_per_page_max = 128;
};

struct BridgeConfig {
  // gateway_name of dcc-mcp: who answers on this port.
  std::string name = "callboard";
  std::string version = "0.0.0";
  // Hosts besides localhost, 127.0.0.1 and [::1] that clients may use for us, without port.
  // "*" accepts every Host header (Origin is still checked).
  std::vector<std::string> allowed_hosts;
  // Whole origins ("https://tools.studio.example") whose pages may call us.
  std::vector<std::string> allowed_origins;

  // Serves revision 2026-07-28 beside those with sessions. If not, its requests get a plain 400, so
  // that clients which know both fall back.
  bool modern = true;

  // Serves HTTP+SSE, the transport of revision 2024-11-05, on /sse and /messages.
  bool legacy_sse = true;

  // A stream that carried nothing for that long carries a comment; see HeartbeatFor().
  absl::Duration heartbeat = absl::Seconds(15);
  // A call that is not done by then gets an SSE stream.
  absl::Duration open_stream_after = absl::Milliseconds(250);
  // How long clients wait before they reconnect (`retry:`).
  absl::Duration retry = absl::Seconds(3);
  // A stream ends after so long with `event: close`; up to a tenth earlier, at random.
  absl::Duration stream_life_max = absl::Hours(24);
  // A reader for whom bytes wait and who takes none for that long is cut off, to resume.
  absl::Duration slow_reader = absl::Seconds(20);
  // A call of the facade without a progress token that is not done by then is answered with a job
  // (C13): many clients give up after 60 s. It goes on.
  absl::Duration envelope_after = absl::Seconds(45);
  // The same for a request of revision 2026-07-28 whose client has declared the tasks extension: it
  // is answered with a task. Such a client polls.
  absl::Duration task_after = absl::Seconds(5);
  absl::Duration task_poll = absl::Seconds(1);
  // What clients are told how long a task is kept, from its beginning; no more than the control
  // plane keeps receipts (budgets.receipt).
  absl::Duration task_ttl = absl::Hours(24);
  // The fallback when the control plane is silent: for calls between two events, on top of the run
  // time the caller asked for or the control plane tells. Exceeds the queue budget (10 min) plus
  // the heaviest class (120 s).
  absl::Duration hard_wait = absl::Minutes(13);
  // The same for a call whose events go on, after all the time that the control plane gives it.
  absl::Duration hard_margin = absl::Seconds(10);
  // The same for what the control plane answers from memory.
  absl::Duration unary_wait = absl::Seconds(30);
  // A GET stream whose control plane is lost stays open for that long, silent but for heartbeats,
  // and goes on when the control plane is back. A request's own stream waits for hard_wait.
  absl::Duration reattach = absl::Seconds(60);
  // A cached session older than this is asked for again before it is believed.
  absl::Duration session_recheck = absl::Seconds(30);
  BridgeLimits limits;
};

// The longest silence that no intermediary of a path takes for an idle connection: the least of
// `wanted`, 40 % of the shortest of `path_idle_timeouts`, and 10 s if the path is a wide area
// network.
absl::Duration HeartbeatFor(absl::Duration wanted,
                            const std::vector<absl::Duration>& path_idle_timeouts, bool wan);

// Why a stream ended.
enum class StreamEnd {
  kFinished,     // all was told
  kClient,       // the client closed or reset it
  kWriteFailed,  // the peer refused what was written
  kIdle,         // the peer acknowledged nothing any more, not even heartbeats
  kMaxLife,
  kDrain,
  kSlow,    // the reader took nothing while bytes waited for it
  kBroken,  // what it carried cannot be completed
};
constexpr size_t kStreamEnds = 8;
// "finished", "client", "write_failed", "idle", "max_life", "drain", "slow", "broken".
std::string_view StreamEndName(StreamEnd end);

// What became of a GET with Last-Event-ID.
enum class Resume {
  kResumed,  // it goes on after that event
  kGap,      // likewise, but some events in between are lost
  kGone,     // there is nothing to go on with: the stream or its session is over
};
constexpr size_t kResumes = 3;
// "resumed", "gap", "gone".
std::string_view ResumeName(Resume resume);

// What happened to event streams so far, and what they hold now.
struct StreamGauges {
  size_t open = 0;
  uint64_t opened = 0;
  uint64_t refused = 0;  // 503 because of streams_max and its like
  std::array<uint64_t, kStreamEnds> ended = {};
  std::array<uint64_t, kResumes> resumes = {};
  static constexpr std::array<absl::Duration, 8> kLifeBounds = {
      absl::Seconds(1),  absl::Seconds(10), absl::Minutes(1), absl::Minutes(5),
      absl::Minutes(15), absl::Hours(1),    absl::Hours(4),   absl::Hours(24)};
  // How long ended streams lived, by the cause of their end.
  std::vector<core::DurationHistogram> lives =
      std::vector(kStreamEnds, core::DurationHistogram(kLifeBounds));
  size_t unsent_bytes = 0;  // not taken by the kernel yet, of all streams, at most a second ago

  uint64_t ended_by(StreamEnd end) const { return ended[static_cast<size_t>(end)]; }
};

struct BridgeGauges {
  size_t exchanges = 0;  // HTTP requests under way
  size_t sessions_cached = 0;
  StreamGauges streams;
  uint64_t requests = 0;            // HTTP requests, so far
  uint64_t hard_timers = 0;         // waits ended because the control plane was silent
  uint64_t reattached = 0;          // calls whose stream was listened to after a loss
  uint64_t foreign_refused = 0;     // Origin or Host not ours
  uint64_t envelopes = 0;           // calls answered with a job because they took too long
  uint64_t session_mismatches = 0;  // requests of sessions that nobody knows (404)
};

}  // namespace callboard::bridge
