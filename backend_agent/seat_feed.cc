// Implementation of SeatFeed.
#include "backend_agent/seat_feed.h"

#include <algorithm>
#include <utility>

namespace callboard::agent {
namespace {

constexpr size_t kChunkBytes = 64 * 1024;
constexpr size_t kPieceMin = 4 * 1024;
// A list shorter than this is sent whole.
constexpr size_t kDeltaMin = 8 * 1024;

bool IsLevelTriggered(std::string_view method) {
  return method.ends_with("/list_changed") || method == "notifications/resources/updated";
}

}  // namespace

SeatFeed::SeatFeed(CallJournal& journal, const AgentLimits& limits, absl::AnyInvocable<void()> wake)
    : journal_(journal), limits_(limits), wake_(std::move(wake)) {}

void SeatFeed::Add(std::unique_ptr<Seat> seat) {
  const std::string seat_id = seat->seat_id();
  seats_[seat_id].seat = std::move(seat);
  gone_.erase(seat_id);
  OnSeatChanged(seat_id);
}

void SeatFeed::Remove(const std::string& seat_id, const std::string& reason, bool tell) {
  if (seats_.erase(seat_id) == 0) return;
  changed_.erase(seat_id);
  auto of_seat = [&](const WaitingNotice& notice) { return notice.seat_id == seat_id; };
  std::erase_if(notices_, of_seat);
  std::erase_if(unconfirmed_, of_seat);
  if (!tell) return;
  gone_[seat_id] = reason;
  wake_();
}

Seat* SeatFeed::Find(const std::string& seat_id) {
  auto it = seats_.find(seat_id);
  return it == seats_.end() ? nullptr : it->second.seat.get();
}

v1::SeatState SeatFeed::StateOf(const std::string& seat_id, Entry& entry) {
  v1::SeatState state = entry.seat->State();
  entry.incarnation = state.incarnation();
  journal_.RaiseIncarnation(seat_id, state.incarnation());
  return state;
}

void SeatFeed::AppendInventory(std::deque<v1::AgentItem>& items) {
  changed_.clear();
  gone_.clear();
  for (auto& [seat_id, entry] : seats_) {
    *items.emplace_back().mutable_seat_state() = StateOf(seat_id, entry);
  }
}

void SeatFeed::OnLinked(const v1::Welcome& welcome) {
  for (const auto& [seat_id, incarnation] : welcome.last_incarnation()) {
    journal_.RaiseIncarnation(seat_id, incarnation);
  }
  if (std::exchange(term_, welcome.term()) == welcome.term()) return;
  // A control plane that has just begun knows no session and says what it wants anew.
  for (auto& [seat_id, entry] : seats_) {
    if (entry.interest.version() == 0) continue;
    entry.interest.Clear();
    entry.seat->SetInterest(entry.interest);
  }
}

void SeatFeed::OnUnlinked() {
  transfers_.clear();
  for (auto& [seat_id, entry] : seats_) entry.told_digest.clear();
  for (WaitingNotice& notice : std::exchange(unconfirmed_, {})) {
    OnNotice(notice.seat_id, std::move(notice.method), std::move(notice.params));
  }
}

void SeatFeed::OnInterest(v1::Interest interest) {
  auto it = seats_.find(interest.seat_id());
  if (it == seats_.end() || interest.version() < it->second.interest.version()) return;
  it->second.interest = std::move(interest);
  it->second.seat->SetInterest(it->second.interest);
}

void SeatFeed::OnCatalogueWant(const v1::CatalogueWant& want) {
  for (const Transfer& transfer : transfers_) {
    if (transfer.digest == want.digest()) return;
  }
  for (auto& [seat_id, entry] : seats_) {
    if (want.digest().empty() || entry.seat->State().catalogue_digest() != want.digest()) continue;
    transfers_.push_back(MakeTransfer(seat_id, entry, want.digest()));
    return wake_();
  }
  // No seat has it any more: a newer state is on its way and will be asked for.
}

SeatFeed::Transfer SeatFeed::MakeTransfer(const std::string& seat_id, Entry& entry,
                                          const std::string& digest) {
  Transfer transfer{.seat_id = seat_id, .digest = digest, .body = entry.seat->Catalogue()};
  const std::string base = std::exchange(entry.told_digest, digest);
  const Payload base_list = std::exchange(entry.told_list, transfer.body);
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
  changed_.insert(seat_id);
  wake_();
}

void SeatFeed::OnNotice(const std::string& seat_id, std::string method, std::string raw_params) {
  auto seat = seats_.find(seat_id);
  if (seat == seats_.end()) return;
  if (raw_params.size() > kInlineBodyMax) {
    ++seat->second.notices_lost;
    return;
  }
  const bool level_triggered = IsLevelTriggered(method);
  size_t others = 0;
  for (const WaitingNotice& waiting : notices_) {
    if (level_triggered && waiting.seat_id == seat_id && waiting.method == method &&
        waiting.params == raw_params) {
      return;
    }
    if (waiting.level_triggered == level_triggered) ++others;
  }
  if (others >= limits_.notices_max) {
    auto oldest = std::find_if(notices_.begin(), notices_.end(), [&](const WaitingNotice& waiting) {
      return waiting.level_triggered == level_triggered;
    });
    if (auto it = seats_.find(oldest->seat_id); it != seats_.end()) ++it->second.notices_lost;
    notices_.erase(oldest);
  }
  notices_.push_back({seat_id, std::move(method), std::move(raw_params), level_triggered});
  wake_();
}

bool SeatFeed::FillStates(FrameBuilder& frame) {
  for (const auto& [seat_id, reason] : gone_) {
    v1::SeatGone* gone = frame.Add()->mutable_seat_gone();
    gone->set_seat_id(seat_id);
    gone->set_reason(reason);
  }
  gone_.clear();
  while (!changed_.empty()) {
    auto it = seats_.find(*changed_.begin());
    v1::SeatState state = StateOf(it->first, it->second);
    if (!frame.empty() && frame.room() < state.ByteSizeLong() + kItemOverhead) return false;
    frame.Add()->mutable_seat_state()->Swap(&state);
    changed_.erase(changed_.begin());
  }
  return true;
}

void SeatFeed::FillData(FrameBuilder& frame) {
  FillNotices(frame);
  FillCatalogue(frame);
}

void SeatFeed::FillNotices(FrameBuilder& frame) {
  while (!notices_.empty()) {
    WaitingNotice& waiting = notices_.front();
    const size_t need = kItemOverhead + waiting.params.size() + waiting.method.size();
    if (frame.room() < need) return;
    Entry& entry = seats_.find(waiting.seat_id)->second;
    entry.last_notice_n += 1 + std::exchange(entry.notices_lost, 0);
    if (waiting.level_triggered) {
      if (unconfirmed_.size() >= limits_.notices_max) unconfirmed_.pop_front();
      unconfirmed_.push_back(waiting);
    }
    v1::Notice* notice = frame.Add()->mutable_notice();
    notice->set_seat_id(std::move(waiting.seat_id));
    notice->set_incarnation(entry.incarnation);
    notice->set_n(entry.last_notice_n);
    notice->set_method(std::move(waiting.method));
    notice->mutable_params()->set_inline_(std::move(waiting.params));
    notices_.pop_front();
  }
}

void SeatFeed::FillCatalogue(FrameBuilder& frame) {
  if (transfers_.empty()) return;
  Transfer& transfer = transfers_.front();
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
      transfers_.pop_front();
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
  if (piece == left) transfers_.pop_front();
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
