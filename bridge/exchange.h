// HTTP requests that wait for the control plane: who owns them, what watches over them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/config.h"
#include "bridge/control_plane_client.h"
#include "bridge/http_answer.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"

namespace callboard::bridge {

class Exchanges;

// One HTTP request (or one item of a batch) under way. Owned by Exchanges from Add() until
// Finish(); answers exactly once. Loop thread.
class Exchange {
 public:
  Exchange(Exchanges& owner, HttpAnswer answer);
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  uint64_t id() const { return id_; }

  // Called every Exchanges::kTick.
  void Tick(absl::Time now);
  // The process is about to end. `last`: answer now, the time for it is over.
  virtual void Drain(bool last) = 0;
  // Whether there is an end to wait for. Must not change.
  virtual bool ends() const { return true; }

 protected:
  // The control plane was silent until the deadline: answer, and Finish().
  virtual void OnHardTimer() = 0;
  // For heartbeats.
  virtual void OnTick() {}
  // The client went away; the answer would reach nobody.
  virtual void OnPeerGone() { Finish(); }

  // Moves the deadline; to be called at every sign of the control plane.
  void Restart(absl::Duration wait);
  void WatchPeer();
  // Gives the exchange up: no callback wrapped in lifetime_ runs any more. Deleted a little later,
  // so that it may be called from anywhere inside.
  void Finish();
  bool finished() const { return finished_; }

  Exchanges& owner_;
  HttpAnswer answer_;
  core::Lifetime lifetime_;

 private:
  friend class Exchanges;
  uint64_t id_ = 0;
  absl::Time deadline_ = absl::InfiniteFuture();
  bool finished_ = false;
};

// All exchanges of a bridge, by number, with one coarse timer for all their deadlines: at most
// kTick late. Bounded by BridgeLimits::exchanges_max (has_room()). Destroying it drops them all:
// their connections close unanswered.
class Exchanges {
 public:
  static constexpr absl::Duration kTick = absl::Seconds(1);

  Exchanges(core::EventLoop& loop, const BridgeConfig& config, BridgeGauges& gauges)
      : loop_(loop), config_(config), gauges_(gauges) {}

  bool has_room() const { return live_.size() < config_.limits.exchanges_max; }
  bool empty() const { return live_.empty(); }
  // None is left that ends by itself.
  bool idle() const { return ending_ == 0; }

  template <class E>
  E& Add(std::unique_ptr<E> exchange) {
    E& added = *exchange;
    Insert(std::move(exchange));
    return added;
  }
  // nullptr once it is finished.
  Exchange* Find(uint64_t id);
  // Gives up one that somebody else answers for; nothing happens if it is finished.
  void Abandon(uint64_t id);

  void DrainAll(bool last);
  // `idle` runs, later, whenever one has gone and the others are idle().
  void OnIdle(absl::AnyInvocable<void()> idle) { on_idle_ = std::move(idle); }

  // A reply for `answer`'s request: `then` runs with it unless the client has gone, the bridge
  // gave up (an error response to `raw_id` was then sent) or was destroyed.
  template <class T>
  Reply<T> Await(const HttpAnswer& answer, std::string raw_id,
                 absl::AnyInvocable<void(absl::StatusOr<T>)> then);

  core::EventLoop& loop() { return loop_; }
  const BridgeConfig& config() const { return config_; }
  BridgeGauges& gauges() { return gauges_; }

 private:
  friend class Exchange;
  uint64_t AddWaiting(const HttpAnswer& answer, std::string raw_id);
  void Insert(std::unique_ptr<Exchange> exchange);
  void Remove(Exchange& exchange);
  void OnTick();
  template <class Fn>
  void ForEach(Fn fn);

  core::EventLoop& loop_;
  const BridgeConfig& config_;
  BridgeGauges& gauges_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, std::unique_ptr<Exchange>> live_;
  size_t ending_ = 0;  // of live_, those with ends()
  std::vector<std::unique_ptr<Exchange>> finished_;
  absl::AnyInvocable<void()> on_idle_;
  core::Timer tick_;
  core::Lifetime lifetime_;
};

template <class T>
Reply<T> Exchanges::Await(const HttpAnswer& answer, std::string raw_id,
                          absl::AnyInvocable<void(absl::StatusOr<T>)> then) {
  const uint64_t id = AddWaiting(answer, std::move(raw_id));
  return lifetime_.Wrap([this, id, then = std::move(then)](absl::StatusOr<T> reply) mutable {
    if (Find(id) == nullptr) return;
    Abandon(id);
    then(std::move(reply));
  });
}

}  // namespace callboard::bridge
