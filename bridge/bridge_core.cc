// Implementation of StreamSlot, and of the refusal where there is none.
#include "bridge/bridge_core.h"

#include <utility>

#include "bridge/http_answer.h"
#include "core/mcp/jsonrpc.h"

namespace callboard::bridge {

void RefuseStream(BridgeCore& core, const HttpAnswer& answer) {
  if (!core.draining) ++core.gauges.streams.refused;
  answer.RpcError(503, {}, core::kServerError,
                  core.draining ? "the server is shutting down" : "too many open streams",
                  core.draining ? R"({"reason":"draining"})" : R"({"reason":"too_many"})",
                  RetryAfter());
}

bool StreamSlot::HasRoom(const BridgeCore& core, std::string_view session_id) {
  if (core.gauges.streams.open >= core.config.limits.streams_max) return false;
  if (session_id.empty()) return true;
  const auto found = core.session_streams.find(session_id);
  return found == core.session_streams.end() ||
         found->second < core.config.limits.streams_per_session_max;
}

StreamSlot::StreamSlot(BridgeCore& core, std::string session_id)
    : core_(&core), session_id_(std::move(session_id)) {
  ++core.session_streams[session_id_];
}

StreamSlot::StreamSlot(StreamSlot&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)), session_id_(std::move(other.session_id_)) {}

StreamSlot& StreamSlot::operator=(StreamSlot&& other) noexcept {
  std::swap(core_, other.core_);
  std::swap(session_id_, other.session_id_);
  return *this;
}

StreamSlot::~StreamSlot() {
  if (core_ == nullptr) return;
  const auto found = core_->session_streams.find(session_id_);
  if (found != core_->session_streams.end() && --found->second == 0) {
    core_->session_streams.erase(found);
  }
}

}  // namespace callboard::bridge
