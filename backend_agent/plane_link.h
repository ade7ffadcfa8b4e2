// One control plane: its uplink, what calls and seats have to tell it, and what it says.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend_agent/plane_links.h"
#include "backend_agent/uplink.h"

namespace callboard::agent {

// Carries items between one Uplink and the tables. Loop thread only; owned by PlaneLinks.
class PlaneLink final : public Uplink::Owner, public CallDesk::Port, public SeatFeed::Port {
 public:
  PlaneLink(PlaneLinks& links, std::string address);

  Uplink& uplink() { return uplink_; }
  const Uplink& uplink() const { return uplink_; }
  // Addresses of others, by the last Welcome and a GoAway since.
  const std::vector<std::string>& named() const { return named_; }

  // Set when the address was refused, because it leads to a control plane that is linked already.
  struct Alias {
    std::string address;
    std::string control_plane_id;
  };
  std::optional<Alias> TakeAlias() { return std::exchange(alias_, std::nullopt); }
  // The control plane is another one than at the last Welcome: true once.
  bool TakeChanged() { return std::exchange(changed_, false); }

  // ---- CallDesk::Port, SeatFeed::Port ----
  void SendControl(v1::AgentItem item) override { uplink_.SendControl(std::move(item)); }
  void Wake() override { uplink_.Wake(); }
  void WakeSoon() override { uplink_.WakeSoon(); }

  // ---- Uplink::Owner ----
  void FillHello(v1::Hello& hello) override;
  void AppendInventory(std::deque<v1::AgentItem>& items) override;
  void OnLinked(const v1::Welcome& welcome) override;
  void OnUnlinked() override;
  void OnNotLinked(v1::Refused::Code code) override;
  void OnAllReceived() override { SeatFeed::OnAllReceived(*this); }
  void OnAlias(const std::string& address, const std::string& control_plane_id) override;
  void OnGoAway(const v1::GoAway& away) override;
  void OnItem(v1::ServerItem item) override;
  void MakeHeartbeat(v1::Heartbeat& heartbeat) override;
  bool FillControl(FrameBuilder& frame) override;
  void FillData(FrameBuilder& frame) override;
  bool HasData() override;
  bool HasCalls() override;

 private:
  void Name(const std::string& address);

  PlaneLinks& links_;
  std::vector<std::string> named_;
  std::optional<Alias> alias_;
  std::string linked_to_;  // control plane of the last Welcome
  uint64_t term_ = 0;      // and its term
  bool changed_ = false;
  Uplink uplink_;
};

}  // namespace callboard::agent
