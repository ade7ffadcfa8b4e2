// Implementation of SeatFeed.
#include "backend_agent/seat_feed.h"

#include <algorithm>
#include <utility>

#include "core/mcp/log_levels.h"
#include "core/mcp/look_again.h"

namespace callboard::agent {
namespace {

constexpr size_t kChunkBytes = 64 * 1024;
constexpr size_t kPieceMin = 4 * 1024;
// A list shorter than this is sent whole.
constexpr size_t kDeltaMin = 8 * 1024;

}  // namespace

void SeatFeed::Add(std::unique_ptr<Seat> seat) {
  const std::string seat_id = seat->seat_id();
  seats_[seat_id].seat = std::move(seat);
  for (Port* port : ports_) port->gone_.erase(seat_id);
  OnSeatChanged(seat_id);
}

void SeatFeed::Remove(const std::string& seat_id, const std::string& reason) {
  if (seats_.erase(seat_id) == 0) return;
  asks_.EndAllOf(seat_id);
  for (Port* port : ports_) {
    port->changed_.erase(seat_id);
    port->told_.erase(seat_id);
    port->notices_.RemoveSeat(seat_id);
    if (!port->linked_) continue;
    port->gone_[seat_id] = reason;
    port->Wake();
  }
}

Seat* SeatFeed::Find(const std::string& seat_id) {
  auto it = seats_.find(seat_id);
  return it == seats_.end() ? nullptr : it->second.seat.get();
}

std::vector<v1::SeatState> SeatFeed::States() const {
  std::vector<v1::SeatState> states;
  states.reserve(seats_.size());
  for (const auto& [seat_id, entry] : seats_) states.push_back(entry.seat->State());
  return states;
}

v1::SeatState SeatFeed::StateOf(const std::string& seat_id, Entry& entry) {
  v1::SeatState state = entry.seat->State();
  entry.incarnation = state.incarnation();
  journal_.RaiseIncarnation(seat_id, state.incarnation());
  return state;
}

void SeatFeed::RemovePort(Port& port) {
  std::erase(ports_, &port);
  asks_.OnUnlinked(port.asks_);
  for (const auto& [seat_id, told] : port.told_) {
    if (told.interest.version() != 0) ApplyInterests(seat_id);
  }
}

void SeatFeed::AppendInventory(Port& port, std::deque<v1::AgentItem>& items) {
  port.changed_.clear();
  port.gone_.clear();
  for (auto& [seat_id, entry] : seats_) {
    *items.emplace_back().mutable_seat_state() = StateOf(seat_id, entry);
  }
}

void SeatFeed::OnLinked(Port& port, const v1::Welcome& welcome) {
  port.linked_ = true;
  SessionAsks::OnLinked(port.asks_, welcome);
  const auto& features = welcome.features();
  port.notices_.OnLinked(std::find(features.begin(), features.end(), kNoticeAcksFeature) !=
                         features.end());
  for (const auto& [seat_id, incarnation] : welcome.last_incarnation()) {
    journal_.RaiseIncarnation(seat_id, incarnation);
  }
  if (std::exchange(port.term_, welcome.term()) == welcome.term()) return;
  // A control plane that has just begun knows no session and says what it wants anew.
  for (auto& [seat_id, told] : port.told_) {
    if (told.interest.version() == 0) continue;
    told.interest.Clear();
    ApplyInterests(seat_id);
  }
}

void SeatFeed::OnUnlinked(Port& port) {
  port.linked_ = false;
  port.transfers_.clear();
  for (auto& [seat_id, told] : port.told_) told.digest.clear();
  port.notices_.OnUnlinked();
  asks_.OnUnlinked(port.asks_);
}

void SeatFeed::OnInterest(Port& port, v1::Interest interest) {
  const std::string seat_id = interest.seat_id();
  if (!seats_.contains(seat_id)) return;
  v1::Interest& former = port.told_[seat_id].interest;
  if (interest.version() < former.version()) return;
  former = std::move(interest);
  ApplyInterests(seat_id);
}

void SeatFeed::ApplyInterests(const std::string& seat_id) {
  Seat* seat = Find(seat_id);
  if (seat == nullptr) return;
  v1::Interest all;
  size_t level = core::kMcpLogLevels.size();
  std::set<std::string> resources;
  std::set<std::string> feeds;
  std::set<std::string> tasks;
  for (const Port* port : ports_) {
    auto told = port->told_.find(seat_id);
    if (told == port->told_.end() || told->second.interest.version() == 0) continue;
    const v1::Interest& one = told->second.interest;
    all.set_seat_id(seat_id);
    all.set_version(std::max(all.version(), one.version()));
    level = std::min(level, core::McpSeverity(one.log_level()));
    resources.insert(one.resource_uris().begin(), one.resource_uris().end());
    feeds.insert(one.feeds().begin(), one.feeds().end());
    tasks.insert(one.task_ids().begin(), one.task_ids().end());
  }
  if (level < core::kMcpLogLevels.size()) {
    all.set_log_level(std::string(core::kMcpLogLevels[level]));
  }
  for (const std::string& uri : resources) all.add_resource_uris(uri);
  for (const std::string& feed : feeds) all.add_feeds(feed);
  for (const std::string& task : tasks) all.add_task_ids(task);
  seat->SetInterest(all);
}

void SeatFeed::OnCatalogueWant(Port& port, const v1::CatalogueWant& want) {
  for (const Transfer& transfer : port.transfers_) {
    if (transfer.digest == want.digest()) return;
  }
  for (auto& [seat_id, entry] : seats_) {
    if (want.digest().empty() || entry.seat->State().catalogue_digest() != want.digest()) continue;
    port.transfers_.push_back(MakeTransfer(port, seat_id, *entry.seat, want.digest()));
    return port.Wake();
  }
  // No seat has it any more: a newer state is on its way and will be asked for.
}

SeatFeed::Transfer SeatFeed::MakeTransfer(Port& port, const std::string& seat_id, const Seat& seat,
                                          const std::string& digest) {
  Transfer transfer{.seat_id = seat_id, .digest = digest, .body = seat.Catalogue()};
  Port::Told& told = port.told_[seat_id];
  const std::string base = std::exchange(told.digest, digest);
  const Payload base_list = std::exchange(told.list, transfer.body);
  if (base.empty() || base == digest || transfer.body.size() < kDeltaMin) return transfer;
  auto delta = core::MakeToolListDelta(base_list.view(), transfer.body.view());
  if (!delta) return transfer;
  transfer.base_digest = base;
  transfer.changes = std::move(delta->changes);
  transfer.body = Payload(std::move(delta->body));
  return transfer;
}

void SeatFeed::OnSeatControl(const v1::SeatControl& control) {
  if (Seat* seat = Find(control.seat_id())) seat->SetCordon(control.cordon());
}

void SeatFeed::OnSeatChanged(const std::string& seat_id) {
  if (!seats_.contains(seat_id)) return;
  for (Port* port : ports_) {
    port->changed_.insert(seat_id);
    port->Wake();
  }
}

void SeatFeed::OnNotice(const std::string& seat_id, std::string method, std::string raw_params) {
  if (!seats_.contains(seat_id)) return;
  const uint64_t n = core::SaysLookAgain(method) ? 0 : ++last_notice_n_[seat_id];
  for (Port* port : ports_) {
    port->notices_.Add(seat_id, n, method, raw_params);
    port->Wake();
  }
}

void SeatFeed::OnSessionAsk(const std::string& seat_id, SeatAsk ask) {
  const auto seat = seats_.find(seat_id);
  if (seat == seats_.end()) return;
  const auto at = std::find_if(ports_.begin(), ports_.end(), [&](const Port* port) {
    return SessionAsks::IsAt(port->asks_, ask.control_plane);
  });
  Port* const port = at == ports_.end() ? nullptr : *at;
  asks_.Ask(port == nullptr ? nullptr : &port->asks_, seat_id, seat->second.incarnation,
            std::move(ask));
  if (port != nullptr) port->Wake();
}

void SeatFeed::OnSessionAskOver(const std::string& seat_id, uint64_t ask, std::string raw_params) {
  if (!asks_.EndOne(seat_id, ask, std::move(raw_params))) return;
  for (Port* port : ports_) {
    if (SessionAsks::HasData(port->asks_)) port->Wake();
  }
}

bool SeatFeed::FillStates(Port& port, FrameBuilder& frame) {
  for (const auto& [seat_id, reason] : port.gone_) {
    v1::SeatGone* gone = frame.Add()->mutable_seat_gone();
    gone->set_seat_id(seat_id);
    gone->set_reason(reason);
  }
  port.gone_.clear();
  while (!port.changed_.empty()) {
    auto it = seats_.find(*port.changed_.begin());
    v1::SeatState state = StateOf(it->first, it->second);
    if (!frame.empty() && frame.room() < state.ByteSizeLong() + kItemOverhead) return false;
    frame.Add()->mutable_seat_state()->Swap(&state);
    port.changed_.erase(port.changed_.begin());
  }
  return true;
}

void SeatFeed::FillData(Port& port, FrameBuilder& frame) {
  port.notices_.Fill(frame, [this](const std::string& seat_id) {
    auto seat = seats_.find(seat_id);
    return seat == seats_.end() ? uint64_t{0} : seat->second.incarnation;
  });
  SessionAsks::Fill(port.asks_, frame);
  FillCatalogue(port, frame);
}

void SeatFeed::FillCatalogue(Port& port, FrameBuilder& frame) {
  if (port.transfers_.empty()) return;
  Transfer& transfer = port.transfers_.front();
  const std::string_view text = transfer.body.view();
  const bool whole = text.size() <= kInlineBodyMax;
  if (!transfer.announced) {
    v1::Catalogue head;
    head.set_seat_id(transfer.seat_id);
    head.set_digest(transfer.digest);
    head.set_base_digest(transfer.base_digest);
    for (const core::ToolListChange& change : transfer.changes) {
      v1::CatalogueChange* told = head.add_changes();
      told->set_kind("tool");
      told->set_name(change.name);
      told->set_removed(change.removed);
      told->set_after(change.after);
    }
    const size_t need = 2 * kItemOverhead + head.ByteSizeLong() + (whole ? text.size() : 0);
    if (frame.room() < need) return;
    v1::Catalogue* catalogue = frame.Add()->mutable_catalogue();
    catalogue->Swap(&head);
    if (whole) {
      catalogue->mutable_body()->set_inline_(text.data(), text.size());
      port.transfers_.pop_front();
      return;
    }
    catalogue->mutable_body()->set_size(text.size());
    transfer.announced = true;
  }
  const size_t left = text.size() - static_cast<size_t>(transfer.offset);
  const size_t room = frame.room();
  const size_t piece =
      std::min({left, kChunkBytes, room > kItemOverhead ? room - kItemOverhead : 0});
  if (piece < std::min(left, kPieceMin)) return;
  v1::Chunk* chunk = frame.Add()->mutable_chunk();
  chunk->set_call_id(transfer.seat_id);
  chunk->set_offset(transfer.offset);
  chunk->set_bytes(text.data() + transfer.offset, piece);
  transfer.offset += piece;
  if (piece == left) port.transfers_.pop_front();
}

void SeatFeed::AddTo(AgentGauges& gauges) const {
  for (const Port* port : ports_) {
    gauges.notices += port->notices_.waiting();
    gauges.notices_lost += port->notices_.lost();
  }
}

void SeatFeed::Beat(v1::Heartbeat& heartbeat) const {
  size_t busy = 0;
  for (const auto& [seat_id, entry] : seats_) {
    const v1::SeatState state = entry.seat->State();
    (*heartbeat.mutable_queue_depth())[seat_id] = state.queue_depth();
    if (state.running_size() > 0) ++busy;
  }
  heartbeat.set_load(
      seats_.empty() ? 0.0 : static_cast<double>(busy) / static_cast<double>(seats_.size()));
}

}  // namespace callboard::agent
