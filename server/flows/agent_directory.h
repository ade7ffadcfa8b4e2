// Which agents are linked: fencing of their links, their seats and lists, and where items go.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/mcp/tool_list_delta.h"
#include "core/runtime/lifetime.h"
#include "server/flows/agent_session.h"
#include "server/flows/plane.h"
#include "server/flows/seat_keeper.h"

namespace callboard::server {

// What the links bring that concerns calls. Implemented by CallFlow.
class AgentCalls : public AgentOutbox::Source {
 public:
  // A link was accepted; `inventory` is what the agent holds. Its Welcome is already queued.
  virtual void OnLinkUp(const std::string& agent_id, AgentSession& link) = 0;
  virtual void OnLinkDown(const std::string& agent_id) = 0;
  // The agent has lost the link of a call's owner and asks who takes the call over.
  virtual void OnCallState(AgentSession& link, const v1::CallState& state) = 0;
  virtual void OnCallEvent(AgentSession& link, v1::CallEvent& event) = 0;
  virtual void OnChunk(AgentSession& link, v1::Chunk& chunk) = 0;
  virtual void OnCancelAck(AgentSession& link, const v1::CancelAck& ack) = 0;
  // The seat can be reached: what waited for it may go.
  virtual void OnSeatUp(const std::string& seat_id) = 0;
  virtual void OnNewIncarnation(const std::string& seat_id, uint64_t incarnation) = 0;
  // Removed, or not to come back soon.
  virtual void OnSeatDown(const std::string& seat_id, const std::string& why) = 0;
  // All items of a frame have been taken.
  virtual void OnTurnEnd() = 0;
};

// What sessions and watchers want to know of seats.
class SeatObserver {
 public:
  virtual ~SeatObserver() = default;
  virtual void OnSeatChanged(const std::string& seat_id) = 0;
  // Its agent has a new link.
  virtual void OnSeatLinked(const std::string& seat_id) = 0;
  // The seat's newest digest differs from the former one.
  virtual void OnListChanged(const std::string& seat_id) = 0;
  virtual void OnListArrived() = 0;
  // `boot_id`: of the agent that keeps it until it is acknowledged; empty if it does not.
  virtual void OnNotice(const std::string& boot_id, const v1::Notice& notice) = 0;
  // It is no longer known.
  virtual void OnSeatForgotten(const std::string& seat_id) = 0;
  // Of a seat of that agent, which takes the answer.
  virtual void OnSessionAsk(const std::string& agent_id, v1::SessionAsk& ask) = 0;
  virtual void OnSessionAskCancel(const std::string& agent_id,
                                  const v1::SessionAskCancel& cancelled) = 0;
  // The agent's link has ended.
  virtual void OnAgentUnlinked(const std::string& agent_id) = 0;
};

// Said in Hello and Welcome: notices are kept by the agent until they are acknowledged.
inline constexpr char kNoticeAcksFeature[] = "notice_acks";

// Likewise: the agent passes on what backends ask clients outside their calls.
inline constexpr char kSessionAsksFeature[] = "session_asks";

struct AgentInfo {
  std::string agent_id;
  std::string host;
  int64_t pid = 0;
  std::string boot_id;
  uint64_t epoch = 0;
  std::string journal_id;
  std::map<std::string, std::string> labels;
  bool keeps_notices = false;  // until they are acknowledged
  bool asks_sessions = false;  // outside calls
  uint64_t links = 0;          // accepted so far
  uint64_t refused = 0;        // openings of its links that were not
  std::string last_loss;       // why the last link ended
  absl::Time last_heard;
  absl::Time linked_at;
  AgentSession* link = nullptr;
};

// Loop thread, owned by ControlPlane::Impl. Bounds: agents_max linked and as many openings;
// catalogue bodies kCatalogueBytesMax each, one per seat.
class AgentDirectory final : public AgentSession::Host {
 public:
  AgentDirectory(Plane& plane, SeatKeeper& seats, AgentCalls& calls, SeatObserver& observer)
      : plane_(plane), seats_(seats), calls_(calls), observer_(observer) {}
  ~AgentDirectory() override;

  void Attach(std::unique_ptr<AgentLink> link, PeerIdentity peer);
  // nullptr while the agent is not linked.
  AgentSession* LinkOf(std::string_view agent_id) const;
  const AgentInfo* Find(std::string_view agent_id) const;
  void GoAway(absl::Duration grace);
  // Nothing more is taken from agents.
  void Close();
  // Nothing happens while the seat's agent is not linked.
  void SendInterest(const std::string& seat_id, v1::Interest interest);
  // Nothing happens unless that agent is linked and counts within that boot.
  void AckNotices(const std::string& seat_id, const std::string& boot_id, uint64_t n);
  // Ages seats, forgets agents without seats.
  void Sweep();

  size_t linked() const { return linked_; }
  size_t pending_settles() const;
  // Items of all links so far that meant nothing.
  uint64_t ignored_items() const;
  // Links accepted and lost.
  void AddTo(ControlPlaneGauges& gauges) const;

  void OnInventory(AgentSession& session) override;
  void OnRefused(v1::Refused::Code code) override { ++links_refused_[static_cast<size_t>(code)]; }
  void OnItem(AgentSession& session, v1::AgentItem& item) override;
  void OnFrameBegin() override { plane_.ready->BeginTurn(); }
  void OnFrameEnd() override {
    calls_.OnTurnEnd();
    plane_.ready->Run();
  }
  void OnGone(AgentSession& session, const absl::Status& status) override;

 private:
  struct CatalogueBody {
    std::string digest;
    uint64_t size = 0;
    std::string bytes;
    std::shared_ptr<const ToolList> base;  // of a delta
    std::vector<core::ToolListChange> changes;
  };
  struct Agent {
    AgentInfo info;
    std::map<std::string, CatalogueBody> catalogues;  // by seat, on their way
    std::map<std::string, std::string> wanted;        // seat -> digest asked for on this link
    std::map<std::string, std::string> refused;       // seat -> digest of a list not taken
    std::map<std::string, std::shared_ptr<const ToolList>>
        bases;  // by seat, the list it had before
  };

  void Decide(AgentSession& session, Agent& agent);
  void Admit(AgentSession& session, Agent& agent);
  // The link is no longer the agent's.
  void Unlink(Agent& agent, const absl::Status& why);
  // Lets a session go once the stack has unwound.
  void Retire(AgentSession& session);
  // What an agent says of the seats of others is ignored.
  bool Owns(const Agent& agent, std::string_view seat_id) const;
  bool TakesAsk(AgentSession& link, const Agent& agent, std::string_view seat_id) const;
  void UpdateSeat(Agent& agent, const v1::SeatState& state);
  void WantList(Agent& agent, const std::string& seat_id);
  void OnCatalogue(Agent& agent, v1::Catalogue& catalogue);
  void OnCatalogueChunk(Agent& agent, v1::Chunk& chunk);
  // The list of that digest could not be had so: asks for the whole of it, once a link.
  void WantSnapshot(Agent& agent, const std::string& seat_id, const std::string& digest,
                    const absl::Status& why);
  // The whole list has come, or all that is new in it.
  void TakeBody(Agent& agent, const std::string& seat_id, CatalogueBody body);
  void TakeList(const std::string& agent_id, const std::string& seat_id, std::string digest,
                std::string body);
  void LogPresence(const SeatRecord& seat, bool was_up, bool restarted) const;
  void RemoveSeat(const std::string& seat_id, const std::string& why);

  Plane& plane_;
  SeatKeeper& seats_;
  AgentCalls& calls_;
  SeatObserver& observer_;
  std::map<uint64_t, std::unique_ptr<AgentSession>> sessions_;
  std::vector<std::unique_ptr<AgentSession>> retired_;
  std::map<std::string, Agent, std::less<>> agents_;
  uint64_t next_session_ = 1;
  size_t linked_ = 0;
  uint64_t ignored_before_ = 0;  // by sessions that are gone
  uint64_t links_first_ = 0;
  uint64_t links_again_ = 0;
  uint64_t links_resumed_ = 0;
  uint64_t links_re_registered_ = 0;
  std::array<uint64_t, v1::Refused::Code_ARRAYSIZE> links_refused_ = {};
  std::array<uint64_t, kLinkDrops> link_drops_ = {};
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
