// A stream without a session that measures the path between a client and this bridge.
#pragma once

#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "bridge/bridge_core.h"
#include "bridge/exchange.h"
#include "bridge/sse_writer.h"

namespace callboard::bridge {

// A GET of /mcp with this header opens a probe: "beats" carries a comment every second, "silent"
// nothing at all after its first, which tells the bridge's own heartbeat: `probe heartbeat_ms=N`.
constexpr std::string_view kProbeHeader = "x-callboard-probe";

// What `callboard doctor --url` opens to find what holds bytes back and what cuts silent streams.
// Owned by Exchanges; loop thread. Bounds: BridgeLimits::probes_max, and kLifeMax each.
class ProbeExchange final : public Exchange {
 public:
  static constexpr absl::Duration kLifeMax = absl::Minutes(10);

  // nullopt: the header has a value we do not know. Infinite: silent.
  static std::optional<absl::Duration> ParseBeat(std::string_view header);

  ProbeExchange(BridgeCore& core, HttpAnswer answer, absl::Duration beat);
  ~ProbeExchange() override { --core_.probes; }

  void Start();
  void Drain(bool last) override;
  bool ends() const override { return false; }

 private:
  void OnHardTimer() override {}
  void OnTick() override;

  BridgeCore& core_;
  const absl::Time end_;
  SseWriter sse_;
};

}  // namespace callboard::bridge
