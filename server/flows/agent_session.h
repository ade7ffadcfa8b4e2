// One Attach: its opening, its liveness, its frames; what the items mean is its host's business.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "callboard/v1/agent.pb.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/link_window.h"
#include "server/flows/agent_outbox.h"
#include "server/flows/control_plane.h"

namespace callboard::server {

inline constexpr uint32_t kProtocolMin = 1;
inline constexpr uint32_t kProtocolMax = 1;

// Loop thread, owned by the AgentDirectory. Bounds: the inventory (kInventoryMax), the outbox, one
// write in flight, link_unreceived_max bytes of data not yet taken by the peer (more on long fat
// paths: see core::LinkWindow). A link on which nothing comes for link_read_idle is given up.
class AgentSession final : public AgentLink::Handler {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // The opening is complete: Accept() or Refuse(), now or later.
    virtual void OnInventory(AgentSession& session) = 0;
    // The opening is refused, by whomever.
    virtual void OnRefused(v1::Refused::Code code) = 0;
    virtual void OnItem(AgentSession& session, v1::AgentItem& item) = 0;
    // Around the items of one frame. The session may be gone after OnFrameEnd.
    virtual void OnFrameBegin() = 0;
    virtual void OnFrameEnd() = 0;
    // The link has ended or was given up; the host lets the session go.
    virtual void OnGone(AgentSession& session, const absl::Status& status) = 0;
  };

  AgentSession(uint64_t id, core::EventLoop& loop, const ControlPlaneConfig& config, uint64_t term,
               std::unique_ptr<AgentLink> link, PeerIdentity peer, Host& host,
               AgentOutbox::Source& source);
  ~AgentSession() override;

  void Start();
  void Accept(v1::Welcome welcome);
  // Says why and ends; OnGone follows.
  void Refuse(v1::Refused::Code code, std::string message, bool permanent,
              absl::Duration retry_after = absl::ZeroDuration());
  // Ends at once, without OnGone.
  void Shut(absl::Status status);

  // Whether the peer answers a ping within `limit`; `answer` runs once.
  void Probe(absl::Duration limit, absl::AnyInvocable<void(bool alive)> answer);

  // Writes what is in the outbox at the end of this turn.
  void ScheduleFlush();
  AgentOutbox& outbox() { return outbox_; }
  // Settles leave by themselves after settle_delay.
  void Settle(const CallId& call);

  uint64_t id() const { return id_; }
  bool open() const { return state_ == State::kOpen; }
  bool ended() const { return state_ == State::kEnded; }
  const v1::Hello& hello() const { return hello_; }
  const PeerIdentity& peer() const { return peer_; }
  const std::string& agent_id() const;
  std::vector<v1::SeatState>& seats() { return seats_; }
  std::vector<v1::CallState>& calls() { return calls_; }
  absl::Time last_heard() const { return last_heard_; }
  // Counts an item that means nothing here; the first of a link is logged.
  void Ignore(std::string_view why);
  uint64_t ignored_items() const { return ignored_; }
  // Given up because nothing came.
  bool silent() const { return silent_; }

  void OnMessage(v1::AgentFrame frame) override;
  void OnWritten() override;
  void OnClosed(absl::Status status) override;

 private:
  enum class State { kAwaitHello, kInventory, kDeciding, kOpen, kRefused, kEnded };

  void OnOpeningItem(v1::AgentItem& item);
  void OnHello(v1::Hello hello);
  void BadOpening(std::string message);
  void OnLinkItem(v1::AgentItem& item);
  void End(const absl::Status& status);
  bool CanWrite();
  void Flush();
  void Beat();
  size_t Credit() const;

  const uint64_t id_;
  core::EventLoop& loop_;
  const ControlPlaneConfig& config_;
  std::unique_ptr<AgentLink> link_;
  const PeerIdentity peer_;
  Host& host_;
  AgentOutbox outbox_;

  State state_ = State::kAwaitHello;
  v1::Hello hello_;
  std::vector<v1::SeatState> seats_;
  std::vector<v1::CallState> calls_;

  bool writing_ = false;
  bool flush_posted_ = false;
  uint64_t taken_ = 0;       // bytes of the peer's frames
  uint64_t taken_told_ = 0;  // the last `received` we sent
  uint64_t written_ = 0;     // bytes of our frames
  uint64_t peer_taken_ = 0;  // the last `received` we got
  core::LinkWindow unreceived_limit_;
  uint64_t ignored_ = 0;
  bool silent_ = false;
  absl::Time last_heard_;
  absl::Time next_ping_;
  uint64_t ping_token_ = 0;
  uint64_t probe_token_ = 0;
  absl::AnyInvocable<void(bool)> probe_answer_;
  core::Timer opening_timer_;
  core::Timer beat_timer_;
  core::Timer settle_timer_;
  core::Timer probe_timer_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
