// Implementation of PlaneLink.
#include "backend_agent/plane_link.h"

#include <algorithm>
#include <utility>

namespace callboard::agent {
namespace {

constexpr size_t kAddressBytesMax = 256;

}  // namespace

PlaneLink::PlaneLink(PlaneLinks& links, std::string address)
    : SeatFeed::Port(links.config_.limits),
      links_(links),
      uplink_(links.loop_, links.random_, links.dialer_, links.config_, *this, std::move(address)) {
  links_.seats_.AddPort(*this);
}

void PlaneLink::FillHello(v1::Hello& hello) { links_.FillHello(*this, hello); }

void PlaneLink::AppendInventory(std::deque<v1::AgentItem>& items) {
  links_.seats_.AppendInventory(*this, items);
  links_.desk_.AppendInventory(items);
}

void PlaneLink::OnLinked(const v1::Welcome& welcome) {
  const bool again = !linked_to_.empty();
  changed_ = again && linked_to_ != welcome.control_plane_id();
  const bool same = !changed_ && term_ == welcome.term();
  if (again) ++(same ? links_.resumed_ : links_.re_registered_);
  term_ = welcome.term();
  linked_to_ = welcome.control_plane_id();
  named_.clear();
  for (const std::string& address : welcome.alternates()) Name(address);
  links_.seats_.OnLinked(*this, welcome);
  links_.desk_.OnLinked(*this, welcome);
  links_.OnWelcome(*this);
}

void PlaneLink::OnUnlinked() {
  ++links_.drops_;
  links_.seats_.OnUnlinked(*this);
  links_.desk_.OnUnlinked(*this);
  links_.ReviewSoon();
}

void PlaneLink::OnNotLinked(v1::Refused::Code code) {
  // A newer control plane may have reasons of its own.
  const auto known = v1::Refused::Code_IsValid(code) ? code : v1::Refused::CODE_UNSPECIFIED;
  ++links_.failures_[static_cast<size_t>(known)];
}

void PlaneLink::OnAlias(const std::string& address, const std::string& control_plane_id) {
  alias_ = Alias{address, control_plane_id};
  links_.ReviewSoon();
}

void PlaneLink::OnGoAway(const v1::GoAway& away) {
  for (const std::string& address : away.alternates()) Name(address);
  links_.ReviewSoon();
}

void PlaneLink::Name(const std::string& address) {
  const bool usable = !address.empty() && address.size() <= kAddressBytesMax &&
                      named_.size() < links_.config_.limits.addresses_max;
  if (usable && std::find(named_.begin(), named_.end(), address) == named_.end()) {
    named_.push_back(address);
  }
}

void PlaneLink::OnItem(v1::ServerItem item) {
  CallDesk& desk = links_.desk_;
  SeatFeed& seats = links_.seats_;
  switch (item.item_case()) {
    case v1::ServerItem::kDispatch:
      return desk.OnDispatch(*this, std::move(*item.mutable_dispatch()));
    case v1::ServerItem::kChunk:
      return desk.OnChunk(*this, item.chunk());
    case v1::ServerItem::kCancel:
      return desk.OnCancel(*this, item.cancel());
    case v1::ServerItem::kAnswer:
      return desk.OnAnswer(*this, std::move(*item.mutable_answer()));
    case v1::ServerItem::kAck:
      return desk.OnAck(*this, item.ack());
    case v1::ServerItem::kSettle:
      return desk.OnSettle(*this, item.settle());
    case v1::ServerItem::kVerdict:
      return desk.OnVerdict(*this, item.verdict());
    case v1::ServerItem::kInterest:
      return seats.OnInterest(*this, std::move(*item.mutable_interest()));
    case v1::ServerItem::kCatalogueWant:
      return seats.OnCatalogueWant(*this, item.catalogue_want());
    case v1::ServerItem::kNoticeAck:
      return SeatFeed::OnNoticeAck(*this, item.notice_ack());
    case v1::ServerItem::kSessionAnswer:
      return seats.OnSessionAnswer(*this, std::move(*item.mutable_session_answer()));
    case v1::ServerItem::kSeatControl:
      return seats.OnSeatControl(item.seat_control());
    case v1::ServerItem::kSettings:
      return desk.OnSettings(*this, item.settings().limits());
    default:
      ++links_.ignored_items_;
  }
}

void PlaneLink::MakeHeartbeat(v1::Heartbeat& heartbeat) {
  links_.seats_.Beat(heartbeat);
  links_.desk_.Beat(*this, heartbeat);
}

bool PlaneLink::FillControl(FrameBuilder& frame) {
  links_.desk_.FillAcks(*this, frame);
  return links_.seats_.FillStates(*this, frame);
}

void PlaneLink::FillData(FrameBuilder& frame) {
  links_.seats_.FillData(*this, frame);
  links_.desk_.FillEvents(*this, frame);
}

bool PlaneLink::HasCalls() { return links_.desk_.HasCalls(*this); }

bool PlaneLink::HasData() { return SeatFeed::HasData(*this) || CallDesk::HasEvents(*this); }

}  // namespace callboard::agent
