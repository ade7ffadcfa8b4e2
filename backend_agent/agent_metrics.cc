// Implementation of the agent's figures.
#include "backend_agent/agent_metrics.h"

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "core/telemetry/bounded_samples.h"

namespace callboard::agent {
namespace {

void WritePerSeat(const std::vector<v1::SeatState>& seats,
                  absl::FunctionRef<uint64_t(const v1::SeatState&)> value,
                  core::MetricsText& text) {
  core::BoundedSamples samples(text, "seat", "name");
  for (const v1::SeatState& seat : seats) samples.Add(seat.seat_id(), seat.name(), value(seat));
}

void WriteCalls(const AgentGauges& gauges, core::MetricsText& text) {
  text.Gauge("callboard_agent_calls", "Calls the agent holds until it is told to forget them.")
      .Sample(gauges.calls);
  text.Gauge("callboard_agent_calls_running", "Calls at work.").Sample(gauges.running);
  text.Gauge("callboard_agent_calls_held",
             "Calls that have ended and wait until their control plane settles them.")
      .Sample(gauges.held);
  text.Gauge("callboard_agent_held_bytes", "Their results that are kept in memory.")
      .Sample(gauges.held_bytes);
  text.Counter("callboard_agent_bodies_lost_total",
               "Results given up before their call was settled, for want of room.")
      .Sample(gauges.bodies_lost);
  text.Counter("callboard_agent_calls_started_total", "Calls sent to a backend.")
      .Sample(gauges.started);
  text.Counter("callboard_agent_calls_ended_total",
               "Calls ended at the agent, by outcome and reason.")
      .Sample(gauges.tool_errors, {{"outcome", "tool_error"}, {"reason", "none"}});
  for (const auto& [key, count] : gauges.ended) {
    const auto& [outcome, reason] = key;
    const std::string why =
        reason == v1::REASON_UNSPECIFIED ? "none" : absl::AsciiStrToLower(v1::Reason_Name(reason));
    text.Sample(count, {{"outcome", absl::AsciiStrToLower(v1::OutcomeClass_Name(outcome))},
                        {"reason", why}});
  }
  text.Gauge("callboard_agent_queued_bytes", "Parameters of calls that have not begun.")
      .Sample(gauges.queued_bytes);
  text.Gauge("callboard_agent_outbox_events", "Events that control planes have not confirmed.")
      .Sample(gauges.outbox_events);
  text.Counter("callboard_agent_progress_coalesced_total",
               "Progress that newer progress replaced while no window was left for it.")
      .Sample(gauges.coalesced);
  text.Gauge("callboard_agent_notices", "Notices that wait to be written.").Sample(gauges.notices);
  text.Counter("callboard_agent_notices_lost_total",
               "Notices given up before a control plane had them.")
      .Sample(gauges.notices_lost);
}

}  // namespace

void WriteMetrics(const AgentGauges& gauges, const std::vector<v1::SeatState>& seats,
                  core::MetricsText& text) {
  text.Gauge("callboard_agent_link_up", "Whether the link to a control plane is up, by address.");
  for (const auto& [address, up] : gauges.link_up) text.Sample(up, {{"address", address}});
  text.Counter("callboard_agent_dials_total", "Links begun.").Sample(gauges.attaches);
  text.Counter("callboard_agent_link_ups_total", "Links that a control plane has welcomed.")
      .Sample(gauges.welcomes);
  text.Counter("callboard_agent_relinks_total",
               "Links welcomed again: by the same process of a control plane, or by another one.")
      .Sample(gauges.links_resumed, {{"level", "resume"}})
      .Sample(gauges.links_re_registered, {{"level", "re_register"}});
  text.Counter("callboard_agent_link_failures_total",
               "Links begun that no control plane has welcomed, by reason.");
  for (int code = 0; code < v1::Refused::Code_ARRAYSIZE; ++code) {
    const std::string reason =
        code == v1::Refused::CODE_UNSPECIFIED
            ? "no_answer"
            : absl::AsciiStrToLower(v1::Refused::Code_Name(static_cast<v1::Refused::Code>(code)));
    text.Sample(gauges.link_failures[static_cast<size_t>(code)], {{"reason", reason}});
  }
  text.Counter("callboard_agent_link_drops_total", "Such links that have ended.")
      .Sample(gauges.link_drops);
  text.Counter("callboard_agent_items_ignored_total", "Items of a newer protocol.")
      .Sample(gauges.ignored_items);
  WriteCalls(gauges, text);
  text.Gauge("callboard_agent_journal_bytes", "The journal's file.").Sample(gauges.journal_bytes);
  text.Gauge("callboard_agent_journal_up", "0 while the journal cannot be written: nothing starts.")
      .Sample(gauges.journal_writable);
  text.Gauge("callboard_agent_spool_bytes", "Bodies kept on disk.").Sample(gauges.spool_bytes);
  text.Gauge("callboard_agent_seat_up", "Whether a seat's server answers.");
  WritePerSeat(
      seats,
      [](const v1::SeatState& seat) {
        return seat.health().endpoint() == v1::HEALTHY ? uint64_t{1} : uint64_t{0};
      },
      text);
  text.Gauge("callboard_agent_seat_queue_depth", "Calls that wait for their turn at a seat.");
  WritePerSeat(seats, [](const v1::SeatState& seat) { return uint64_t{seat.queue_depth()}; }, text);
}

}  // namespace callboard::agent
