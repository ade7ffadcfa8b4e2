// What backends ask the client of a session outside its calls, on the session's own stream.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "callboard/v1/agent.pb.h"
#include "callboard/v1/control.pb.h"
#include "core/runtime/event_loop.h"
#include "server/flows/agent_directory.h"
#include "server/flows/call_flow.h"
#include "server/flows/seat_audience.h"

namespace callboard::server {

// Loop thread, owned by ControlPlane::Impl. Each is answered at its agent exactly once: by the
// client, or with an error: at once for one that cannot be asked, when its time is over, when it
// has been away for the session's grace, and when its session ends. When the link of the agent
// ends, the agent answers, and the client is told that nobody waits. Nothing of it outlives the
// control plane. Bounds: kPerSession of a session, kAll of all; one more is answered with an error.
class SessionAsks final {
 public:
  static constexpr size_t kPerSession = 64;
  static constexpr size_t kAll = 16'384;
  // However long the agent would wait.
  static constexpr absl::Duration kWaitMax = absl::Minutes(10);

  SessionAsks(CallFlow& flow, SeatAudience& audience, AgentDirectory& agents)
      : flow_(flow), audience_(audience), agents_(agents) {}

  // The seat is one of that agent's.
  void Take(const std::string& agent_id, v1::SessionAsk& ask);
  void TakeBack(const std::string& agent_id, const v1::SessionAskCancel& cancelled);
  void OnLinkDown(const std::string& agent_id);
  // False: that session is not asked that.
  bool Answer(const std::string& session_id, const v1::AskAnswer& answer);
  void EndSession(const std::string& session_id);
  // The control plane ends in order.
  void EndAll();

  size_t open() const { return open_.size(); }

 private:
  struct Open {
    std::string agent_id;
    std::string session_id;
    v1::SessionAnswer answer;  // as far as it is known: whose
    absl::Time until;
    core::Timer timer;
  };
  using Opened = std::map<uint64_t, Open>;

  // nullptr: the session has none.
  const Stream* OwnStream(std::string_view session_id) const;
  bool IsGone(const Stream* own) const;
  void Await(uint64_t n);
  void Look(uint64_t n);
  // Tells the client that nobody waits for its answer.
  void Withdraw(uint64_t n, const Open& open, const std::string& raw_params);
  // The agent's backend is answered with an error, and the client told why.
  void GiveUp(Opened::iterator at, const std::string& why);
  void Say(const std::string& agent_id, v1::SessionAnswer answer);
  std::string AskId(uint64_t n) const;

  CallFlow& flow_;
  SeatAudience& audience_;
  AgentDirectory& agents_;
  Opened open_;
  uint64_t last_ = 0;
};

}  // namespace callboard::server
