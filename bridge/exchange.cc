// Implementation of the exchanges: ownership, the common timer, unary waits.
#include "bridge/exchange.h"

#include "bridge/errors.h"
#include "core/mcp/jsonrpc.h"
#include "core/telemetry/log.h"

namespace callboard::bridge {
namespace {

// An HTTP request that waits for one unary reply.
class WaitingExchange final : public Exchange {
 public:
  WaitingExchange(Exchanges& owner, const HttpAnswer& answer, std::string raw_id)
      : Exchange(owner, answer), raw_id_(std::move(raw_id)), started_(owner.loop().Now()) {
    Restart(owner.config().unary_wait);
    WatchPeer();
  }

  void Drain(bool last) override {
    if (last) GiveUp(503, "the server is shutting down", R"({"reason":"draining"})");
  }

 private:
  void OnHardTimer() override {
    const std::string diagnostics = DiagnosticsOf(owner_.loop(), started_).Take();
    core::LogWarn("hard_timer", {{"diagnostics", diagnostics}});
    GiveUp(504, "the control plane did not answer in time",
           core::SetMember(HardTimerData(/*started=*/false), "diagnostics", diagnostics));
  }
  void GiveUp(int status, std::string_view message, std::string_view data) {
    // What asks for no JSON-RPC response learns it from the status.
    if (!raw_id_.empty()) status = 200;
    answer_.RpcError(status, raw_id_, answer_.server_error(), message, data,
                     status == 503 ? RetryAfter() : net::HeaderList());
    Finish();
  }

  std::string raw_id_;
  absl::Time started_;
};

}  // namespace

Exchange::Exchange(Exchanges& owner, HttpAnswer answer)
    : owner_(owner), answer_(std::move(answer)) {}

void Exchange::Tick(absl::Time now) {
  if (finished_) return;
  if (now >= deadline_) {
    ++owner_.gauges().hard_timers;
    return OnHardTimer();
  }
  OnTick();
}

void Exchange::Restart(absl::Duration wait) { deadline_ = owner_.loop().Now() + wait; }

void Exchange::WatchPeer() {
  answer_.responder().OnPeerGone(lifetime_.Wrap([this] {
    if (!finished_) OnPeerGone();
  }));
}

void Exchange::Finish() {
  if (finished_) return;
  finished_ = true;
  lifetime_.Renew();
  owner_.Remove(*this);
}

Exchange* Exchanges::Find(uint64_t id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : found->second.get();
}

void Exchanges::Abandon(uint64_t id) {
  if (Exchange* const exchange = Find(id)) exchange->Finish();
}

uint64_t Exchanges::AddWaiting(const HttpAnswer& answer, std::string raw_id) {
  return Add(std::make_unique<WaitingExchange>(*this, answer, std::move(raw_id))).id();
}

void Exchanges::Insert(std::unique_ptr<Exchange> exchange) {
  exchange->id_ = ++last_id_;
  if (exchange->ends()) ++ending_;
  live_.emplace_hint(live_.end(), exchange->id_, std::move(exchange));
  gauges_.exchanges = live_.size();
  if (!tick_.pending()) tick_ = loop_.After(kTick, [this] { OnTick(); });
}

void Exchanges::Remove(Exchange& exchange) {
  const auto found = live_.find(exchange.id_);
  if (found == live_.end()) return;
  if (finished_.empty()) {
    loop_.Post(lifetime_.Wrap([this] {
      // Destructors may call anything, this included.
      std::exchange(finished_, {}).clear();
      // May destroy the bridge.
      if (idle() && on_idle_) on_idle_();
    }));
  }
  if (exchange.ends()) --ending_;
  finished_.push_back(std::move(found->second));
  live_.erase(found);
  gauges_.exchanges = live_.size();
}

template <class Fn>
void Exchanges::ForEach(Fn fn) {
  // Callbacks may add and finish exchanges.
  std::vector<uint64_t> ids;
  ids.reserve(live_.size());
  for (const auto& [id, exchange] : live_) ids.push_back(id);
  for (const uint64_t id : ids) {
    if (Exchange* const exchange = Find(id)) fn(*exchange);
  }
}

void Exchanges::OnTick() {
  const absl::Time now = loop_.Now();
  ForEach([now](Exchange& exchange) { exchange.Tick(now); });
  if (!live_.empty()) tick_ = loop_.After(kTick, [this] { OnTick(); });
}

void Exchanges::DrainAll(bool last) {
  ForEach([last](Exchange& exchange) { exchange.Drain(last); });
}

}  // namespace callboard::bridge
