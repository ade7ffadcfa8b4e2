// Implementation of the control plane's figures.
#include "server/flows/plane_metrics.h"

#include <array>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "core/telemetry/bounded_samples.h"

namespace callboard::server {
namespace {

constexpr std::array<std::string_view, 4> kPresences = {"linked", "detached", "stale", "dead"};

void WriteSeats(const SeatRegistry& seats, core::MetricsText& text) {
  std::array<size_t, kPresences.size()> present = {};
  for (const auto& [id, seat] : seats.all()) ++present[static_cast<size_t>(seat.presence)];
  text.Gauge("callboard_seats", "Known seats, by whether they can be reached.");
  for (size_t i = 0; i < kPresences.size(); ++i) {
    text.Sample(present[i], {{"presence", kPresences[i]}});
  }
  const auto write_each = [&](auto value) {
    core::BoundedSamples samples(text, "seat", "name");
    for (const auto& [id, seat] : seats.all()) {
      if (seat.presence == Presence::kDead) continue;
      samples.Add(id, seats.DisplayName(seat), static_cast<uint64_t>(value(seat.state)));
    }
  };
  text.Gauge("callboard_seat_queue_depth", "Calls that wait for their turn at a seat.");
  write_each([](const v1::SeatState& state) { return state.queue_depth(); });
  text.Gauge("callboard_seat_running", "Calls at work at a seat.");
  write_each([](const v1::SeatState& state) { return state.running_size(); });
}

void WriteLinks(const ControlPlaneGauges& gauges, core::MetricsText& text) {
  text.Gauge("callboard_agents", "Agents whose link is up.").Sample(gauges.agents);
  text.Counter("callboard_agent_links_total",
               "Links accepted: an agent's first since this process began, or one that came back.")
      .Sample(gauges.links_first, {{"kind", "first"}})
      .Sample(gauges.links_again, {{"kind", "again"}});
  text.Counter("callboard_agent_reattached_total",
               "Links of agents that were linked before: in the same run of theirs, or a new one.")
      .Sample(gauges.links_resumed, {{"level", "resume"}})
      .Sample(gauges.links_re_registered, {{"level", "re_register"}});
  text.Counter("callboard_agent_links_refused_total", "Links refused, by reason.");
  for (int code = v1::Refused::CODE_UNSPECIFIED + 1; code < v1::Refused::Code_ARRAYSIZE; ++code) {
    const std::string reason =
        absl::AsciiStrToLower(v1::Refused::Code_Name(static_cast<v1::Refused::Code>(code)));
    text.Sample(gauges.links_refused[static_cast<size_t>(code)], {{"reason", reason}});
  }
  text.Counter("callboard_agent_link_drops_total", "Links lost, by cause.");
  for (size_t i = 0; i < kLinkDrops; ++i) {
    text.Sample(gauges.link_drops[i], {{"cause", LinkDropName(static_cast<LinkDrop>(i))}});
  }
  text.Counter("callboard_agent_items_ignored_total",
               "Items of agents that meant nothing here: of a newer protocol, or of others' calls.")
      .Sample(gauges.ignored_items);
  text.Gauge("callboard_pending_settles", "Ended calls whose agents are still to be told so.")
      .Sample(gauges.pending_settles);
}

}  // namespace

void WriteMetrics(const Plane& plane, const ControlPlaneGauges& gauges, core::MetricsText& text) {
  text.Gauge("callboard_control_plane_term", "Grows by one with each start on the same store.")
      .Sample(plane.term);
  text.Gauge("callboard_draining", "1 while an orderly end is under way.").Sample(plane.draining);
  plane.executions.metrics().Write(text);
  text.Gauge("callboard_receipts", "Ended calls that can be asked for.")
      .Sample(gauges.ended_executions);
  text.Gauge("callboard_open_asks", "Requests to clients that are not answered.")
      .Sample(gauges.open_asks);
  text.Gauge("callboard_sessions", "Sessions.").Sample(gauges.sessions);
  text.Counter("callboard_sessions_opened_total", "Sessions opened: each initialize of a client.")
      .Sample(gauges.sessions_opened);
  text.Gauge("callboard_sessions_awaited",
             "Sessions of a former process whose clients have not come back yet.")
      .Sample(gauges.sessions_awaited);
  text.Counter("callboard_sessions_taken_over_total",
               "Sessions of a former process: taken up by their clients, or ended before.")
      .Sample(gauges.sessions_taken_up, {{"result", "taken_up"}})
      .Sample(gauges.sessions_lost, {{"result", "ended"}});
  text.Gauge("callboard_streams_kept", "Streams of sessions and calls, read by somebody or not.")
      .Sample(gauges.streams);
  text.Gauge("callboard_replay_bytes", "Events in memory for clients that come back.")
      .Sample(gauges.replay_bytes);
  WriteLinks(gauges, text);
  WriteSeats(plane.seats, text);
  text.Gauge("callboard_store_up", "0 while nothing becomes durable.")
      .Sample(plane.store.status().ok());
  plane.store.WriteMetrics(text);
}

}  // namespace callboard::server
