// What a bridge is configured with and what it counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace callboard::bridge {

struct BridgeLimits {
  // Open SSE streams in all. Beyond: a GET gets 503 with Retry-After, a POST plain JSON only.
  size_t streams_max = 10'000;
  // The same per session.
  size_t streams_per_session_max = 64;
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
  // Bytes a stream's reader may leave untaken for slow_reader_time before it is cut off.
  size_t unsent_bytes_max = 256 * 1024;
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

  // A stream that carried nothing for that long carries a comment.
  absl::Duration heartbeat = absl::Seconds(15);
  // A call that is not done by then gets an SSE stream.
  absl::Duration open_stream_after = absl::Milliseconds(250);
  // How long clients wait before they reconnect (`retry:`).
  absl::Duration retry = absl::Seconds(3);
  // A stream ends after so long with `event: close`; up to a tenth earlier, at random.
  absl::Duration stream_life_max = absl::Hours(24);
  absl::Duration slow_reader_time = absl::Seconds(20);
  // The fallback when the control plane is silent: for calls between two events, on top of the run
  // time the caller asked for. Exceeds the queue budget (10 min) plus the heaviest class (120 s).
  absl::Duration hard_wait = absl::Minutes(13);
  // The same for what the control plane answers from memory.
  absl::Duration unary_wait = absl::Seconds(30);
  // A cached session older than this is asked for again before it is believed.
  absl::Duration session_recheck = absl::Seconds(30);
  BridgeLimits limits;
};

struct BridgeGauges {
  size_t exchanges = 0;  // HTTP requests under way
  size_t streams = 0;    // open SSE streams
  size_t sessions_cached = 0;
  uint64_t requests = 0;  // HTTP requests, so far
  uint64_t streams_opened = 0;
  uint64_t streams_refused = 0;
  uint64_t slow_readers_cut = 0;
  uint64_t hard_timers = 0;      // waits ended because the control plane was silent
  uint64_t foreign_refused = 0;  // Origin or Host not ours
};

}  // namespace callboard::bridge
