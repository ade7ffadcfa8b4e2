// The agent's links: one to each control plane, at configured addresses and at those planes name.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "backend_agent/agent.h"
#include "backend_agent/call_desk.h"
#include "backend_agent/call_journal.h"
#include "backend_agent/seat_feed.h"
#include "core/runtime/lifetime.h"

namespace callboard::agent {

class PlaneLink;

// Keeps a link to every control plane it knows an address of: those configured, and those that a
// Welcome or GoAway names. Loop thread only; owned by the agent; all passed in outlives it.
//
// Two addresses of one control plane are two ways to one link: the second dial is refused
// (ALREADY_LINKED) and its address joins the link there is. When that control plane is no longer
// the same, its addresses go ways of their own again. A learned address is forgotten once no
// control plane that is configured or linked names it. Bound: addresses_max addresses; further ones
// are not dialled, which is logged once.
class PlaneLinks final {
 public:
  PlaneLinks(core::EventLoop& loop, core::Random& random, LinkDialer& dialer,
             const AgentConfig& config, CallJournal& journal, CallDesk& desk, SeatFeed& seats);
  ~PlaneLinks();

  // Begins to dial.
  void Start();
  // Closes each link once nothing waits to be written to it, or after `grace`; `done` comes later.
  void Stop(absl::Duration grace, absl::AnyInvocable<void()> done);

  void AddTo(AgentGauges& gauges) const;

 private:
  friend class PlaneLink;

  // ---- told by links ----
  void FillHello(const PlaneLink& link, v1::Hello& hello);
  void OnWelcome(PlaneLink& link);
  // Something has changed that Review() looks at, later in this turn.
  void ReviewSoon();

  void Review();
  void JoinAliases();
  // The address is another way to that link.
  static void Join(PlaneLink& link, const std::string& address);
  void PartAddresses();
  void FollowNames();
  void Add(const std::string& address, absl::Duration wait = absl::ZeroDuration());
  bool IsConfigured(const std::string& address) const;
  bool IsKnown(const std::string& address) const;
  PlaneLink* FindLinked(const std::string& control_plane_id, const PlaneLink* but) const;
  // Its calls run on without a link.
  void Drop(PlaneLink& link);

  core::EventLoop& loop_;
  core::Random& random_;
  LinkDialer& dialer_;
  const AgentConfig& config_;
  CallJournal& journal_;
  CallDesk& desk_;
  SeatFeed& seats_;

  const std::string boot_id_;
  uint64_t link_epoch_ = 0;  // of all links together, so it grows for each control plane
  uint64_t ignored_items_ = 0;
  uint64_t welcomes_ = 0;
  uint64_t resumed_ = 0;
  uint64_t re_registered_ = 0;
  uint64_t drops_ = 0;
  std::array<uint64_t, v1::Refused::Code_ARRAYSIZE> failures_ = {};
  std::vector<std::unique_ptr<PlaneLink>> links_;
  bool stopping_ = false;
  bool review_posted_ = false;
  bool told_full_ = false;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
