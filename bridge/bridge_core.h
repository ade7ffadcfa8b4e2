// What the endpoints of one bridge share.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "bridge/access_control.h"
#include "bridge/config.h"
#include "bridge/control_plane_client.h"
#include "bridge/exchange.h"
#include "bridge/session_cache.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {

class SseSession;

// A seat's tools as the control plane last gave them.
struct ToolList {
  std::string digest;
  std::shared_ptr<const std::string> text;  // raw JSON array
};

// Loop thread; owned by Bridge. `loop`, `random` and `client` outlive it.
struct BridgeCore {
  BridgeCore(core::EventLoop& event_loop, core::Random& random_source,
             ControlPlaneClient& control_plane, BridgeConfig bridge_config)
      : loop(event_loop),
        random(random_source),
        client(control_plane),
        config(std::move(bridge_config)),
        access(config),
        sessions(config.limits.sessions_cached_max, config.session_recheck),
        exchanges(loop, config, gauges) {}

  core::EventLoop& loop;
  core::Random& random;
  ControlPlaneClient& client;
  BridgeConfig config;
  BridgeGauges gauges;
  const AccessControl access;
  SessionCache sessions;
  core::StringMap<ToolList> tool_lists;     // by seat id, or by what it was called
  core::StringMap<size_t> session_streams;  // open SSE answers by session id
  // Of HTTP+SSE: its open streams, by the id their clients post with. Owned by `exchanges`.
  core::StringMap<SseSession*> sse_sessions;
  size_t probes = 0;  // open ProbeExchanges
  bool draining = false;
  // Last: exchanges hold references to all of the above.
  Exchanges exchanges;
};

// 503: the bridge drains, or has as many streams as it may have.
void RefuseStream(BridgeCore& core, const HttpAnswer& answer);

// Counts one SSE answer of a session for as long as it exists.
class StreamSlot {
 public:
  // Whether session (empty: there is none) and bridge may have one more stream. POSTs ask when they
  // begin and take the slot when their stream opens, so the limits may be exceeded by the calls
  // under way.
  static bool HasRoom(const BridgeCore& core, std::string_view session_id);

  StreamSlot() = default;
  StreamSlot(BridgeCore& core, std::string session_id);
  StreamSlot(StreamSlot&& other) noexcept;
  StreamSlot& operator=(StreamSlot&& other) noexcept;
  ~StreamSlot();

 private:
  BridgeCore* core_ = nullptr;
  std::string session_id_;
};

}  // namespace callboard::bridge
