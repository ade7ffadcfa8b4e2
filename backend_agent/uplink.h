// The agent's link to one control plane: dialling, opening, pacing, liveness.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "backend_agent/agent.h"
#include "backend_agent/frame_builder.h"
#include "core/runtime/backoff.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/link_window.h"

namespace callboard::agent {

// Keeps one Attach open for as long as it lives: dials its addresses in turn without end (full
// jitter; the backoff is reset by Welcome, not by the connect; a permanent refusal waits
// permanent_refusal_wait), says Hello, writes what its owner has in frames, one write at a time,
// and closes a link that is silent. Several addresses are several ways to one control plane.
//
// All that is produced in one turn of the loop goes into one frame. Items without credit go first;
// data stops at link_unreceived_max bytes the peer has not confirmed (more on long fat paths: see
// core::LinkWindow). Loop thread only; owned by a PlaneLink. Bound: kControlItemsMax items wait
// without credit, beyond that the link is given up.
class Uplink final : public ControlPlaneLink::Handler {
 public:
  // Who has something to say and is told what comes.
  class Owner {
   public:
    virtual ~Owner() = default;
    // What this process says of itself: boot, epoch, journal, its other links.
    virtual void FillHello(v1::Hello& hello) = 0;
    // SeatState of every seat, then CallState of every unsettled call.
    virtual void AppendInventory(std::deque<v1::AgentItem>& items) = 0;
    virtual void OnLinked(const v1::Welcome& welcome) = 0;
    virtual void OnUnlinked() = 0;
    // An opening has failed: it was refused, or nobody answered (CODE_UNSPECIFIED).
    virtual void OnNotLinked(v1::Refused::Code code) = 0;
    // The peer has all that was written so far.
    virtual void OnAllReceived() = 0;
    // Refused: another address has led this process to the same control plane.
    virtual void OnAlias(const std::string& address, const std::string& control_plane_id) = 0;
    // The control plane will end the link; these are others.
    virtual void OnGoAway(const v1::GoAway& away) = 0;
    // Anything but what concerns the link itself. Only while linked.
    virtual void OnItem(v1::ServerItem item) = 0;
    virtual void MakeHeartbeat(v1::Heartbeat& heartbeat) = 0;
    // False: there is more than the frame can take.
    virtual bool FillControl(FrameBuilder& frame) = 0;
    virtual void FillData(FrameBuilder& frame) = 0;
    // Something waits that FillData would write, had the frame room for it.
    virtual bool HasData() = 0;
    // The control plane has calls here that it has not settled.
    virtual bool HasCalls() = 0;
  };

  Uplink(core::EventLoop& loop, core::Random& random, LinkDialer& dialer, const AgentConfig& config,
         Owner& owner, std::string address);
  ~Uplink() override;

  // Dials for the first time, after `wait`.
  void Start(absl::Duration wait = absl::ZeroDuration());
  // Begins the opening anew. Does nothing while linked.
  void DialNow();
  // Closes once nothing waits to be written, or after `grace`; `done` comes later, never inline.
  void Stop(absl::Duration grace, absl::AnyInvocable<void()> done);
  void SendControl(v1::AgentItem item);
  // A frame will be written at the end of this turn of the loop, or after the write under way.
  void Wake();
  // The same within kSoon, unless a frame is written before.
  void WakeSoon();

  const std::vector<std::string>& addresses() const { return addresses_; }
  // The one dialled last.
  const std::string& address() const { return addresses_[address_]; }
  void AddAddress(std::string address) { addresses_.push_back(std::move(address)); }
  // Not the last one left, and not the one that is linked.
  void RemoveAddress(const std::string& address);
  // By its last Welcome; empty before the first.
  const std::string& control_plane_id() const { return control_plane_id_; }

  bool linked() const { return state_ == State::kLinked; }
  bool opening() const { return state_ == State::kOpening; }

 private:
  enum class State { kIdle, kWaiting, kOpening, kLinked };

  void OnMessage(v1::ServerFrame frame) override;
  void OnWritten() override;
  void OnClosed(absl::Status status) override;

  void Dial();
  void QueueOpening();
  // Ends the present link; the next is dialled after `wait`.
  void Redial(absl::Status why, absl::Duration wait);
  // Likewise, and the next is to the next address.
  void OnDialFailed(absl::Status why, absl::Duration wait,
                    v1::Refused::Code code = v1::Refused::CODE_UNSPECIFIED);
  void CloseLink(const absl::Status& status);
  void LogLoss(const absl::Status& why, bool was_linked);
  void OnOpeningItem(const v1::ServerItem& item);
  void OnWelcome(const v1::Welcome& welcome);
  void OnRefused(const v1::Refused& refused);
  void OnLinkedItem(v1::ServerItem item);
  void ApplyBudgets(const v1::Budgets& budgets);
  // `then` runs once nothing is left to do on the link: to be written, or, unless stopping, calls
  // of the control plane, for which only this link is of use.
  void BeginDrain(absl::Duration grace, absl::AnyInvocable<void()> then);
  void FinishDrain();
  void Beat();
  void WatchSilence();
  bool CanWrite();
  void Flush();
  // False: more waits than the frame could take.
  bool Fill(FrameBuilder& frame);

  core::EventLoop& loop_;
  LinkDialer& dialer_;
  const AgentConfig& config_;
  Owner& owner_;
  core::Backoff backoff_;

  State state_ = State::kIdle;
  absl::Time state_since_;  // of being linked, or not linked
  int failed_dials_ = 0;    // since the last Welcome
  bool stopped_ = false;
  std::vector<std::string> addresses_;
  size_t address_ = 0;
  std::string control_plane_id_;
  std::string last_cluster_id_;
  std::unique_ptr<ControlPlaneLink> link_;
  std::vector<std::unique_ptr<ControlPlaneLink>> retired_;  // closed, may be in a callback

  std::deque<v1::AgentItem> opening_;
  std::deque<v1::AgentItem> control_;
  bool writing_ = false;
  bool flush_posted_ = false;
  uint64_t sent_ = 0;
  uint64_t confirmed_ = 0;  // of sent_, by the peer's `received`
  core::LinkWindow unreceived_limit_;
  uint64_t received_ = 0;
  uint64_t received_reported_ = 0;
  absl::Time last_heard_;
  absl::Duration read_idle_;
  absl::Duration heartbeat_;
  uint64_t ping_token_ = 0;
  absl::AnyInvocable<void()> drained_;  // set while draining

  core::Timer dial_timer_;  // the next dial, or the wait for Welcome
  core::Timer beat_timer_;
  core::Timer silence_timer_;
  core::Timer drain_timer_;
  core::Timer soon_timer_;
  core::Lifetime link_lifetime_;  // of the present link
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
