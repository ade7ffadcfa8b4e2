// Implementation of DrawSettings.
#include "tests/sim/sim_settings.h"

namespace callboard::sim {

SimSettings DrawSettings(core::Random& random) {
  SimSettings settings;
  server::Budgets& budgets = settings.budgets;
  budgets.heartbeat = absl::Seconds(2);
  budgets.link_read_idle = absl::Seconds(6);
  budgets.quick_call = absl::Seconds(10);
  budgets.heavy_call = absl::Seconds(20);
  budgets.queue = absl::Seconds(40);
  budgets.upper_wait_margin = absl::Seconds(5);
  budgets.session_idle = absl::Minutes(30);
  budgets.skill_relist = absl::Seconds(3);
  budgets.receipt = absl::Minutes(2);

  bridge::BridgeConfig& bridge = settings.bridge;
  bridge.heartbeat = absl::Seconds(5);
  bridge.open_stream_after = absl::Milliseconds(random.Below(3) * 100);
  bridge.slow_reader = absl::Seconds(5);
  bridge.hard_wait = budgets.queue + budgets.heavy_call + 2 * budgets.upper_wait_margin;
  bridge.unary_wait = absl::Seconds(10);
  settings.http.write_timeout = absl::Seconds(10);
  // The bridge's hard timer of the call that wished for the longest run.
  settings.call_budget = bridge.hard_wait + absl::Seconds(15) + absl::Seconds(10);

  agent::SeatLimits& seat = settings.seat;
  seat.session.initialize_timeout = absl::Seconds(8);
  seat.session.retry_max = absl::Seconds(3);
  seat.watcher.page_timeout = absl::Seconds(5);
  seat.session_ask_wait = absl::Seconds(10);
  seat.watcher.poll = absl::Seconds(20);
  seat.watcher.retry = absl::Seconds(1);
  seat.relist_wait = absl::Seconds(2);
  seat.late_max = absl::Seconds(20);
  seat.busy_probe_timeout = absl::Seconds(10);

  // Whoever selects here selects all of all seats.
  settings.limits.selected_tools_max = 1'000;
  if (random.Below(3) == 0) {
    settings.limits.replay_events_max = 8;
    settings.limits.replay_bytes_max = 32 << 10;
    settings.limits.receipts_max = 200;
    settings.limits.streams_per_session_max = 64;
    settings.limits.link_unreceived_max = 64 << 10;
    settings.limits.link_unreceived_most = 1 << 20;
    settings.limits.window_max = 128 << 10;
    settings.limits.window = 16 << 10;
    settings.agent.window = 16 << 10;
    settings.agent.window_max = 128 << 10;
    settings.agent.link_unreceived_max = 64 << 10;
    settings.agent.link_unreceived_most = 1 << 20;
    settings.agent.journal_bytes_max = 64 << 10;
    settings.agent.tombstones_max = 64;
    settings.agent.ended_bytes_max = 1 << 10;
    seat.queue.main_depth = 4;
  }
  return settings;
}

}  // namespace callboard::sim
