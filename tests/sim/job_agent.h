// An agent whose tool starts jobs: its outcome leaves the call open, updates follow, then its end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend_agent/agent.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"
#include "tests/sim/agent_network.h"
#include "tests/sim/client_surroundings.h"
#include "tests/sim/trace.h"

namespace callboard::sim {

// Speaks the link's protocol by itself, because the product's agent does not follow jobs yet. One
// seat, never restarted; nothing but links fails. Loop thread only. Violates the trace when the
// control plane forgets a job before it has ended.
class JobAgent final : private agent::ControlPlaneLink::Handler {
 public:
  JobAgent(core::EventLoop& loop, core::Random& random, Trace& trace, Ledger& ledger,
           AgentNetwork& network);
  ~JobAgent() override;

  static constexpr std::string_view kName = "jobber";
  const SeatName& seat() const { return seat_; }
  // Calls that the control plane has not settled.
  size_t calls() const { return calls_.size(); }

 private:
  struct Job {
    uint32_t attempt = 1;
    std::string tag;
    std::vector<v1::CallEvent> events;
    int updates_left = 0;
    bool closed = false;
    core::Timer timer;
  };

  void OnMessage(v1::ServerFrame frame) override;
  void OnWritten() override;
  void OnClosed(absl::Status status) override;

  void Dial();
  void Say(v1::AgentItem item);
  void Flush();
  void TakeItem(const v1::ServerItem& item);
  void TakeDispatch(const v1::Dispatch& dispatch);
  void TakeVerdict(const v1::Verdict& verdict);
  void Settle(const std::string& call_id);
  void GoOn(const std::string& call_id);
  void Emit(Job& job, v1::CallEvent event);
  v1::SeatState State() const;
  void Beat();

  core::EventLoop& loop_;
  core::Random& random_;
  Trace& trace_;
  Ledger& ledger_;
  const SeatName seat_;
  const std::string agent_id_;
  const std::string catalogue_;
  std::unique_ptr<agent::LinkDialer> dialer_;
  std::unique_ptr<agent::ControlPlaneLink> link_;
  uint64_t epoch_ = 0;
  uint64_t received_ = 0;
  uint64_t reported_ = 0;
  absl::Time last_heard_;
  bool linked_ = false;
  bool writing_ = false;
  std::vector<v1::AgentItem> waiting_;
  std::map<std::string, Job> calls_;
  core::Timer dial_timer_;
  core::Timer beat_timer_;
  core::Timer flush_timer_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::sim
