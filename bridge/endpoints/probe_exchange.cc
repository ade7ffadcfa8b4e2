// Implementation of ProbeExchange.
#include "bridge/endpoints/probe_exchange.h"

#include <fmt/format.h>

#include <utility>

namespace callboard::bridge {

std::optional<absl::Duration> ProbeExchange::ParseBeat(std::string_view header) {
  if (header == "beats") return absl::Seconds(1);
  if (header == "silent") return absl::InfiniteDuration();
  return std::nullopt;
}

ProbeExchange::ProbeExchange(BridgeCore& core, HttpAnswer answer, absl::Duration beat)
    : Exchange(core.exchanges, answer),
      core_(core),
      end_(core.loop.Now() + kLifeMax),
      sse_(core.loop, core.random, core.config, core.gauges, std::move(answer)) {
  ++core_.probes;
  sse_.BeatEvery(beat);
  WatchPeer();
}

void ProbeExchange::Start() {
  sse_.Start();
  sse_.Comment(
      fmt::format("probe heartbeat_ms={}", absl::ToInt64Milliseconds(core_.config.heartbeat)));
}

void ProbeExchange::OnTick() {
  if (!sse_.Check(Exchanges::kTick)) return Finish();
  if (core_.loop.Now() < end_) return;
  sse_.End();
  Finish();
}

void ProbeExchange::Drain(bool) {
  sse_.Close(StreamEnd::kDrain, /*tell=*/true);
  Finish();
}

}  // namespace callboard::bridge
