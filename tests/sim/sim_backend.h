// Carries JSON-RPC messages between an agent's seat and the simulated DCC of a place.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "backend_agent/backend.h"
#include "core/runtime/lifetime.h"
#include "tests/sim/sim_dcc.h"

namespace callboard::sim {

// Owned by a McpSession. A kStdio backend owns its process: destroying it kills the DCC. A kHttp
// backend belongs to one pid and stays down once that process has ended.
class SimBackend final : public agent::Backend {
 public:
  // `shared`: all clients' calls go by it that have no session of their own.
  explicit SimBackend(DccPlace& place, bool shared = true);
  ~SimBackend() override;

  void Start(Events* events) override;
  std::unique_ptr<agent::BackendExchange> Send(uint64_t id, std::string text, bool expects_reply,
                                               const core::TraceContext& trace) override;
  void SetRevision(std::string_view) override {}
  void Probe(absl::AnyInvocable<void(bool alive)> callback) override;
  bool ends_unanswered_exchanges() const override { return true; }
  std::unique_ptr<agent::Backend> OpenAnother() override;
  bool may_open_another() const override { return place_.has_sessions_; }
  std::string description() const override { return "sim:" + place_.name(); }
  int64_t pid() const override { return pid_; }

  // From the DCC: a message, tied to an exchange or not; `last` completes the exchange. `arrived`
  // runs if it gets as far as the agent.
  void Deliver(uint64_t exchange, std::string text, bool last,
               absl::AnyInvocable<void()> arrived = nullptr);
  // From the DCC, of no exchange, and made when it arrives. `n` counts those that arrive while the
  // agent waits for no answer here; 0: it does, and may take the message for part of that call.
  void Tell(absl::AnyInvocable<std::string(int64_t n)> make);
  bool shared() const { return shared_; }
  // The process is gone.
  void ProcessEnded();
  void BreakExchanges();

 private:
  class Exchange;
  struct Open {
    bool reached = false;
    bool expects_reply = false;
  };

  void Spawn(absl::Duration delay);
  void Up();
  // Runs `fn` after the local hop, in order.
  void Later(absl::AnyInvocable<void()> fn);
  void BreakAll();
  // The DCC works on for nobody.
  void Detach(uint64_t id);
  void EndExchange(uint64_t id, absl::Status status, bool reached);

  DccPlace& place_;
  const uint64_t serial_;
  const bool shared_;
  Events* events_ = nullptr;
  int64_t pid_ = 0;
  bool up_ = false;
  std::map<uint64_t, Open> open_;
  int64_t told_alone_ = 0;
  absl::Time last_event_ = absl::InfinitePast();
  std::deque<core::Timer> timers_;
  core::Timer spawn_timer_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::sim
