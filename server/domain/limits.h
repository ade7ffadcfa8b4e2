// Every bound and budget of the control plane, with what happens beyond it, and the order they must
// keep.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace callboard::server {

// Layered budgets (C3): each outer one exceeds the inner.
struct Budgets {
  absl::Duration connect = absl::Seconds(3);
  absl::Duration heartbeat = absl::Seconds(5);
  absl::Duration link_read_idle = absl::Seconds(15);
  absl::Duration quick_call = absl::Seconds(30);
  absl::Duration heavy_call = absl::Seconds(120);
  absl::Duration call_max = absl::Hours(24);  // a caller's or tool's own wish is cut to this
  absl::Duration queue = absl::Minutes(10);
  absl::Duration upper_wait_margin = absl::Seconds(10);  // hard timer = queue + run + this
  absl::Duration welcome = absl::Seconds(5);             // from Attach to InventoryDone
  absl::Duration fence_ping = absl::Seconds(2);
  absl::Duration settle_delay = absl::Milliseconds(100);
  absl::Duration session_grace = absl::Seconds(60);
  absl::Duration session_idle = absl::Hours(8);
  absl::Duration skill_relist = absl::Seconds(5);  // LoadSkill waits so long for the new list
  absl::Duration receipt = absl::Hours(24);
};

struct Limits {
  size_t agents_max = 4'096;             // refuse: Refused TOO_MANY_AGENTS
  size_t sessions_max = 20'000;          // evict the least recently used
  size_t streams_per_session_max = 256;  // refuse the call's stream: too_many
  size_t calls_per_session_max = 256;    // refuse: REJECTED, QUEUE_FULL
  size_t open_executions_max = 50'000;   // refuse
  size_t receipts_max = 100'000;         // drop the oldest ended
  size_t replay_events_max = 4'096;      // per stream in memory: older ones are read from the store
  size_t replay_bytes_max = 1 << 20;     // per stream, likewise
  size_t replay_total_bytes_max = 512 << 20;  // all streams, likewise
  // All streams in the store: drop the oldest events, announce a gap.
  uint64_t replay_disk_bytes_max = 4ull << 30;
  // Outcomes kept with receipts: drop the oldest; the receipt stays.
  uint64_t receipt_outcomes_bytes_max = 1ull << 30;
  // Bodies over 64 KiB of such outcomes: drop the oldest; the outcome then says so.
  uint64_t kept_bodies_bytes_max = 4ull << 30;
  // Different selections of tools shown directly: refuse the session that brings another.
  size_t selections_max = 1'024;
  size_t selected_tools_max = 128;       // of one selection: leave out the others, say how many
  size_t tool_name_characters_max = 48;  // of names made for them: cut, and told apart by a hash
  size_t params_bytes_max = 16 << 20;    // refuse: PARAMS_TOO_LARGE
  uint64_t result_bytes_max = 256ull << 20;  // told to agents: RESULT_TOO_LARGE
  uint32_t window = 64 << 10;                // per call and direction at first
  uint32_t window_max = 1 << 20;
  size_t link_unreceived_max = 256 << 10;  // frames written and not yet taken by the peer
  size_t link_unreceived_most = 4 << 20;   // the same, where bandwidth times delay asks for it
  size_t frame_bytes_max = 256 << 10;
  uint32_t agent_open_calls_max = 4'096;
  uint64_t agent_queued_bytes_max = 64ull << 20;
};

// InvalidArgument names both settings and both values of each pair whose order is wrong.
absl::Status CheckOrder(const Budgets& budgets);

}  // namespace callboard::server
